"""Many chains at once on a small posterior, with minibatches in the order that the sampler asks for."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from roamax.sampling.batches import Order, ShuffledEpochs
from roamax.sampling.loop import unroll
from roamax.types import Batch, Key, Params, Sampler


def blocks(
    sampler: Sampler,
    data: Batch,
    order: Order,
    key: Key,
    start: Params,
    count: int,
    length: int,
    observe: Callable[[Any], jax.Array],
    *,
    ends: bool = False,
) -> jax.Array:
    """Run one chain, traced: return `observe(state)` for each of `count` blocks of `length` steps.

    It is the mean over the block or, with `ends`, that of its last state.
    """
    state_key, data_key, step_key = jax.random.split(key, 3)
    # No more orders than are needed: those of a window are for long runs.
    epochs = math.ceil(count * length / order.order_steps) if isinstance(order, ShuffledEpochs) else 0
    orders = jax.vmap(lambda e: jax.random.permutation(jax.random.fold_in(data_key, e), order.length))(
        jnp.arange(epochs)
    )

    def batch_at(step: jax.Array) -> Batch:
        if order.batch_size == order.length:
            return data
        rows = order.rows(orders, data_key, step, jnp.int32(0))
        return jax.tree.map(lambda array: array[rows], data)

    def block(state: Any, number: jax.Array) -> tuple[Any, jax.Array]:
        watch = None if ends else lambda taken: observe(taken.after)
        state, seen = unroll(sampler, step_key, state, batch_at, length, first=number * length, observe=watch)
        return state, observe(state) if ends else jnp.mean(seen, axis=0)

    return jax.lax.scan(block, sampler.init(state_key, start), jnp.arange(count))[1]
