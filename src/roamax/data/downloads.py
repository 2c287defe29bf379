"""Downloads of published files: atomic, and verified by checksum."""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from roamax.data import archives
from roamax.data.registry import File
from roamax.errors import FileError, shaped
from roamax.host import files
from roamax.host.progress import progress_bar

RECORD = "checksums.json"
"""The file in the data directory with the checksums of first downloads."""
SECONDS_TO_WAIT = 30

_verified: dict[Path, tuple[int, int]] = {}


def data_dir(folder: str | Path | None = None) -> Path:
    """Return the data directory.

    Args:
        folder: The directory; None is `ROAMAX_DATA` or a folder in the user's cache.

    Returns:
        Its path, which need not exist.
    """
    chosen = folder or os.environ.get("ROAMAX_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("roamax"))


def fetch_file(file: File, folder: Path, progress: bool) -> Path:
    """Fetch a file, unless it exists, from the first URL that works."""
    path = folder / file.path
    if path.exists():
        verify(file, folder)
        return path
    problems = []
    for url in file.urls:
        try:
            _download(file, url, path, folder, progress)
            return path
        except FileError as error:
            problems.append(str(error))
    raise FileError(f"{problems[0]} Try again later, or save {file.urls[-1]} as {path} by other means.")


def _download(file: File, url: str, path: Path, folder: Path, progress: bool) -> None:
    files.make_folder(path.parent)
    # Not `pooch.retrieve`: its files are readable by their owner only, and are kept before their size is checked.
    with files.replacing(path) as temporary:
        _stream(url, temporary, path.name, file.num_bytes, None if progress else False)
        _check(file, temporary, folder, f"What {urlsplit(url).hostname} serves as {path.name}")


def _stream(url: str, target: Path, name: str, num_bytes: int, show: bool | None) -> None:
    """Download `url` to `target`."""
    import requests

    host = urlsplit(url).hostname
    # Gzipped files must be kept as they are, not decompressed as a transfer encoding.
    options = {"stream": True, "timeout": SECONDS_TO_WAIT, "headers": {"Accept-Encoding": "identity"}}
    try:
        with (
            requests.get(url, **options) as response,
            open(target, "wb") as file,
            progress_bar(name, num_bytes, show=show, note="", in_bytes=True) as report,
        ):
            response.raise_for_status()
            for chunk in response.iter_content(2**18):
                file.write(chunk)
                report(file.tell(), "")
    except requests.HTTPError as error:
        status = "an error" if error.response is None else error.response.status_code
        raise FileError(f"{name} could not be fetched: {host} answered {status}.") from error
    except requests.Timeout as error:
        raise FileError(f"{name} could not be fetched: {host} did not answer in {SECONDS_TO_WAIT} s.") from error
    except requests.RequestException as error:
        raise FileError(f"{name} could not be fetched: no connection to {host}, or it broke.") from error


def verify(file: File, folder: Path) -> None:
    """Raise a `FileError` unless the file in the data directory is the published one, or the one first fetched.

    Files are hashed once per process, unless they change.
    """
    path = folder / file.path
    with archives.reading(path):
        stat = path.stat()
    state = (stat.st_size, stat.st_mtime_ns)
    if _verified.get(path) != state:
        _check(file, path, folder, str(path), "Remove it, and fetch it again.")
        _verified[path] = state


def _check(file: File, path: Path, folder: Path, subject: str, remedy: str = "Nothing was kept.") -> None:
    recorded = _recorded(folder)
    expected = file.checksum or recorded.get(file.path)
    if expected is None:
        size = path.stat().st_size
        if size != file.num_bytes:
            raise FileError(f"{subject} is not the published file: it has {size} bytes, not {file.num_bytes}. {remedy}")
        files.write_json(folder / RECORD, {**recorded, file.path: f"sha256:{_hash(path, 'sha256')}"})
        return
    algorithm, _, digest = expected.partition(":")
    if _hash(path, algorithm) != digest:
        which = "published" if file.checksum else "first fetched"
        raise FileError(f"{subject} is not the {which} file: its {algorithm} differs. {remedy}")


def _recorded(folder: Path) -> dict[str, str]:
    path = folder / RECORD
    recorded = shaped(files.read_json(path) if path.exists() else {}, {"*": str}, path, "Remove it.")
    if not all(re.fullmatch(r"sha256:[0-9a-f]{64}", checksum) for checksum in recorded.values()):
        raise FileError(f"{path} is damaged: it must hold checksums by file. Remove it.")
    return recorded


def _hash(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
