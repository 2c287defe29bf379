"""Files: atomic writes, checksums, safetensors and JSON, one lock per folder.

Nothing here unpickles or evaluates what it reads.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout

from roamax.errors import FileError, check


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

    Readers, even after a crash, find either the old content or the new, never a part. Symbolic links are followed, and
    only regular files are replaced: a device or a pipe of that name stays what it is.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise FileError(f"{path} could not be written: it is not a regular file.")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    with writing(path):
        try:
            yield temporary
            # Flushed to disk before it is renamed. Windows flushes only files that are open for writing.
            with open(temporary, "r+b") as file:
                _flush(file)
            os.replace(temporary, target)
        except (Exception, KeyboardInterrupt):
            with suppress(OSError):
                temporary.unlink()
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that does not count until it is listed elsewhere, in the place of what a crash may have left."""
    with writing(path):
        path.unlink(missing_ok=True)
        try:
            with open(path, "xb") as file:
                file.write(content)
                _flush(file)
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise


def append(path: Path, content: bytes, after: int) -> None:
    """Append to a file of `after` bytes; what a crash may have left behind these is cut off first."""
    with writing(path), open(path, "r+b") as file:
        file.truncate(after)
        file.seek(after)
        file.write(content)
        _flush(file)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can."""
    if os.name != "nt":
        with writing(folder):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def read_bytes(path: Path, sha256: str | None = None) -> bytes:
    """Return the content of a file; raise a `FileError` unless its checksum is `sha256`, if given."""
    try:
        # Reading a pipe that nobody writes to would wait forever.
        if path.is_fifo():
            raise OSError(errno.EINVAL, "it is a pipe, not a file")
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror}.") from error
    if sha256 is not None and checksum(content) != sha256:
        raise FileError(f"{path} is damaged: its checksum is not the listed one. Restore it, or remove the run folder.")
    return content


def checksum(content: bytes) -> str:
    """Return the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def as_json(value: Any) -> Any:
    """Return a value as it is read back from JSON: infinities and NaN become None, NumPy scalars plain numbers."""
    return json.loads(json.dumps(value, default=float), parse_constant=lambda name: None)


def json_text(value: Any) -> str:
    """Return a value as JSON; NaN and infinities, which JSON lacks, become null, NumPy scalars plain numbers."""
    return json.dumps(as_json(value), indent=1)


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
    content = read_bytes(path, sha256)
    try:
        return unpack_tensors(content)
    except ValueError as error:
        raise FileError(f"{path} is damaged: {error}.") from error


def unpack_tensors(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file; raise a `ValueError` if it is not a valid one."""
    from safetensors import SafetensorError, deserialize

    try:
        tensors = {
            name: np.frombuffer(view["data"], _dtype(view["dtype"])).reshape(view["shape"])
            for name, view in deserialize(content)
        }
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError("it is not a valid safetensors file") from error
    if not all(name.isprintable() for name in tensors):
        raise ValueError("the name of a tensor in it cannot be printed")
    return tensors


def check_storable(tensors: Mapping[str, Any], argument: str) -> None:
    """Raise an `InputError` unless a safetensors file can hold arrays of these names and dtypes."""
    for name, tensor in tensors.items():
        try:
            kept = unpack_tensors(pack_tensors({name: np.zeros(0, tensor.dtype)}))
            good = [(key, value.dtype) for key, value in kept.items()] == [(name, tensor.dtype)]
        except Exception:
            good = False
        check(good, argument, "have names and dtypes that files can hold", f"{tensor.dtype} at {name!r:.80}")


def _dtype(code: str) -> np.dtype:
    """Return the dtype for its name in a safetensors file; NumPy itself lacks the short floats."""
    import ml_dtypes

    name = _DTYPES[code]
    return np.dtype(getattr(ml_dtypes, name, name))


_DTYPES = {
    "BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64", "C64": "complex64",
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


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


def sweep(folder: Path, names: str) -> None:
    """Remove partial files that ended processes left in `folder`, of files whose names match the pattern `names`."""
    with suppress(OSError):
        for part in folder.iterdir():
            found = re.fullmatch(rf"\.(?:{names})\.(?P<pid>\d+)\.part", part.name)
            if found and not _is_running(int(found["pid"])):
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
