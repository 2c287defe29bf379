"""Targets with reference draws, exact or from long runs of NUTS."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.posterior import Posterior
from roamax.samplers.hmc import nuts
from roamax.sampling.runner import sample
from roamax.types import Batch, Key, Params

NUM_SAMPLES = 4096
"""The number of exact draws of a target."""


class Target(NamedTuple):
    """A posterior with its data, reference draws (one leading axis), and the functions of a position to watch."""

    posterior: Posterior
    data: Batch
    draws: Params
    watch: Callable[[Params], jax.Array]


def correlated(dim: int) -> np.ndarray:
    """Return a covariance matrix with unit variances and correlations .5 ** |i - j|."""
    places = np.arange(dim)
    return 0.5 ** np.abs(places[:, None] - places)


def gaussian(
    key: Key,
    dim: int = 32,
    *,
    mean: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
    num_data: int = 1,
    num_samples: int = NUM_SAMPLES,
) -> Target:
    """Return N(mean, covariance), as the posterior of `num_data` data; by default N(0, `correlated(dim)`)."""
    covariance = correlated(dim) if covariance is None else covariance
    centre = jnp.zeros(len(covariance)) if mean is None else jnp.asarray(mean, float)
    precision, root = jnp.asarray(np.linalg.inv(covariance), float), jnp.asarray(np.linalg.cholesky(covariance), float)

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * (x - centre) @ precision @ (x - centre)

    draws = centre[None] + jax.random.normal(key, (num_samples, len(centre))) @ root.T
    return _from_density(log_density, draws, num_data)


def funnel(key: Key, dim: int = 9) -> Target:
    """Return a mild version of Neal's funnel: v ~ N(0, 1), and `dim` numbers ~ N(0, exp(v))."""
    v_key, x_key = jax.random.split(key)
    v = jax.random.normal(v_key, (NUM_SAMPLES, 1))
    x = jnp.exp(v / 2) * jax.random.normal(x_key, (NUM_SAMPLES, dim))

    def log_density(position: jax.Array) -> jax.Array:
        v, x = position[0], position[1:]
        return -0.5 * v**2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * dim * v

    return _from_density(log_density, jnp.concatenate([v, x], axis=1))


def mixture(key: Key, dim: int = 4, distance: float = 3.0) -> Target:
    """Return two unit Gaussians of equal weight whose centres are `distance` apart."""
    side_key, x_key = jax.random.split(key)
    centre = jnp.full(dim, distance / 2 / dim**0.5)
    sides = jnp.where(jax.random.bernoulli(side_key, shape=(NUM_SAMPLES, 1)), 1.0, -1.0)

    def log_density(x: jax.Array) -> jax.Array:
        return jnp.logaddexp(-0.5 * jnp.sum((x - centre) ** 2), -0.5 * jnp.sum((x + centre) ** 2))

    return _from_density(log_density, sides * centre[None] + jax.random.normal(x_key, (NUM_SAMPLES, dim)))


def network(key: Key, hidden: int = 8, num_data: int = 40, num_samples: int = 500) -> Target:
    """Return the predictions of a small network on a noisy sine with a gap, with eight chains of NUTS as reference."""
    x = np.concatenate([np.linspace(-2, -0.6, num_data // 2), np.linspace(0.4, 2, num_data - num_data // 2)])
    noise = np.asarray(jax.random.normal(jax.random.fold_in(key, 0), x.shape))
    data = jnp.asarray(x[:, None], float), jnp.asarray(np.sin(2 * x) + 0.2 * noise, float)

    def apply(params: Params, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ params["w"] + params["b"][None]) @ params["v"]

    def log_likelihood(params: Params, batch: Batch) -> jax.Array:
        return -0.5 * ((batch[1] - apply(params, batch[0])) / 0.2) ** 2

    def log_prior(params: Params) -> jax.Array:
        return -0.5 * sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), start=jnp.zeros(()))

    def init(key: Key) -> Params:
        keys = jax.random.split(key, 3)
        shapes = {"w": (1, hidden), "b": (hidden,), "v": (hidden,)}
        return {name: jax.random.normal(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

    posterior = Posterior(log_likelihood, log_prior, num_data)
    reference = nuts(posterior, step_size=0.01, adaptation_steps=500)
    draws = sample(jax.random.fold_in(key, 1), reference, init, data, num_samples=num_samples, num_chains=8)
    pooled = jax.tree.map(lambda leaf: jnp.asarray(leaf.reshape(-1, *leaf.shape[2:])), draws.positions)
    probe = jnp.linspace(-3, 3, 25)[:, None]
    return Target(posterior, data, pooled, lambda params: apply(params, probe))


TARGETS: dict[str, Callable[[Key], Target]] = {
    "Gaussian": gaussian,
    "funnel": funnel,
    "mixture": mixture,
    "network": network,
}


def _from_density(log_density: Callable[[jax.Array], jax.Array], draws: jax.Array, num_data: int = 1) -> Target:
    posterior = Posterior(lambda x, batch: jnp.zeros(batch.shape, x.dtype), log_density, num_data)
    return Target(posterior, jnp.zeros(1), draws, lambda x: x)
