"""Truncated backpropagation through the inner loop.

It sees all directions at once, where evolution strategies see one for each pair. Over long unrolls it blows up,
and truncated it is biased: a segment's gradient knows nothing of what the meta-parameters did before it.
"""

from functools import partial
from typing import Any

import jax

from roamax.meta.inner import Unroll
from roamax.types import Key, MetaParams

COST = 4
"""Gradient evaluations that a step of backpropagation costs: the step itself, once more to rematerialise it, and the
derivative of its gradient, which costs about two."""


@partial(jax.jit, static_argnames="unroll")
def advance(
    unroll: Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any
) -> tuple[Any, jax.Array, MetaParams]:
    """One segment of an unroll: the carry after it, the loss there, and its gradient through this segment."""

    def loss_and_carry(meta_params: MetaParams) -> tuple[jax.Array, Any]:
        carry_after, loss = unroll.advance(meta_params, key, data, carry)
        return loss, carry_after

    (loss, carry_after), gradient = jax.value_and_grad(loss_and_carry, has_aux=True)(meta_params)
    return carry_after, loss, gradient
