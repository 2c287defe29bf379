"""The arrays of a task: a data set, split, optionally subsampled, with images optionally at half resolution."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import data
from roamax.errors import check, whole


class Sizes(NamedTuple):
    """The number of examples per split; None is all there are or, for `valid`, the default of `roamax.data.split`."""

    train: int | None = None
    valid: int | None = None
    test: int | None = None


class TaskData(NamedTuple):
    """Splits on the device, each `(x, y)`; `num_classes` is 0 for real targets."""

    train: tuple[jax.Array, jax.Array]
    valid: tuple[jax.Array, jax.Array]
    test: tuple[jax.Array, jax.Array]
    num_classes: int

    def model_options(self) -> dict[str, int]:
        """Return the options of a model's output layer that follow from the data."""
        if self.num_classes:
            return {"num_classes": self.num_classes}
        targets = self.train[1]
        return {"outputs": 1 if targets.ndim == 1 else targets.shape[1]}


def load(
    name: str,
    data_dir: str | Path | None,
    sizes: Sizes,
    *,
    classes: Sequence[int] | None = None,
    halve: bool = False,
    seed: int = 0,
) -> TaskData:
    """Load a data set, keep only `classes`, and hold out `sizes.valid` training examples, chosen by `seed`."""
    return _load(name, data.data_dir(data_dir), sizes, None if classes is None else tuple(classes), halve, seed)


# Tasks on the same data share arrays: a hundred tasks take the memory of a few data sets.
@functools.lru_cache(maxsize=8)
def _load(name: str, folder: Path, sizes: Sizes, classes: tuple[int, ...] | None, halve: bool, seed: int) -> TaskData:
    loaded = data.load(name, folder)
    check(len(loaded.x_train) > 0, "data", "have a training set", name)
    enough = len(loaded.x_train) > 1 or loaded.x_valid is not None
    check(enough, "data", "have at least two training examples, one to hold out", f"{name} with one")
    splits = data.split(loaded, sizes.valid, seed)
    if classes is not None:
        splits = [_only(pair, classes, loaded.num_classes) for pair in splits]
    train, valid, test = splits
    train, test = _subset(train, sizes.train, "train_size", seed), _subset(test, sizes.test, "test_size", seed)

    def on_device(pair: tuple[np.ndarray, np.ndarray]) -> tuple[jax.Array, jax.Array]:
        x, y = pair
        return jnp.asarray(_halved(x) if halve else x), jnp.asarray(y)

    return TaskData(
        on_device(train), on_device(valid), on_device(test), loaded.num_classes if classes is None else len(classes)
    )


def _only(pair: tuple[Any, Any], classes: tuple[int, ...], num_classes: int) -> tuple[Any, Any]:
    rule = f"be two or more different labels in [0, {num_classes})"
    check(max(classes, default=0) < num_classes and len(set(classes)) == len(classes) >= 2, "classes", rule, classes)
    x, y = pair
    rows = np.isin(y, classes)
    # Labels are renumbered in the order given.
    places = np.zeros(num_classes, y.dtype)
    places[list(classes)] = np.arange(len(classes))
    return x[rows], places[y[rows]]


def _subset(pair: tuple[Any, Any], size: int | None, argument: str, seed: int) -> tuple[Any, Any]:
    if size is None:
        return pair
    x, y = pair
    size = whole(size, argument, 1, len(x))
    # Sorted to keep the published order: predictions are compared row by row.
    chosen = np.sort(np.random.default_rng(seed).permutation(len(x))[:size])
    return x[chosen], y[chosen]


def _halved(x: np.ndarray) -> np.ndarray:
    even = x.ndim == 4 and x.shape[1] % 2 == 0 and x.shape[2] % 2 == 0
    check(even, "halve", "be for images of even height and width", f"data of shape {x.shape[1:]}")
    n, height, width, channels = x.shape
    means = x.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4), dtype=np.float32)
    return np.rint(means).astype(x.dtype) if x.dtype == np.uint8 else means
