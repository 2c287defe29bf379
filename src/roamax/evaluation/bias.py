"""How far a sampler's long-run distribution is from targets whose answers are known, and from long NUTS.

Chains start from draws of the target, so what is seen is where they drift to, not how fast they get there. Of each
target a few functions are watched: its coordinates, or the predictions of a network.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import check
from roamax.posterior import Posterior
from roamax.samplers.hmc import nuts
from roamax.sampling.loop import unroll
from roamax.sampling.runner import sample
from roamax.types import Batch, Key, Params, Sampler

SamplerOf = Callable[[Posterior], Sampler]


class Target(NamedTuple):
    """A posterior with its data, draws of it (one leading axis), and the functions of a position that are watched."""

    posterior: Posterior
    data: Batch
    draws: Params
    watch: Callable[[Params], jax.Array]


class Bias(NamedTuple):
    """Errors in standard deviations of the target, over the watched functions.

    `mean` is the root mean square error of the mean, `deviation` the geometric mean of the ratio of standard
    deviations, `distance` the mean Wasserstein distance, and `floor` that of as many exact draws from the others:
    what no measurement of this length can see. All are NaN where a chain diverged.
    """

    mean: float
    deviation: float
    distance: float
    floor: float


def gaussian(key: Key, dim: int = 32) -> Target:
    """N(0, C) with correlations .5 ** |i - j|."""
    places = np.arange(dim)
    covariance = 0.5 ** np.abs(places[:, None] - places)
    precision, root = jnp.asarray(np.linalg.inv(covariance), float), jnp.asarray(np.linalg.cholesky(covariance), float)
    return _from_density(lambda x: -0.5 * x @ precision @ x, jax.random.normal(key, (4096, dim)) @ root.T)


def funnel(key: Key, dim: int = 9) -> Target:
    """Neal's funnel, made milder: v ~ N(0, 1), and `dim` numbers ~ N(0, exp(v))."""
    v_key, x_key = jax.random.split(key)
    v = jax.random.normal(v_key, (4096, 1))
    x = jnp.exp(v / 2) * jax.random.normal(x_key, (4096, dim))

    def log_density(position: jax.Array) -> jax.Array:
        v, x = position[0], position[1:]
        return -0.5 * v**2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * dim * v

    return _from_density(log_density, jnp.concatenate([v, x], axis=1))


def mixture(key: Key, dim: int = 4, distance: float = 3.0) -> Target:
    """Two unit Gaussians of equal weight, `distance` apart along each axis divided by sqrt(dim)."""
    side_key, x_key = jax.random.split(key)
    centre = jnp.full(dim, distance / 2 / dim**0.5)
    sides = jnp.where(jax.random.bernoulli(side_key, shape=(4096, 1)), 1.0, -1.0)

    def log_density(x: jax.Array) -> jax.Array:
        return jnp.logaddexp(-0.5 * jnp.sum((x - centre) ** 2), -0.5 * jnp.sum((x + centre) ** 2))

    return _from_density(log_density, sides * centre[None] + jax.random.normal(x_key, (4096, dim)))


def network(key: Key, hidden: int = 8, num_data: int = 40, num_samples: int = 500) -> Target:
    """The predictions of a small network on a noisy sine with a gap, against eight chains of NUTS."""
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


def measure(
    sampler: SamplerOf, target: Target, key: Key, *, num_chains: int = 64, burn_in: int = 2000, num_steps: int = 20_000
) -> Bias:
    """The bias of a sampler on a target, from chains of `num_steps` steps after `burn_in`, on all data."""
    check(num_steps >= 200, "num_steps", "be >= 200", num_steps)
    reference = np.asarray(jax.vmap(target.watch)(target.draws), np.float64)
    start_key, chain_key = jax.random.split(key)
    rows = jax.random.choice(start_key, len(reference), (num_chains,), replace=False)
    starts = jax.tree.map(lambda leaf: leaf[rows], target.draws)
    chains = _run(sampler(target.posterior), target, chain_key, starts, burn_in, num_steps)
    found = np.asarray(chains, np.float64)
    if not np.isfinite(found).all():
        return Bias(np.nan, np.nan, np.nan, np.nan)
    scale = reference.std(axis=0)
    offset = (found.mean(axis=(0, 1)) - reference.mean(axis=0)) / scale
    ratio = found.reshape(-1, found.shape[-1]).std(axis=0) / scale
    half = len(reference) // 2
    return Bias(
        mean=float(np.sqrt(np.mean(offset**2))),
        deviation=float(np.exp(np.mean(np.log(ratio)))),
        distance=_wasserstein(found.reshape(-1, found.shape[-1]), reference),
        floor=_wasserstein(reference[:half], reference[half:]),
    )


def _run(sampler: Sampler, target: Target, key: Key, starts: Params, burn_in: int, num_steps: int) -> jax.Array:
    """What is watched along every chain, at a hundred moments after burn-in."""
    every = num_steps // 100

    def chain(key: Key, start: Params) -> jax.Array:
        def run(state: Any, first: int | jax.Array, count: int) -> Any:
            return unroll(sampler, key, state, lambda step: target.data, count, first=first)[0]

        def moment(state: Any, number: jax.Array) -> tuple[Any, jax.Array]:
            state = run(state, burn_in + number * every, every)
            return state, target.watch(state.position)

        state = run(sampler.init(key, start), 0, burn_in)
        return jax.lax.scan(moment, state, jnp.arange(100))[1]

    count = len(jax.tree.leaves(starts)[0])
    return jax.jit(jax.vmap(chain))(jax.random.split(key, count), starts)


def _wasserstein(found: np.ndarray, reference: np.ndarray) -> float:
    """The mean over columns of the distance between two samples, in standard deviations of the second."""
    levels = (np.arange(1000) + 0.5) / 1000
    gaps = np.abs(np.quantile(found, levels, axis=0) - np.quantile(reference, levels, axis=0)).mean(axis=0)
    return float(np.mean(gaps / reference.std(axis=0)))


def _from_density(log_density: Callable[[jax.Array], jax.Array], draws: jax.Array) -> Target:
    posterior = Posterior(lambda x, batch: jnp.zeros(batch.shape, x.dtype), log_density, 1)
    return Target(posterior, jnp.zeros(1), draws, lambda x: x)
