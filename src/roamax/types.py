"""The types that all other modules share: parameters, batches, keys, samplers."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax

from roamax.errors import check

Params: TypeAlias = Any
"""Any pytree of floating-point arrays."""
Batch: TypeAlias = Any
"""A pytree of arrays with a common leading length, structured like the data."""
Key: TypeAlias = jax.Array
MetaParams: TypeAlias = Any
"""The weights of a learned sampler: a pytree of arrays."""
Schedule: TypeAlias = Callable[[jax.Array], jax.Array]
"""A scalar as a function of the step, counted from 0."""
Scalar: TypeAlias = float | Schedule


class NoData(NamedTuple):
    """The batch of a run without data: one row of nothing."""

    row: Any


class Weights(NamedTuple):
    """The weights of a learned sampler, their card, and their source."""

    meta_params: MetaParams
    card: Mapping[str, Any] = {}
    source: str = "meta_params"

    @classmethod
    def of(cls, meta_params: Any) -> "Weights":
        """Return `meta_params` as `Weights`; names and files are resolved by `roamax.pretrained` instead."""
        rule = "be weights here; names and files are read by `roamax.pretrained` and the samplers in `roamax`"
        check(not isinstance(meta_params, str | PathLike), "meta_params", rule, repr(meta_params))
        return meta_params if isinstance(meta_params, Weights) else cls(meta_params)

    def settings(self, defaults: Mapping[str, Any], **given: Any) -> dict[str, Any]:
        """Return the given settings; those that are None come from the card or, failing that, from `defaults`."""
        return {name: self.card.get(name, defaults[name]) if value is None else value for name, value in given.items()}


class State(Protocol):
    """All that the next step needs. Each sampler defines its own, with a position and a step count."""

    @property
    def position(self) -> Params: ...

    @property
    def step(self) -> jax.Array: ...


class Info(NamedTuple):
    """Diagnostics of one step.

    `energy` is that of the position before the step, on full-data scale; `acceptance` is the Metropolis acceptance
    probability, 1 for samplers without a Metropolis test; `divergent` tells whether the integrator of HMC failed.
    """

    energy: jax.Array
    acceptance: jax.Array | float = 1.0
    divergent: jax.Array | bool = False


class Sampler(NamedTuple):
    """A Markov chain as two pure functions.

    `init` makes a state from a position; `step` advances it by one batch. `collect`, if not None, tells from the number
    of steps taken whether the position may be kept as a draw. `settings` holds the sampler's name and hyperparameters,
    to be recorded in run folders. `sweeps` asks for the minibatches of every epoch in order and then in reverse.
    `posterior` is the posterior that it samples, which is part of a run's identity.
    """

    init: Callable[[Key, Params], Any]
    step: Callable[[Key, Any, Batch], tuple[Any, Info]]
    collect: Callable[[int], bool] | None = None
    settings: Mapping[str, Any] = {}
    sweeps: bool = False
    posterior: Any = None


class LearnedSampler(NamedTuple):
    """A family of samplers, indexed by meta-parameters.

    `init` draws meta-parameters; `bind` returns the sampler for given meta-parameters and posterior. `bind` is
    traceable, so that meta-parameters may be perturbed or differentiated under `jit`.
    """

    init: Callable[[Key], MetaParams]
    bind: Callable[[MetaParams, Any], Sampler]
