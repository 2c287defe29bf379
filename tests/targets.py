"""Posteriors whose answers are known exactly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import Posterior


class Target(NamedTuple):
    """A Gaussian posterior over one vector: `position` is {"theta": (d,)}."""

    posterior: Posterior
    data: jax.Array | tuple[jax.Array, jax.Array]
    mean: np.ndarray
    covariance: np.ndarray


def gaussian(mean, covariance) -> Target:
    """N(mean, covariance) as a prior, with one observation that says nothing."""
    mean, covariance = np.atleast_1d(np.asarray(mean, np.float32)), np.atleast_2d(np.asarray(covariance, np.float32))
    precision = jnp.asarray(np.linalg.inv(covariance))

    def log_prior(params):
        offset = params["theta"] - jnp.asarray(mean, params["theta"].dtype)
        return -0.5 * offset @ jnp.asarray(precision, offset.dtype) @ offset

    posterior = Posterior(lambda params, batch: jnp.zeros(batch.shape, params["theta"].dtype), log_prior, 1)
    return Target(posterior, jnp.zeros(1), mean, covariance)


def linear_regression(seed: int = 0, num_data: int = 40, dim: int = 3, noise: float = 1.0) -> Target:
    """y ~ N(x theta, noise^2) with a prior N(0, I)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_data, dim)).astype(np.float32)
    y = (x @ rng.normal(size=dim) + noise * rng.normal(size=num_data)).astype(np.float32)
    covariance = np.linalg.inv(np.eye(dim) + x.T @ x / noise**2)
    mean = covariance @ x.T @ y / noise**2

    def log_likelihood(params, batch):
        x, y = batch
        return -0.5 * ((y - x @ params["theta"]) / noise) ** 2

    posterior = Posterior(log_likelihood, lambda params: -0.5 * jnp.sum(params["theta"] ** 2), num_data)
    return Target(posterior, (jnp.asarray(x), jnp.asarray(y)), mean, covariance)
