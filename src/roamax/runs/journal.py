"""A file that only grows: one JSON object per line, each sealed together with all lines before it.

A line is appended and flushed in one go, so a list of 100,000 entries costs as much per entry as one of ten. What a
crash leaves of the last line is not terminated, and is dropped; any other line that is not what was written is damage.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roamax.errors import FileError
from roamax.host import files


class Journal:
    """The entries of a journal on disk, as they were when it was opened, and those added since."""

    def __init__(self, path: Path):
        self.path = path
        self.entries: list[dict[str, Any]] = []
        self._seal, self._length = "", 0
        content = files.read_bytes(path)
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            self.entries.append(self._read(line))
            self._length += len(line)
        if not self.entries:
            raise self._damaged()

    @classmethod
    def create(cls, path: Path, entries: Iterable[dict[str, Any]]) -> "Journal":
        """Write a journal that begins with these entries, at least one."""
        seal, lines = "", []
        for entry in entries:
            line, seal = _sealed(entry, seal)
            lines.append(line)
        files.write_bytes(path, b"".join(lines))
        return cls(path)

    def append(self, entry: dict[str, Any]) -> None:
        """Add an entry; when this returns, it is on disk."""
        line, seal = _sealed(entry, self._seal)
        files.append(self.path, line, after=self._length)
        self.entries.append(entry)
        self._seal, self._length = seal, self._length + len(line)

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
            seal = entry.pop("seal")
            expected, self._seal = _sealed(entry, self._seal)
        except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
            raise self._damaged() from error
        if seal != self._seal or line != expected:
            raise self._damaged()
        return entry

    def _damaged(self) -> FileError:
        return FileError(
            f"{self.path} is damaged: its line {len(self.entries) + 1} is not what was written. Restore it, or remove "
            "the run folder."
        )


def _sealed(entry: dict[str, Any], before: str) -> tuple[bytes, str]:
    """Return the line of an entry, and its seal, which covers that of the line before."""
    seal = files.checksum(f"{before}{json.dumps(entry)}".encode())
    return f"{json.dumps({**entry, 'seal': seal})}\n".encode(), seal
