"""Parsing of a command line into the arguments of a function, by tyro, with errors on one line instead of in a box.

tyro wraps only text in boxes, and reports errors as data only in a private module, so its text is parsed.
"""

import contextlib
import difflib
import functools
import inspect
import io
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from roamax.errors import InputError, nearest

MOST_COLUMNS = 100
RULES = {
    r"Missing from .*?: (\S+).*": r"`\1` must be given",
    r"Missing value for argument '(.*?)'.*": r"`\1` must be followed by a value",
    r"Error parsing (\S+): .*invalid literal for int\(\) with base 10: (.*)": r"`\1` must be a whole number; got \2",
    r"Error parsing (\S+): .*could not convert string to float: (.*)": r"`\1` must be a number; got \2",
    r"Unrecognized options: (.*)": r"All words must be options or their values; got '\1'",
}
"""Patterns of tyro's errors, and the rules they are replaced by."""


def parse(function: Callable[..., None], prog: str, words: Sequence[str]) -> Callable[[], None]:
    """Return the call of a command's function that the words ask for.

    Args:
        function: The command; its docstring is the help text and its parameters are the options.
        prog: The command's name, as help and errors show it.
        words: The words after the name.

    Returns:
        A function without arguments. Bad words raise an `InputError`; if they ask for help, it is printed and the
        process ends.
    """
    import tyro

    # Parsing is separate from running: tyro would put errors of the command itself in a box too.
    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(function, *positional, **named)

    description = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")[0]
    config = (tyro.conf.FlagCreatePairsOff,)
    said, complaint = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
            return tyro.cli(call, prog=prog, description=description, args=words, config=config)
    except SystemExit as end:
        if end.code:
            raise InputError(_misspelt(function, prog, words) or _rule(complaint.getvalue(), prog)) from None
        print(_wrapped(said.getvalue()))
        raise


def options(function: Callable[..., None], prog: str) -> list[str]:
    """Return the options that a command's help text shows."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        parse(function, prog, ["--help"])
    return re.findall(r"^ +(?:-h, )?(--\w[\w.-]*)", text.getvalue(), re.MULTILINE)


def _misspelt(function: Callable[..., None], prog: str, words: Sequence[str]) -> str | None:
    """Return an error about the first word that looks like an option but is not one, or None."""
    known = options(function, prog)
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"see {prog} --help."
            return f"`{name}` must be an option of {prog}: {hint}"
    return None


def _rule(box: str, prog: str) -> str:
    """Return on one line the text of a box without a border, from its underlined title to the next line of dashes."""
    title, *parts = re.split(r"^ *-{5,} *$", box, flags=re.MULTILINE)
    said = " ".join((parts[0] if parts else title).split()).rstrip(".")
    if said.startswith("invalid choice"):
        name, argument, *known = re.findall(r"'([^']*)'", said)
        return f"`{argument}` must be a known name; got {name!r}: {nearest(name, known)}"
    for pattern, rule in RULES.items():
        said = re.sub(pattern, rule, said)
    return f"{said}; see {prog} --help."


def _wrapped(text: str) -> str:
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    wrap = functools.partial(textwrap.fill, width=width, break_on_hyphens=False)
    return "\n".join(
        wrap(line, subsequent_indent=" " * 7 * line.startswith("usage:")) if line[:1].isalpha() else line.rstrip()
        for line in text.splitlines()
    )
