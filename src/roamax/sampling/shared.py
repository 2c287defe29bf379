"""Samplers whose numbers are arguments of their program: one with another step size or prior compiles nothing."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.posterior import Posterior
from roamax.types import Batch, Key, Params, Sampler


class Kind(NamedTuple):
    """All that determines a sampler's program; samplers of equal kinds differ in their numbers alone."""

    make: Callable[..., Sampler]
    """A function of a posterior and settings."""
    log_likelihood: Callable[[Params, Batch], jax.Array]
    make_prior: Callable[..., Callable[[Params], jax.Array]]
    num_data: int
    fixed: tuple[tuple[str, Any], ...]
    """Settings that shape the program, and are hashable."""


def shared(sampler: Sampler, kind: Kind, numbers: Mapping[str, float], prior: Mapping[str, float]) -> Sampler:
    """Return a sampler with its numbers as arguments of a program that serves all samplers of its kind.

    Args:
        sampler: The sampler of that kind with these numbers.
        kind: What it has in common with others.
        numbers: Its other settings.
        prior: Those of its prior.
    """
    values = jax.tree.map(lambda value: np.asarray(value, jnp.result_type(float)), (dict(numbers), dict(prior)))
    return sampler._replace(step=jax.tree_util.Partial(_step(kind), *values))


@lru_cache(maxsize=64)
def _step(kind: Kind) -> Callable[..., Any]:
    def step(numbers: Mapping[str, jax.Array], prior: Mapping[str, jax.Array], key: Key, state: Any, batch: Batch):
        posterior = Posterior(kind.log_likelihood, kind.make_prior(**prior), kind.num_data)
        return kind.make(posterior, **numbers, **dict(kind.fixed)).step(key, state, batch)

    return step
