"""The order of samplers' bias in the step size: the slope of log bias vs. log step, on a regression in minibatches.

Chains start from the exact posterior. The bias is that of the variance, relative to the exact one and as a mean over
directions, where pairs of sweeps over the minibatches end.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import roamax
from benchmarks.paths import blocks
from roamax.posterior import Posterior
from roamax.sampling.batches import Order, ShuffledEpochs, WithReplacement
from roamax.types import Key, Sampler

BATCHES, BATCH_SIZE, DIM = 2, 24, 2
NUM_DATA = BATCHES * BATCH_SIZE
WARM_UP = 30
"""The pairs of sweeps before chains are looked at."""
SHORT, MIDDLE, LONG = (0.05, 0.08, 0.13, 0.2), (0.2, 0.28, 0.4, 0.57), (0.4, 0.57, 0.8, 1.13)
"""Step sizes in units of the deviation along the narrowest axis or, without momentum, of its square."""


class Problem(NamedTuple):
    """The posterior of y ~ N(x theta, 1) with a prior N(0, I), its data, mean and covariance."""

    posterior: Posterior
    data: tuple[jax.Array, jax.Array]
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def unit(self) -> float:
        """The deviation along the narrowest axis."""
        return float(np.linalg.eigvalsh(self.covariance)[0]) ** 0.5


def regression() -> Problem:
    """Return a regression whose minibatches differ much."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_DATA, DIM))
    y = x @ rng.normal(size=DIM) + rng.normal(size=NUM_DATA)
    covariance = np.linalg.inv(np.eye(DIM) + x.T @ x)

    def log_likelihood(theta: jax.Array, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        return -0.5 * (batch[1] - batch[0] @ theta) ** 2

    posterior = Posterior(log_likelihood, lambda theta: -0.5 * jnp.sum(theta**2), NUM_DATA)
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    return Problem(posterior, data, covariance @ x.T @ y, covariance)


PROBLEM = regression()
UNIT = PROBLEM.unit


class Entry(NamedTuple):
    """A sampler by its step size in units, the minibatches it takes, and the sizes to compare."""

    make: Callable[[Any], Sampler]
    order: Order
    sizes: tuple[float, ...]


def with_momentum(name: str, order: Order, sizes: tuple[float, ...] = SHORT, **settings: Any) -> Entry:
    """Return the entry of a sampler with momentum, at a friction of 1 per unit."""

    def make(size: Any) -> Sampler:
        build = getattr(roamax, name)
        return build(PROBLEM.posterior, step_size=lambda step: size * UNIT, friction=1 / UNIT, **settings)

    return Entry(make, order, sizes)


def without_momentum(name: str, order: Order, **settings: Any) -> Entry:
    """Return the entry of a sampler without momentum."""

    def make(size: Any) -> Sampler:
        return getattr(roamax, name)(PROBLEM.posterior, step_size=lambda step: size * UNIT**2, **settings)

    return Entry(make, order, SHORT)


REPLACED, SHUFFLED = WithReplacement(NUM_DATA, BATCH_SIZE), ShuffledEpochs(NUM_DATA, BATCH_SIZE)
SWEPT, WHOLE = ShuffledEpochs(NUM_DATA, BATCH_SIZE, sweeps=True), ShuffledEpochs(NUM_DATA, NUM_DATA)
ENTRIES: dict[str, Entry] = {
    "SGLD, drawn with replacement": without_momentum("sgld", REPLACED),
    "Entropy-MCMC, drawn with replacement": without_momentum("entropy_mcmc", REPLACED, smoothing=0.3 * UNIT**2),
    "SGHMC, drawn with replacement": with_momentum("sghmc", REPLACED),
    "SGHMC, shuffled": with_momentum("sghmc", SHUFFLED, MIDDLE),
    "SGNHT, drawn with replacement": with_momentum("sgnht", REPLACED, MIDDLE),
    "SMILE, drawn with replacement": with_momentum("smile", REPLACED, adaptation_steps=0),
    "SMS-UBU, drawn with replacement": with_momentum("sms_ubu", REPLACED),
    "SMS-UBU, shuffled": with_momentum("sms_ubu", SHUFFLED, MIDDLE),
    "SMS-UBU, in sweeps": with_momentum("sms_ubu", SWEPT, MIDDLE),
    "SMS-UBU, all data": with_momentum("sms_ubu", WHOLE, LONG),
}


class Slope(NamedTuple):
    """The biases at each step size, their standard errors, and the slope with its own."""

    sizes: tuple[float, ...]
    biases: np.ndarray
    errors: np.ndarray
    slope: float
    slope_error: float

    @property
    def is_clear(self) -> bool:
        """Whether at least three of the biases are seen, and of one sign."""
        seen = self.biases[np.abs(self.biases) > 2 * self.errors]
        return len(seen) >= 3 and len(set(np.sign(seen))) == 1


def bias(entry: Entry, key: Key, num_chains: int = 1000, pairs: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Measure the biases of an entry at its step sizes; return them and their standard errors."""
    root = jnp.asarray(np.linalg.cholesky(PROBLEM.covariance), jnp.float32)
    back, mean = jnp.linalg.inv(root), jnp.asarray(PROBLEM.mean, jnp.float32)

    def excess(state: Any) -> jax.Array:
        return jnp.mean((back @ (state.position - mean)) ** 2)[None] - 1

    def chain(size: jax.Array, key: Key) -> jax.Array:
        start_key, chain_key = jax.random.split(key)
        start = mean + root @ jax.random.normal(start_key, (DIM,))
        seen = blocks(entry.make(size), PROBLEM.data, entry.order, chain_key, start, WARM_UP + pairs, 2 * BATCHES,
                      excess, ends=True)  # fmt: skip
        return jnp.mean(seen[WARM_UP:])

    run = jax.jit(jax.vmap(jax.vmap(chain, (None, 0)), (0, None)))
    found = np.asarray(run(jnp.asarray(entry.sizes), jax.random.split(key, num_chains)), np.float64)
    return found.mean(axis=1), found.std(axis=1, ddof=1) / num_chains**0.5


def order(entry: Entry, key: Key, **lengths: int) -> Slope:
    """Measure the biases of an entry and fit their slope, weighing each by its error."""
    biases, errors = bias(entry, key, **lengths)
    x, y, weights = np.log(entry.sizes), np.log(np.abs(biases)), (biases / errors) ** 2
    offset = x - np.average(x, weights=weights)
    precision = np.sum(weights * offset**2)
    return Slope(entry.sizes, biases, errors, float(np.sum(weights * offset * y) / precision), float(precision**-0.5))


def rows(seed: int) -> Iterator[dict[str, Any]]:
    """Measure every entry, one row each."""
    for number, (name, entry) in enumerate(ENTRIES.items()):
        found = order(entry, jax.random.fold_in(jax.random.key(seed), number))
        yield {
            "sampler": name,
            "steps": " ".join(f"{size:g}" for size in found.sizes),
            "first": float(found.biases[0]),
            "last": float(found.biases[-1]),
            "error": float(found.errors.max()),
            # Where the sign changes, or no bias is seen, there is no power law to fit.
            "slope": f"{found.slope:.2f} ± {found.slope_error:.2f}" if found.is_clear else "–",
        }
