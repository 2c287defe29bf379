"""The distance of a sampler's stationary distribution from a known target.

Chains start from draws of the target and see exact gradients, so what is measured is the bias of the sampler at its
settings, not how fast it converges.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import InputError, check, whole
from roamax.evaluation import targets
from roamax.evaluation.targets import Target
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.sampling.loop import unroll
from roamax.types import Key, Params, Sampler

SamplerOf = Callable[[Posterior], Sampler]
BIAS_MOMENTS = 100
MOST_MOMENTS = 5000
"""The most positions per chain that are looked at."""


class Bias(NamedTuple):
    """Errors in standard deviations of the target, over the watched functions.

    `mean` is the root mean square error of the mean, `deviation` the geometric mean of the ratio of standard
    deviations, `distance` the mean Wasserstein distance, and `floor` that between two halves of the exact draws, below
    which this measurement resolves nothing. All are NaN if a chain diverged.
    """

    mean: float
    deviation: float
    distance: float
    floor: float


def bias(
    sampler: SamplerOf, target: Target, key: Key, *, num_chains: int = 64, burn_in: int = 2000, num_steps: int = 20_000
) -> Bias:
    """Measure the bias of a sampler on any target.

    Args:
        sampler: A function that makes the sampler of a posterior.
        target: The target, with draws of it to compare with.
        key: The key of the chains.
        num_chains: The number of chains.
        burn_in: The number of steps before the chains are looked at.
        num_steps: The number of steps per chain after that, at least 200.

    Returns:
        The errors.
    """
    num_steps = whole(num_steps, "num_steps", 200)
    reference = np.asarray(jax.vmap(target.watch)(target.draws), np.float64)
    found = long_run(sampler, target, key, num_chains, burn_in, num_steps, BIAS_MOMENTS)
    if not np.isfinite(found).all():
        return Bias(np.nan, np.nan, np.nan, np.nan)
    pooled = found.reshape(-1, found.shape[-1])
    scale = reference.std(axis=0)
    offset = (found.mean(axis=(0, 1)) - reference.mean(axis=0)) / scale
    half = len(reference) // 2
    return Bias(
        mean=float(np.sqrt(np.mean(offset**2))),
        deviation=float(np.exp(np.mean(np.log(pooled.std(axis=0) / scale)))),
        distance=_wasserstein(pooled, reference),
        floor=_wasserstein(reference[:half], reference[half:]),
    )


def stationarity(
    sampler: SamplerOf,
    key: Key,
    *,
    mean: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
    num_data: int = 1,
    num_chains: int = 16,
    burn_in: int = 1000,
    num_steps: int = 5000,
) -> dict[str, float]:
    """Measure how far a sampler's stationary distribution is from a Gaussian target.

        stationarity(lambda posterior: roamax.l2e(posterior, weights, step_size=0.01), jax.random.key(0))

    Gradients are exact and chains start from draws of the target, so the result is the bias of the sampler itself at
    its settings.

    Args:
        sampler: A function that makes the sampler of a posterior, here N(mean, covariance) over one vector.
        key: The key of the chains.
        mean: The mean; zero by default.
        covariance: The covariance; by default that of 64 numbers with correlations .5 ** |i - j|.
        num_data: The number of data that the posterior claims to have.
        num_chains: The number of chains.
        burn_in: The number of steps before moments are taken.
        num_steps: The number of steps per chain after that.

    Returns:
        In units of the target's standard deviations: `mean_error` and `covariance_error`, the largest errors of an
        entry; `variance_ratio`, the mean ratio of a variance to the true one; and `monte_carlo_error`, the standard
        error of an entry of the mean, below which nothing can be resolved. All are NaN if a chain diverged.
    """
    covariance = targets.correlated(64) if covariance is None else np.asarray(covariance, float)
    mean = np.zeros(len(covariance)) if mean is None else np.asarray(mean, float)
    square = covariance.shape == (len(mean), len(mean))
    check(square, "covariance", f"be square with the length of `mean`, {len(mean)}", f"shape {covariance.shape}")
    num_chains, num_steps = whole(num_chains, "num_chains", 2), whole(num_steps, "num_steps", 2)
    target_key, chain_key = jax.random.split(key)
    target = targets.gaussian(target_key, mean=mean, covariance=covariance, num_data=num_data, num_samples=num_chains)
    found = long_run(sampler, target, chain_key, num_chains, burn_in, num_steps)
    errors = ("mean_error", "covariance_error", "variance_ratio", "monte_carlo_error")
    if not np.isfinite(found).all():
        return dict.fromkeys(errors, np.nan)
    deviation = np.sqrt(np.diag(covariance))
    means = (found.mean(axis=1) - mean) / deviation
    spread = np.atleast_2d(np.cov(found.reshape(-1, len(mean)), rowvar=False, bias=True))
    values = (
        np.max(np.abs(means.mean(axis=0))),
        np.max(np.abs(spread - covariance) / np.outer(deviation, deviation)),
        np.mean(np.diag(spread) / np.diag(covariance)),
        np.max(means.std(axis=0, ddof=1)) / np.sqrt(num_chains),
    )
    return {name: float(value) for name, value in zip(errors, values, strict=True)}


def long_run(
    sampler_of: SamplerOf,
    target: Target,
    key: Key,
    num_chains: int,
    burn_in: int,
    num_steps: int,
    most_moments: int = MOST_MOMENTS,
) -> np.ndarray:
    """Return the watched functions along every chain after burn-in, an array (chain, moment, watched function)."""
    sampler = sampler_of(target.posterior)
    every = _between_moments(sampler, burn_in, num_steps, max(1, num_steps // most_moments))
    start_key, chain_key = jax.random.split(key)
    rows = jax.random.choice(start_key, len(jax.tree.leaves(target.draws)[0]), (num_chains,), replace=False)

    def chain(key: Key, start: Params) -> jax.Array:
        def run(state: Any, first: int | jax.Array, count: int) -> Any:
            return unroll(sampler, key, state, lambda step: target.data, count, first=first)[0]

        def moment(state: Any, number: jax.Array) -> tuple[Any, jax.Array]:
            state = run(state, burn_in + number * every, every)
            return state, target.watch(state.position)

        state = run(sampler.init(key, start), 0, burn_in)
        return jax.lax.scan(moment, state, jnp.arange(num_steps // every))[1]

    found = jax.jit(jax.vmap(chain))(jax.random.split(chain_key, num_chains), trees.at(target.draws, rows))
    return np.asarray(found, np.float64)


def _between_moments(sampler: Sampler, burn_in: int, num_steps: int, least: int) -> int:
    """Return the number of steps between moments: at least `least`, and such that all are where draws may be taken."""
    if sampler.collect is None:
        return least
    for every in range(least, num_steps + 1):
        if all(sampler.collect(burn_in + count) for count in range(every, num_steps + 1, every)):
            return every
    raise InputError(f"`num_steps` must be enough for draws at equal distances; got {num_steps}.")


def _wasserstein(found: np.ndarray, reference: np.ndarray) -> float:
    """Compute the mean over columns of the distance between two samples, in standard deviations of the second."""
    levels = (np.arange(1000) + 0.5) / 1000
    gaps = np.abs(np.quantile(found, levels, axis=0) - np.quantile(reference, levels, axis=0)).mean(axis=0)
    return float(np.mean(gaps / reference.std(axis=0)))
