"""The outer optimizer: Adam on the meta-gradient, clipped to a norm."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from roamax.meta.config import TrainConfig
from roamax.types import MetaParams


class OuterOptimizer(NamedTuple):
    """`init(meta_params)` gives a state; `update(meta_params, state, gradient)` new meta-parameters and state."""

    init: Callable[[MetaParams], Any]
    update: Callable[[MetaParams, Any, MetaParams], tuple[MetaParams, Any]]


@functools.cache
def outer_optimizer(config: TrainConfig, stage: int) -> OuterOptimizer:
    """The optimizer of a stage."""
    import optax

    adam = optax.adam(config.stages[stage].learning_rate, config.beta1, config.beta2)
    transform = optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)

    @jax.jit
    def update(meta_params: MetaParams, state: Any, gradient: MetaParams) -> tuple[MetaParams, Any]:
        # optax mixes integer counts and floats.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = transform.update(gradient, state)
            return optax.apply_updates(meta_params, updates), state

    return OuterOptimizer(transform.init, update)
