"""The code of pages, for the tests of the documentation and of a release."""

import re
from pathlib import Path


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language, also those inside lists."""
    fence = r"^( *)```(\w*)\n(.*?)^\1```$"
    return [
        "\n".join(line.removeprefix(indent) for line in body.splitlines())
        for indent, found, body in re.findall(fence, path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        if found == language
    ]
