"""The work of contestants: networks on images of noise, which take the same time as real images."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import models, priors
from roamax.likelihoods import categorical
from roamax.posterior import Posterior
from roamax.samplers.learned.l2e import WIDTHS
from roamax.sampling.loop import unroll
from roamax.types import Batch, Params, Sampler

BATCH = 128
SETTINGS: dict[str, Any] = {"step_size": 1e-4, "friction": 100.0}


class Work(NamedTuple):
    """A posterior, an initial position, and data whose first examples are a batch."""

    posterior: Posterior
    position: Params
    apply: Callable[[Params, jax.Array], jax.Array]
    data: tuple[jax.Array, jax.Array]

    @property
    def batch(self) -> tuple[jax.Array, jax.Array]:
        """Return one batch."""
        x, y = self.data
        return x[:BATCH], y[:BATCH]


def network(name: str, shape: Sequence[int], count: int = BATCH, num_data: int = 50_000, **options: Any) -> Work:
    """Return a network of the zoo on `count` images of noise."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random((count, *shape), np.float32))
    y = jnp.asarray(rng.integers(0, 10, count), jnp.int32)
    model = models.get(name, **options)
    posterior = Posterior(categorical(model.apply), priors.gaussian(variance=0.1), num_data)
    return Work(posterior, model.init(jax.random.key(0), x[:1]), model.apply, (x, y))


def in_scan(sampler: Sampler, position: Params, batch: Batch, steps: int) -> Callable[[], Any]:
    """Return a turn of `steps` steps on one batch, compiled as one loop, that resumes where the last one ended."""

    @partial(jax.jit, donate_argnums=0)
    def run(state: Any, key: jax.Array) -> Any:
        return unroll(sampler, key, state, lambda step: batch, steps)[0]

    return turns(run, sampler.init(jax.random.key(0), jax.tree.map(jnp.copy, position)))


def turns(run: Callable[[Any, jax.Array], Any], state: Any) -> Callable[[], Any]:
    """Return a turn of a function of a state and a key, with the state kept from turn to turn."""
    kept = {"state": state, "turn": 0}

    def turn() -> None:
        kept["turn"] += 1
        kept["state"] = jax.block_until_ready(run(kept["state"], jax.random.key(kept["turn"])))

    return turn


def network_flops(widths: Sequence[int] = WIDTHS, passes: int = 2) -> int:
    """Count the learned network's operations per parameter: a product and a sum per weight and pass."""
    return passes * 2 * sum(a * b for a, b in pairwise(widths))
