"""Antithetic evolution strategies.

They estimate the gradient of the smoothed loss E L(phi + eta), eta ~ N(0, sigma^2 I), from losses alone: a pair of
unrolls that differ only in the sign of eta gives

    g = xi (L(phi + eta) - L(phi - eta)) / (2 sigma^2),

where xi is the sum of the perturbations in the unroll so far. Over a whole unroll, that is eta itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from roamax.meta import inner
from roamax.meta.config import Stage
from roamax.meta.jobs import Job, Result, split_key
from roamax.numerics import trees
from roamax.types import Key, MetaParams


@dataclass(frozen=True)
class EvolutionStrategies:
    """Evolution strategies; with `fresh_noise`, each truncation of an unroll has its own perturbation."""

    fresh_noise: bool = False
    signs: tuple[int, ...] = (1, -1)
    cost: int = 1

    def perturbed(self, meta_params: MetaParams, stage: Stage, job: Job) -> MetaParams:
        """Return phi + sign * eta; tensors whose names do not contain `stage.layers` stay as they are."""
        if job.sign == 0:
            return meta_params
        scale, number = jnp.asarray(job.sign * stage.sigma, float), jnp.asarray(self._number(job), jnp.int32)
        return _perturbed(meta_params, split_key(job.key)[0], scale, number, stage.layers)

    def advance(
        self, unroll: inner.Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any
    ) -> tuple[Any, jax.Array, None]:
        """Run one segment of an unroll; return the carry after it and the loss there."""
        return *inner.advance(unroll, meta_params, key, data, carry), None

    def gradient(
        self, meta_params: MetaParams, stage: Stage, jobs: Sequence[Job], results: Sequence[Result], clip_norm: float
    ) -> MetaParams:
        """Return xi (L+ - L-) / (2 sigma^2). Perturbations are recomputed from the key: no worker sends them."""
        plus, minus = (result.loss for result in results)
        scalars = jnp.asarray(plus - minus, float), jnp.asarray(stage.sigma, float)
        count = jnp.asarray(self._number(jobs[0]) + 1, jnp.int32)
        return _gradient(meta_params, split_key(jobs[0].key)[0], *scalars, count, stage.layers)

    def _number(self, job: Job) -> int:
        """Return the number of the job's perturbation, among those of its key."""
        return job.truncation if self.fresh_noise else 0


@partial(jax.jit, static_argnames="layers")
def _perturbed(meta_params: MetaParams, key: Key, scale: jax.Array, number: jax.Array, layers: str) -> MetaParams:
    return trees.linear((1.0, meta_params), (scale, _noise(meta_params, key, number, layers)))


@partial(jax.jit, static_argnames="layers")
def _gradient(
    meta_params: MetaParams, key: Key, difference: jax.Array, sigma: jax.Array, count: jax.Array, layers: str
) -> MetaParams:
    def add(number: jax.Array, total: MetaParams) -> MetaParams:
        return trees.linear((1.0, total), (sigma, _noise(meta_params, key, number, layers)))

    total = jax.lax.fori_loop(0, count, add, trees.zeros_like(meta_params))
    return trees.linear((difference / (2 * sigma**2), total))


def _noise(meta_params: MetaParams, key: Key, number: jax.Array, layers: str) -> MetaParams:
    return trees.masked(trees.normal_like(jax.random.fold_in(key, number), meta_params), layers)


ESTIMATOR = EvolutionStrategies()
