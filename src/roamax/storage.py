"""Files that are whole or not there: atomic writes, checksums, safetensors and JSON, one lock a folder.

Nothing here unpickles or evaluates what it reads.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from roamax.errors import FileError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, finds the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileError(f"{path} could not be written: {error.strerror}.") from error


def read_bytes(path: Path, sha256: str | None = None) -> bytes:
    """The content of a file; with `sha256`, only if that is its checksum."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}.") from error
    if sha256 is not None and checksum(content) != sha256:
        raise FileError(f"{path} is damaged: its checksum is not the listed one. Restore it, or remove the run folder.")
    return content


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    content = read_bytes(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: it is not valid JSON.") from error


def pack_tensors(tensors: dict[str, Any]) -> bytes:
    """Named arrays as the content of a safetensors file."""
    from safetensors.numpy import save

    # A view of a transposed or strided array would be written in memory order: make each one plain first.
    return save({name: np.ascontiguousarray(tensor).reshape(np.shape(tensor)) for name, tensor in tensors.items()})


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, np.ndarray]:
    """The named arrays of a safetensors file, checked against `sha256` before they are parsed."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = read_bytes(path, sha256)
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is damaged: it is not a valid safetensors file.") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; a second process is refused with the first one's pid."""
    path = folder / ".lock"
    try:
        file = open(path, "a+")  # noqa: SIM115 (held open by the `with` below, once opening itself has not failed)
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise FileError(
                f"{folder} is in use by process {holder}: wait for it, or choose another folder."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
