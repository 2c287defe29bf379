"""Files: atomic writes, checksums, safetensors and JSON, one lock per folder.

Nothing here unpickles or evaluates what it reads.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from roamax.errors import FileError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` while `path` is being written into a one-line `FileError` that names it."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror or error}.") from error


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} could not be made: {error.strerror}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` if the block succeeds.

    Readers, even after a crash, find either the old content or the new, never a part.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            yield temporary
            # Flushed to disk before it is renamed. Windows flushes only files that are open for writing.
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except (Exception, KeyboardInterrupt):
            with suppress(OSError):
                temporary.unlink()
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def read_bytes(path: Path, sha256: str | None = None) -> bytes:
    """Return the content of a file; raise a `FileError` unless its checksum is `sha256`, if given."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}.") from error
    if sha256 is not None and checksum(content) != sha256:
        raise FileError(f"{path} is damaged: its checksum is not the listed one. Restore it, or remove the run folder.")
    return content


def checksum(content: bytes) -> str:
    """Return the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def json_text(value: Any) -> str:
    """Return a value as JSON; NaN and infinities, which JSON lacks, become null, NumPy scalars plain numbers."""
    text = json.dumps(value, default=float)
    return json.dumps(json.loads(text, parse_constant=lambda name: None), indent=1)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, f"{json_text(value)}\n".encode())


def read_json(path: Path) -> Any:
    content = read_bytes(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: it is not valid JSON.") from error


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with its checksum, since a file with a flipped digit would still be valid JSON."""
    # Infinities are kept: the seal covers them, and a loss that is not known yet is infinite.
    write_bytes(path, (json.dumps({**value, "seal": _seal(value)}, indent=1) + "\n").encode())


def read_sealed(path: Path, fields: Collection[str]) -> dict[str, Any]:
    """Read an object with these fields that `write_sealed` wrote. Files from earlier versions have no seal."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise FileError(f"{path} is damaged: it is not a JSON object.")
    seal = value.pop("seal", None)
    # An unknown field may be the seal, with its name damaged.
    if (seal is not None and seal != _seal(value)) or not value.keys() <= set(fields):
        raise FileError(f"{path} is damaged: its content is not what was written. Restore it, or remove the folder.")
    return value


def _seal(value: dict[str, Any]) -> str:
    return checksum(json.dumps(value, sort_keys=True).encode())


def is_plain_name(name: Any) -> bool:
    """Return whether `name` is a plain file name, which cannot lead to another folder."""
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name) is not None


def is_whole(number: Any, least: int = 0) -> bool:
    """Return whether a value from a JSON file is a whole number >= `least`."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


def pack_tensors(tensors: dict[str, Any]) -> bytes:
    """Return the content of a safetensors file with these arrays."""
    from safetensors.numpy import save

    # A transposed or strided view would be written in memory order, so make each array contiguous first.
    return save({name: np.ascontiguousarray(tensor).reshape(np.shape(tensor)) for name, tensor in tensors.items()})


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of a safetensors file, checked against `sha256` before they are parsed."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = read_bytes(path, sha256)
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise FileError(f"{path} is damaged: it is not a valid safetensors file.") from error
    if not all(name.isprintable() for name in tensors):
        raise FileError(f"{path} is damaged: the name of a tensor in it cannot be printed.")
    return tensors


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process; a second process gets a `FileError` with the pid of the first."""
    lock = FileLock(folder / ".lock", timeout=0)
    # Not in the lock file itself, which other processes cannot read on Windows.
    holder = folder / ".lock.pid"
    with writing(folder / ".lock"):
        try:
            lock.acquire()
        except Timeout as error:
            pid = _number_in(holder) or "unknown"
            raise FileError(f"{folder} is in use by process {pid}: wait for it, or choose another folder.") from error
    try:
        with writing(holder):
            holder.write_text(str(os.getpid()))
        _sweep(folder)
        yield
    finally:
        with suppress(OSError):
            holder.unlink()
        lock.release()


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_bytes()[:20])
    except (OSError, ValueError):
        return None


def _sweep(folder: Path) -> None:
    """Remove partial files left by processes that have ended."""
    for part in folder.rglob(".*.part"):
        pid = part.name.split(".")[-2]
        if pid.isdecimal() and not _is_running(int(pid)):
            with suppress(OSError):
                part.unlink()


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # On Windows, signal 0 is Ctrl-C.
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
