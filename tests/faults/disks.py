"""A disk that fails, or a process that dies, at one file operation after another."""

import errno
import os
from pathlib import Path
from typing import Any

from roamax.host import files


class Killed(BaseException):
    """The process is gone: unlike an `Exception`, nothing in the package may take notice of it."""


class FaultyDisk:
    """Counts the operations that change files, and breaks off the one of a given number.

    `fault` says how: "killed" ends the process, "fails" raises an error once, "full" raises from there on. A write is
    broken off half-way.
    """

    def __init__(self, monkeypatch: Any, fail_at: int, fault: str):
        self.count, self.fail_at, self.fault = 0, fail_at, fault
        monkeypatch.setattr(files, "open", self._opening(open), raising=False)
        monkeypatch.setattr(Path, "open", self._opening(Path.open))
        for owner, name in ((os, "fsync"), (os, "replace"), (Path, "mkdir")):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))
        # To remove a file is possible on a full disk.
        monkeypatch.setattr(Path, "unlink", self._counted(Path.unlink, frees=True))

    @property
    def was_reached(self) -> bool:
        """Whether the operation of that number came up."""
        return self.count >= self.fail_at

    def operate(self, frees: bool = False) -> None:
        """Count an operation; raise if it is the one."""
        self.count += 1
        if self.count == self.fail_at and self.fault == "killed":
            raise Killed
        is_due = self.count == self.fail_at or (self.fault == "full" and self.count > self.fail_at)
        if is_due and not frees:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _counted(self, function: Any, frees: bool = False) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.operate(frees)
            return function(*arguments, **options)

        return counted

    def _opening(self, function: Any) -> Any:
        def opened(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if mode.startswith("r"):
                return function(path, mode, *arguments, **options)
            self.operate()
            return _File(function(path, mode, *arguments, **options), self)

        return opened


class _File:
    """A file on a faulty disk."""

    def __init__(self, file: Any, disk: FaultyDisk):
        self._file, self._disk = file, disk

    def write(self, content: bytes) -> int:
        try:
            self._disk.operate()
        except BaseException:
            self._file.write(content[: len(content) // 2])
            self._file.flush()
            raise
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()
