"""Data sets by name: what there is, getting it, loading it."""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roamax.data import archives, corruptions, dataset, downloads
from roamax.data.dataset import Dataset
from roamax.data.formats import cifar
from roamax.data.registry import REGISTRY, Entry
from roamax.errors import FileError, check, lookup


class Row(NamedTuple):
    """A data set in the list of them: `sizes` of training and test set, `num_bytes` to fetch or on disk.

    `checksum` is what its files are held to: a published one (`sha256`, `md5`), that of the first download
    (`recorded`), or None, for data that are made and for the user's files.
    """

    name: str
    what: str
    classes: int
    sizes: tuple[int, int]
    num_bytes: int
    licence: str
    present: bool
    checksum: str | None


def names() -> list[str]:
    """Return the names of the registry."""
    return list(REGISTRY)


def table(data_dir: str | Path | None = None) -> list[Row]:
    """Return all data sets of the registry, then those that the user put into the data directory as `NAME.npz`."""
    folder = downloads.data_dir(data_dir)
    rows = [_row(name, entry, folder) for name, entry in REGISTRY.items()]
    own = [_own_row(path) for path in _own_files(folder) if path.stem not in REGISTRY]
    return rows + [row for row in own if row is not None]


def fetch(name: str, data_dir: str | Path | None = None, progress: bool = True) -> list[Path]:
    """Download the published files of a data set, as far as they are missing, and check them.

    A `NAME.npz` of the user's stands in for the published files, and is left alone. Data that are made need no file.

    Args:
        name: One of `names()`.
        data_dir: The data directory; None is `ROAMAX_DATA` or a folder in the user's cache.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        The paths of the files.
    """
    folder = downloads.data_dir(data_dir)
    entry = lookup(REGISTRY, name, "name")
    own = folder / f"{name}.npz"
    return [own] if own.exists() else [downloads.fetch_file(file, folder, progress) for file in entry.files]


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a data set by its name, from a `NAME.npz` in the data directory or else from its published files.

    Nothing is downloaded: what is missing is an error that says how to get it.

    Args:
        name: One of `names()`, or that of a `NAME.npz` in the data directory.
        data_dir: The data directory; None is `ROAMAX_DATA` or a folder in the user's cache.

    Returns:
        The data set, as arrays on the host.
    """
    folder = downloads.data_dir(data_dir)
    own = {path.stem: path for path in _own_files(folder)}
    lookup({**REGISTRY, **own}, name, "name")
    if name not in own:
        return _from_files(name, REGISTRY[name], folder)
    entry = REGISTRY.get(name)
    loaded = dataset.read_npz(own[name], name, entry.classes if entry else None)
    if entry and loaded.x_test.shape[1:] != entry.shape:
        raise FileError(f"{own[name]} must hold examples of shape {entry.shape}; got {loaded.x_test.shape[1:]}.")
    return loaded


def corrupted(
    name: str, kind: str, severity: int, data_dir: str | Path | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the test set of `name` under a corruption.

    For cifar10 these are the published images of CIFAR-10-C where that is in the data directory; otherwise
    `corruptions.corrupt` makes them.

    Args:
        name: A data set of images.
        kind: One of the 15 kinds of `roamax.data.corruptions.KINDS`.
        severity: From 1 to 5.
        data_dir: The data directory.
        seed: Decides what is random in a corruption that is made here.

    Returns:
        The images and their labels.
    """
    lookup(dict.fromkeys(corruptions.KINDS), kind, "kind")
    check(severity in range(1, 6), "severity", "be a whole number from 1 to 5", severity)
    folder = downloads.data_dir(data_dir)
    (file,) = REGISTRY["cifar10_c"].files
    path = folder / file.path
    if name == "cifar10" and path.exists():
        downloads.verify(file, folder)
        with archives.reading(path):
            x, y = cifar.cifar10_c_part(path, kind, severity)
        return x, y.astype(np.int32)
    own = folder / f"{name}.npz"
    x, y = _test_set(name, folder, own.stat().st_mtime_ns if own.exists() else 0)
    return corruptions.corrupt(x, kind, severity, seed), y.copy()


# A table of corruptions asks for the same test set 75 times.
@functools.lru_cache(maxsize=1)
def _test_set(name: str, folder: Path, changed: int) -> tuple[np.ndarray, np.ndarray]:
    loaded = load(name, folder)
    return loaded.x_test, loaded.y_test


def _row(name: str, entry: Entry, folder: Path) -> Row:
    own = folder / f"{name}.npz"
    present = own.exists() or all((folder / file.path).exists() for file in entry.files)
    kinds = {_checksum_kind(file.checksum) for file in entry.files}
    checksum = ", ".join(sorted(kinds)) or None
    num_bytes = sum(file.num_bytes for file in entry.files)
    return Row(
        name, entry.what, entry.classes, (entry.num_train, entry.num_test), num_bytes, entry.licence, present, checksum
    )


def _own_row(path: Path) -> Row | None:
    """Return the row of a user's file, or None if the file holds no data set."""
    try:
        targets = dataset.npz_targets(path)
    except FileError:
        return Row(path.stem, "damaged: replace it, or remove it", 0, (0, 0), path.stat().st_size, "", True, None)
    if "y_test" not in targets:
        return None
    sizes = len(targets.get("y_train", ())), len(targets["y_test"])
    classes = dataset.count_classes(targets.values())
    return Row(path.stem, "your own", classes, sizes, path.stat().st_size, "yours", True, None)


def _checksum_kind(checksum: str | None) -> str:
    return "recorded" if checksum is None else checksum.partition(":")[0]


def _own_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.npz") if not path.name.startswith("."))


def _from_files(name: str, entry: Entry, folder: Path) -> Dataset:
    if not entry.files:
        return dataset.from_arrays(name, entry.read(), entry.classes, Path(name))
    paths = [folder / file.path for file in entry.files]
    if not all(path.exists() for path in paths):
        own = f"{name}.npz with x_train, y_train, x_test, y_test"
        raise FileError(f"{name} is not in {folder}: run `roamax data fetch {name}`, or put {own} there.")
    for file in entry.files:
        downloads.verify(file, folder)
    with archives.reading(paths[0]):
        arrays = entry.read(*paths)
    loaded = dataset.from_arrays(name, arrays, entry.classes, paths[0])
    shapes = (entry.num_train, *entry.shape), (entry.num_test, *entry.shape)
    if (loaded.x_train.shape, loaded.x_test.shape) != shapes:
        got = f"{loaded.x_train.shape} and {loaded.x_test.shape}"
        raise FileError(
            f"{paths[0]} must hold training and test sets of shapes {shapes[0]} and {shapes[1]}; got {got}."
        )
    if entry.slow:
        _keep(loaded, folder / f"{name}.npz")
    return loaded


def _keep(loaded: Dataset, path: Path) -> None:
    try:
        dataset.write_npz(path, loaded)
    except FileError:
        # A data directory that cannot be written to still serves: the next load parses again.
        return
