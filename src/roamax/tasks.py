"""Tasks: data, model, prior and batch size bound into a posterior, an initial position and an `apply`."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from roamax.posterior import Posterior
from roamax.types import Batch, Key, Params


class Task(NamedTuple):
    """One inference problem, ready for any sampler.

    `train` is what the sampler sees; `valid` is held out from it, for the meta-loss and for tuning;
    `test` is for reports only. Each is `(x, y)`.
    """

    name: str
    posterior: Posterior
    init: Callable[[Key], Params]
    apply: Callable[[Params, jax.Array], jax.Array]
    train: Batch
    valid: Batch
    test: Batch
    batch_size: int
