"""Backpropagation through the inner loop, over whole unrolls or truncations of them.

It sees all directions at once, where evolution strategies see one per pair. Over long unrolls it explodes, and with
truncations it is biased: a segment's gradient ignores the effect of the meta-parameters on earlier segments.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from roamax.meta.config import Stage
from roamax.meta.inner import Unroll
from roamax.meta.jobs import Job, Result
from roamax.numerics import trees
from roamax.types import Key, MetaParams


class Backpropagation:
    """Truncated backpropagation through time: one unroll per group, differentiated segment by segment."""

    signs = (0,)
    # The step itself, its recomputation, and the derivative of its gradient, which costs about two.
    cost = 4

    def perturbed(self, meta_params: MetaParams, stage: Stage, job: Job) -> MetaParams:
        """Return the meta-parameters as they are."""
        return meta_params

    def advance(
        self, unroll: Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any
    ) -> tuple[Any, jax.Array, MetaParams]:
        """Run one segment of an unroll; return the carry after it, the loss there, and its gradient through it."""
        return _advance(unroll, meta_params, key, data, carry)

    def gradient(
        self, meta_params: MetaParams, stage: Stage, jobs: Sequence[Job], results: Sequence[Result], clip_norm: float
    ) -> MetaParams | None:
        """Return the clipped gradient: one that explodes would drown the others, though it is the least reliable."""
        gradient = trees.masked(results[0].gradient, stage.layers)
        norm = math.sqrt(sum(float(np.sum(np.square(leaf, dtype=np.float64))) for leaf in jax.tree.leaves(gradient)))
        return trees.linear((min(1.0, clip_norm / max(norm, 1e-30)), gradient)) if math.isfinite(norm) else None


@partial(jax.jit, static_argnames="unroll")
def _advance(
    unroll: Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any
) -> tuple[Any, jax.Array, MetaParams]:
    def loss_and_carry(meta_params: MetaParams) -> tuple[jax.Array, Any]:
        carry_after, loss = unroll.advance(meta_params, key, data, carry)
        return loss, carry_after

    (loss, carry_after), gradient = jax.value_and_grad(loss_and_carry, has_aux=True)(meta_params)
    return carry_after, loss, gradient


ESTIMATOR = Backpropagation()
