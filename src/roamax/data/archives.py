"""Compressed files and archives, read in memory.

Nothing is unpacked to disk, so that no name in an archive can escape a folder, and nothing is unpickled. Sizes claimed
by a header are checked against the size of the file before memory is allocated.
"""

import math
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from roamax.errors import FileError

Arrays = dict[str, np.ndarray]

MEMBER_BYTES = 256 * 1024**2
"""The largest size of a single file in an archive of images."""
DEFLATE_RATIO = 1032
"""The largest compression ratio of deflate."""


@contextmanager
def reading(path: Path, remedy: str = "remove it, and fetch it again") -> Iterator[None]:
    """Turn any error while `path` is being parsed into a one-line `FileError` that names it and the remedy."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        # To open a pipe would wait for a writer.
        raise FileError(f"{path} is not a regular file: {remedy}.")
    try:
        yield
    except FileError:
        raise
    except PermissionError as error:
        raise FileError(f"{path} could not be read: {reason(error)}.") from error
    # Given damaged bytes, the decoders (zip, tar, MAT, JPEG) may raise anything, even MemoryError.
    except Exception as error:
        raise FileError(f"{path} is damaged or of another format ({reason(error)}): {remedy}.") from error


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if there is none."""
    lines = str(getattr(error, "strerror", None) or error).splitlines()
    return lines[0][:160].rstrip(".") if lines else type(error).__name__


def tar_members(path: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the wanted regular files in a tar archive, each at most `limit` bytes."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and wanted(member.name):
                check_limit(member.name, member.size, limit)
                stream = archive.extractfile(member)
                content = b"" if stream is None else stream.read()
                if len(content) != member.size:
                    raise ValueError(f"{member.name} in it is cut short")
                yield member.name, content


def zip_members(path: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the wanted files in a zip archive, each at most `limit` bytes."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir() and wanted(info.filename):
                check_limit(info.filename, info.file_size, limit)
                yield info.filename, archive.read(info)


class NpyHeader(NamedTuple):
    """The header of an array in the npy format, whose data begin at byte `start`."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    start: int

    @property
    def num_bytes(self) -> int:
        """The size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read a header. Arrays of objects, which are pickles, are refused."""
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the npy format is not known")
    header = NpyHeader(*readers[version](stream), stream.tell())
    if header.dtype.hasobject:
        raise ValueError("it holds pickled objects, which are never read")
    return header


def npz_arrays(path: Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """Read those arrays of an npz file whose names are wanted."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.filename.endswith(".npy") and wanted(name):
                with archive.open(info) as stream:
                    header = npy_header(stream)
                if header.start + header.num_bytes != info.file_size:
                    raise ValueError(f"the size of {name} is not the one that its header claims")
                check_claim(info.file_size, min(info.compress_size, path.stat().st_size))
                with archive.open(info) as stream:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
    return arrays


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays of an npz file."""
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def check_claim(num_bytes: int, stored: int, ratio: int = DEFLATE_RATIO) -> None:
    """Refuse a header that claims more bytes than the stored ones can decompress to."""
    if num_bytes > ratio * stored:
        raise ValueError(f"its header claims {num_bytes} bytes, more than the {stored} stored ones can hold")


def check_limit(name: str, size: int, limit: int) -> None:
    """Refuse a member of an archive that is larger than `limit`."""
    if size > limit:
        raise ValueError(f"{name} in it has {size} bytes, more than the {limit} that such a file may have")


def check_complete(names: Iterable[str], there: Iterable[str]) -> None:
    """Refuse an archive that lacks one of these members."""
    missing = sorted(set(names) - set(there))
    if missing:
        raise ValueError(f"{missing[0]} is missing from it")
