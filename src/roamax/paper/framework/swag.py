"""SWAG (Maddox et al., 2019): a Gaussian through snapshots of an optimizer, and draws from it."""

import jax
import numpy as np

from roamax.sampling.draws import Draws
from roamax.types import Key


def swag(key: Key, snapshots: Draws, *, num_samples: int, scale: float) -> Draws:
    """Return draws from the Gaussian that has the mean of the snapshots and half of each of two covariances.

        theta = mean + sqrt(scale) [s z_1 + D z_2 / sqrt(K - 1)] / sqrt(2)

    with s the standard deviation of each number over the K snapshots, and D their deviations from the mean.

    Args:
        key: The key of the draws.
        snapshots: At least two positions of one chain.
        num_samples: The number of draws.
        scale: The factor of the covariance; 0 is the average of the weights (SWA), a single draw.

    Returns:
        The draws.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    positions = jax.tree.map(lambda leaf: np.asarray(leaf)[0], snapshots.positions)
    count = num_samples if scale > 0 else 1
    z = rng.standard_normal((count, snapshots.num_samples), np.float32)

    def gaussian(leaf: np.ndarray) -> np.ndarray:
        mean, deviations = leaf.mean(axis=0), leaf - leaf.mean(axis=0)
        apart = leaf.std(axis=0) * rng.standard_normal((count, *mean.shape), np.float32)
        together = np.tensordot(z, deviations, axes=1) / np.sqrt(len(leaf) - 1)
        return (mean + np.sqrt(scale / 2) * (apart + together)).astype(leaf.dtype)[None]

    return Draws.from_positions(jax.tree.map(gaussian, positions))
