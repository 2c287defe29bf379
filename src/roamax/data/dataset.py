"""Loaded data sets, `NAME.npz` files, and validation splits."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roamax.data import archives
from roamax.data.formats.npz import MEDMNIST
from roamax.data.registry import REGISTRY
from roamax.errors import FileError, as_seed, whole
from roamax.host import files

PARTS = ("train", "valid", "test")
WHOLE = "hold x_train, y_train, x_test and y_test, or x_test and y_test alone"
_KEYS = {
    **{f"{name}_{part}": f"{name}_{part}" for name in "xy" for part in PARTS},
    **{f"{name}_val": f"{name}_valid" for name in "xy"},
    # MedMNIST publishes files that are also called NAME.npz, but name their arrays differently.
    **MEDMNIST,
}
"""The fields of `Dataset`, by the names that arrays may have in an npz file."""
MOST_CLASSES = 2**20
"""A label beyond is a mistake: the network would have an output for each."""


class Dataset(NamedTuple):
    """A data set, as arrays on the host.

    `x_*`: images are uint8 of shape (n, height, width, channels), features float32, token ids int32.
    `y_*`: class labels are int32 of shape (n,), below `num_classes`; real targets are float32, and `num_classes` is 0.
    Sets that serve as out-of-distribution data only have an empty training set. `x_valid` and `y_valid` hold the
    published validation set, if there is one.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    x_valid: np.ndarray | None = None
    y_valid: np.ndarray | None = None


class Splits(NamedTuple):
    """Inputs and targets: `train` for the sampler, `valid` for meta-losses and tuning, `test` for reports."""

    train: tuple[np.ndarray, np.ndarray]
    valid: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def split(dataset: Dataset, num_valid: int | None = None, seed: int = 0) -> Splits:
    """Hold out a validation set from the training set.

    Args:
        dataset: The data set to split.
        num_valid: The number of examples to hold out. None is the published validation set, if there is one; for CIFAR
            the paper's 9,040 of 50,000 images; otherwise a tenth of the training set, or one example.
        seed: Decides which examples are held out.

    Returns:
        Inputs and targets of the three parts.
    """
    x, y, test = dataset.x_train, dataset.y_train, (dataset.x_test, dataset.y_test)
    if num_valid is None and dataset.x_valid is not None and dataset.y_valid is not None:
        return Splits((x, y), (dataset.x_valid, dataset.y_valid), test)
    if num_valid is None:
        entry = REGISTRY.get(dataset.name)
        num_valid = entry.num_valid if entry and entry.num_valid and len(x) == entry.num_train else max(1, len(x) // 10)
    num_valid, seed = whole(num_valid, "num_valid", 0, len(x) - 1), as_seed(seed)
    order = np.random.default_rng(seed).permutation(len(x))
    # Sorted, so that the training set stays in its published order.
    train, valid = np.sort(order[num_valid:]), np.sort(order[:num_valid])
    return Splits((x[train], y[train]), (x[valid], y[valid]), test)


def from_arrays(name: str, arrays: dict[str, np.ndarray], num_classes: int | None, source: Path) -> Dataset:
    """Make a data set from arrays by field name, and check them; errors name `source`.

    If `num_classes` is None, it is one more than the largest label, or 0 for real targets.
    """
    if not {"x_test", "y_test"} <= arrays.keys():
        raise _wrong(source, WHOLE, sorted(arrays))
    fields = {key: _inputs(array, key, source) for key, array in arrays.items() if key.startswith("x")}
    fields |= {key: _targets(array, key, source) for key, array in arrays.items() if key.startswith("y")}
    x, y = fields["x_test"], fields["y_test"]
    if not len(y):
        raise _wrong(source, "hold at least one test example", "none")
    if not {"x_train", "y_train"} & fields.keys():
        fields |= {"x_train": x[:0], "y_train": y[:0]}
    for part in PARTS:
        if f"x_{part}" in fields or f"y_{part}" in fields:
            _check_part(fields, part, source)
    found = count_classes(fields[key] for key in fields if key.startswith("y"))
    num_classes = found if num_classes is None else num_classes
    if found > num_classes or (found == 0) != (num_classes == 0):
        rule = f"hold labels below {num_classes}" if num_classes else "hold real targets"
        raise _wrong(source, rule, f"labels up to {found - 1}" if found else "real targets")
    return Dataset(name, num_classes=num_classes, **fields)


def read_npz(path: Path, name: str, num_classes: int | None = None) -> Dataset:
    """Read a data set from a `NAME.npz` with `x_train`, `y_train`, `x_test`, `y_test`, or MedMNIST's names for them."""
    with archives.reading(path, "replace it, or remove it"):
        arrays = archives.npz_arrays(path, _KEYS.__contains__)
        if not arrays:
            raise _wrong(path, WHOLE, sorted(archives.npz_names(path)))
    return from_arrays(name, {_KEYS[key]: array for key, array in arrays.items()}, num_classes, path)


def write_npz(path: Path, dataset: Dataset) -> None:
    """Write a data set as `NAME.npz`, atomically."""
    arrays = {key: value for key, value in dataset._asdict().items() if isinstance(value, np.ndarray)}
    with files.replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def npz_targets(path: Path) -> dict[str, np.ndarray]:
    """Read only the labels or targets of an npz file, by field name: they are small, and give the sizes."""
    with archives.reading(path, "replace it, or remove it"):
        arrays = archives.npz_arrays(path, lambda key: _KEYS.get(key, "").startswith("y"))
    return {_KEYS[key]: _targets(array, key, path) for key, array in arrays.items()}


def count_classes(targets: Iterable[np.ndarray]) -> int:
    """Return one more than the largest label, or 0 if the targets are real numbers."""
    arrays = list(targets)
    if any(array.dtype != np.int32 for array in arrays):
        return 0
    return 1 + max(int(array.max(initial=-1)) for array in arrays)


def _inputs(x: np.ndarray, key: str, source: Path) -> np.ndarray:
    if 0 in x.shape[1:]:
        raise _wrong(source, f"hold examples in {key} with at least one feature", f"shape {x.shape}")
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        images = x[..., None] if x.ndim == 3 else x
        if images.shape[3] > images.shape[1]:
            raise _wrong(source, f"have the channels of {key} last", f"shape {x.shape}")
        return images
    if x.dtype.kind in "iu" and x.ndim == 2:
        if x.min(initial=0) < 0 or x.max(initial=0) > np.iinfo(np.int32).max:
            raise _wrong(source, f"have token ids in {key} that are >= 0 and fit 32 bits", "others")
        return x.astype(np.int32)
    if x.dtype.kind == "f" and x.ndim >= 1:
        return _finite(x[:, None] if x.ndim == 1 else x, key, source)
    rule = f"hold in {key} uint8 images (n, height, width[, channels]), float features or token ids (n, length)"
    raise _wrong(source, rule, f"{x.dtype} of shape {x.shape}")


def _targets(y: np.ndarray, key: str, source: Path) -> np.ndarray:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.dtype.kind in "iub" and y.ndim == 1:
        if y.min(initial=0) < 0 or y.max(initial=0) >= MOST_CLASSES:
            raise _wrong(source, f"have labels in {key} that are >= 0 and < {MOST_CLASSES}", "others")
        return y.astype(np.int32)
    if y.dtype.kind == "f" and y.ndim in (1, 2):
        return _finite(y, key, source)
    raise _wrong(source, f"hold in {key} whole labels (n,) or real targets", f"{y.dtype} of shape {y.shape}")


def _finite(values: np.ndarray, key: str, source: Path) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise _wrong(source, f"hold numbers in {key} that are finite in single precision", "NaN or infinity")
    return values


def _check_part(fields: dict[str, np.ndarray], part: str, source: Path) -> None:
    x, y = fields.get(f"x_{part}"), fields.get(f"y_{part}")
    if x is None or y is None or len(x) != len(y):
        got = " and ".join("none" if array is None else str(len(array)) for array in (x, y))
        raise _wrong(source, f"have as many rows in x_{part} as in y_{part}", got)
    for array, like in ((x, fields["x_test"]), (y, fields["y_test"])):
        if array.shape[1:] != like.shape[1:] or array.dtype != like.dtype:
            got = f"{array.dtype} {array.shape[1:]} and {like.dtype} {like.shape[1:]}"
            raise _wrong(source, f"hold examples of one kind and shape in its {part} and test sets", got)


def _wrong(source: Path, rule: str, got: Iterable[str] | str) -> FileError:
    got = got if isinstance(got, str) else ", ".join(got) or "nothing"
    return FileError(f"{source} must {rule}; got {got}.")
