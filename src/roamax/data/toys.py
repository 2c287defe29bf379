"""Small data sets that need no download: digits, a curve to fit, and two mixtures of Gaussians in the plane."""

from collections.abc import Sequence

import numpy as np

from roamax.errors import check, finite, whole

Arrays = dict[str, np.ndarray]

MOONS_SCALE = 0.1
RING_RADIUS, RING_SCALE, RING_MODES = 4.0, 0.3, 8
ARC_POINTS = 100


def digits(seed: int = 0) -> Arrays:
    """Return scikit-learn's 1,797 handwritten digits, 8 × 8; 360 of them, chosen by `seed`, are the test set."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = np.rint(np.asarray(images).reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[:360], order[360:]
    labels = np.asarray(labels)
    return {"x_train": images[train], "y_train": labels[train], "x_test": images[test], "y_test": labels[test]}


def regression_1d(
    num: int = 1000,
    intervals: Sequence[tuple[float, float]] = ((-5.0, 1.0), (1.0, 4.0)),
    noise: float = 0.0,
    seed: int = 0,
) -> Arrays:
    """Draw y = sin(x) + noise · N(0, 1), with `num` points x uniform over the `intervals`.

    The default, the paper's intervals, meet at 1 without a gap; the data set `regression_1d_gap` has
    `((-5, -1), (1, 4))`, which leaves a gap to be uncertain in. Test points are a grid over the whole range, gaps
    included, without noise.
    """
    num, noise = whole(num, "num"), finite(noise, "noise", least=0)
    check(all(low < high for low, high in intervals), "intervals", "be pairs (low, high) with low < high", intervals)
    rng = np.random.default_rng(seed)
    lows, highs = np.asarray(intervals, float).T
    lengths = highs - lows
    which = rng.choice(len(lengths), num, p=lengths / lengths.sum())
    x = lows[which] + lengths[which] * rng.random(num)
    y = np.sin(x) + noise * rng.standard_normal(num)
    grid = np.linspace(lows.min(), highs.max(), num)
    return {"x_train": x[:, None], "y_train": y, "x_test": grid[:, None], "y_test": np.sin(grid)}


def two_moons(num: int = 1000, seed: int = 0) -> Arrays:
    """Draw from two interleaved half circles of radius 1, with Gaussian noise; the label says which."""
    return _points(_moons_centres(), MOONS_SCALE, num, seed)


def ring_of_gaussians(num: int = 1000, seed: int = 0) -> Arrays:
    """Draw from eight Gaussians on a circle; the label says which."""
    return _points(_ring_centres(), RING_SCALE, num, seed)


def _moons_centres() -> np.ndarray:
    """Return points along each moon, shape (2, points, 2)."""
    angles = np.pi * (np.arange(ARC_POINTS) + 0.5) / ARC_POINTS
    upper = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.stack([upper, np.asarray([1.0, 0.5]) - upper])


def _ring_centres() -> np.ndarray:
    """Return one centre per class, shape (8, 1, 2)."""
    angles = 2 * np.pi * np.arange(RING_MODES) / RING_MODES
    return RING_RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, None]


def _points(centres: np.ndarray, scale: float, num: int, seed: int) -> Arrays:
    num = whole(num, "num")
    rng = np.random.default_rng(seed)
    arrays = {}
    for part in ("train", "test"):
        labels = rng.integers(len(centres), size=num)
        places = centres[labels, rng.integers(centres.shape[1], size=num)]
        arrays[f"x_{part}"] = places + scale * rng.standard_normal((num, 2))
        arrays[f"y_{part}"] = labels
    return arrays
