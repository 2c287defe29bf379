"""The words that every other module speaks: parameters, batches, keys, samplers."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax

from roamax.errors import check

Params: TypeAlias = Any
"""Any pytree of floating-point arrays."""
Batch: TypeAlias = Any
"""A pytree of arrays with one leading length, of the same structure as the data."""
Key: TypeAlias = jax.Array
MetaParams: TypeAlias = Any
"""The weights of a learned sampler: a pytree of arrays."""
Schedule: TypeAlias = Callable[[jax.Array], jax.Array]
"""A scalar as a function of the step, which counts from 0."""
Scalar: TypeAlias = float | Schedule


class Weights(NamedTuple):
    """The weights of a learned sampler, the card that came with them, and where they are from."""

    meta_params: MetaParams
    card: Mapping[str, Any] = {}
    source: str = "meta_params"

    @classmethod
    def of(cls, meta_params: Any) -> "Weights":
        """Return `meta_params` as `Weights`. Names and files are for `roamax.pretrained`: samplers read none."""
        rule = "be weights here; names and files are read by `roamax.pretrained` and the samplers in `roamax`"
        check(not isinstance(meta_params, str | PathLike), "meta_params", rule, repr(meta_params))
        return meta_params if isinstance(meta_params, Weights) else cls(meta_params)

    def settings(self, defaults: Mapping[str, Any], **given: Any) -> dict[str, Any]:
        """Return settings as given, or else (where None) from the card, or else the defaults."""
        return {name: self.card.get(name, defaults[name]) if value is None else value for name, value in given.items()}


class State(Protocol):
    """What the next step needs. Every sampler has its own; each has a position and counts its steps."""

    @property
    def position(self) -> Params: ...

    @property
    def step(self) -> jax.Array: ...


class Info(NamedTuple):
    """What a person may want to see of a step.

    `energy` is that of the position the step started from, on full-data scale; `acceptance` is the
    Metropolis acceptance probability, 1 for samplers without such a test.
    """

    energy: jax.Array
    acceptance: jax.Array | float = 1.0


class Sampler(NamedTuple):
    """A Markov chain as two pure functions.

    `init` makes a state from a position, `step` moves it with one batch. `collect`, where a sampler
    has a say in it, tells from the number of steps taken whether the position may be kept as a draw.
    `settings` names the sampler and its hyperparameters, so that a run folder can say what made it.
    """

    init: Callable[[Key, Params], Any]
    step: Callable[[Key, Any, Batch], tuple[Any, Info]]
    collect: Callable[[int], bool] | None = None
    settings: Mapping[str, Any] = {}


class LearnedSampler(NamedTuple):
    """A family of samplers, indexed by meta-parameters.

    `init` draws meta-parameters; `bind` makes the sampler they stand for. `bind` is traceable, so
    that meta-parameters may be perturbed or differentiated under `jit`.
    """

    init: Callable[[Key], MetaParams]
    bind: Callable[[MetaParams, Any], Sampler]
