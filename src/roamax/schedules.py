"""Scalars as functions of the step, and step sizes from the learning rate of SGD.

Every scalar hyperparameter of a sampler is a float or a schedule; any optax schedule will do.
"""

import math
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import jax
import jax.numpy as jnp

from roamax.errors import check, finite, whole
from roamax.types import Scalar, Schedule


@dataclass(frozen=True)
class Constant:
    """The same value at every step."""

    value: float

    def __call__(self, step: jax.Array) -> jax.Array:
        return jnp.asarray(self.value)


@dataclass(frozen=True)
class CyclicalCosine:
    """The schedule peak * ((1 + cos(pi * t)) / 2) ** power, with t in [0, 1) the fraction of the cycle completed.

    Computed as a sine of the fraction that remains: near a cycle's end, 1 + cos(pi * t) is 0 in single precision.
    """

    peak: float
    cycle_length: int
    power: float = 1.0

    def __call__(self, step: Any) -> Any:
        """Return the value at a step; for a Python int (as in `roamax.torch`) JAX is not used."""
        left = self.cycle_length - step % self.cycle_length
        left, sin = (left, math.sin) if isinstance(step, int) else (jnp.asarray(left, float), jnp.sin)
        return self.peak * sin(0.5 * math.pi * (left / self.cycle_length)) ** (2 * self.power)


@dataclass(frozen=True)
class CosineToConstant:
    """The schedule that falls from `peak` to `end` along a cosine in `steps` steps, and stays there."""

    peak: float
    end: float
    steps: int

    def __call__(self, step: jax.Array) -> jax.Array:
        cosine = jnp.cos(0.5 * math.pi * jnp.minimum(step / self.steps, 1.0)) ** 2
        return self.end + (self.peak - self.end) * cosine


@dataclass(frozen=True)
class Cycle:
    """Cycles of `length` steps that first explore, then sample, with `draws` draws per cycle.

    Draws are spread evenly over the sampling part; the last is at the end of the cycle.
    """

    length: int
    exploration_ratio: float
    draws: int = 1

    def __post_init__(self) -> None:
        length, ratio, draws = self.length, self.exploration_ratio, self.draws
        object.__setattr__(self, "length", whole(length, "cycle_length", 2))
        finite(ratio, "exploration_ratio", least=0, below=1)
        check(self.sampling_steps > 0, "exploration_ratio", "leave at least one step of a cycle to sample", ratio)
        object.__setattr__(self, "draws", whole(draws, "draws_per_cycle", 1, self.sampling_steps))

    @property
    def exploration_steps(self) -> int:
        """The number of exploring steps per cycle."""
        return round(self.exploration_ratio * self.length)

    @property
    def sampling_steps(self) -> int:
        """The number of sampling steps per cycle."""
        return self.length - self.exploration_steps

    def explores(self, step: Any) -> Any:
        """Return whether a step, counted from 0, explores."""
        return step % self.length < self.exploration_steps

    def ends_in_draw(self, steps_taken: int) -> bool:
        """Return whether the position after `steps_taken` steps is a draw."""
        place = (steps_taken - 1) % self.length + 1 - self.exploration_steps
        return place >= 1 and place * self.draws % self.sampling_steps < self.draws


@dataclass(frozen=True)
class CyclicalSwitch:
    """The schedule that is 0 in the exploring part of each cycle and `value` in the rest."""

    value: float
    cycle: Cycle

    def __call__(self, step: jax.Array) -> jax.Array:
        return jnp.where(self.cycle.explores(step), 0.0, self.value)


def as_schedule(value: Scalar, argument: str, *, positive: bool = True) -> Schedule:
    """Return a schedule from a float or a schedule.

    Args:
        value: A schedule, or a float, which must be finite and > 0.
        argument: The name of the argument, for errors.
        positive: False allows a float to be 0.

    Returns:
        The schedule.
    """
    if callable(value):
        return value
    bound = {"above" if positive else "least": 0.0}
    return Constant(finite(value, argument, otherwise=", or a schedule", **bound))


def describe(value: Any) -> Any:
    """Return a hyperparameter as a JSON value.

    Args:
        value: A number, or a schedule.

    Returns:
        The number as it is, or the schedule's name and settings as text.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Constant):
        return value.value
    if callable(value) and not hasattr(value, "__dataclass_fields__"):
        return Described(getattr(value, "__qualname__", type(value).__name__), cast(Schedule, value))
    return str(value)


class Described(str):
    """The name of a function of the step, and the function: run folders also compare what it computes."""

    function: Schedule

    def __new__(cls, name: str, function: Schedule) -> "Described":
        """Return the name, with the function."""
        described = super().__new__(cls, name)
        described.function = function
        return described


class StepSettings(TypedDict):
    """The `step_size` and `friction` of `sghmc` and `cyclical`."""

    step_size: float
    friction: float


def from_learning_rate(learning_rate: float, momentum_decay: float, num_data: int) -> StepSettings:
    """Return the `step_size` and `friction` with which `sghmc` moves like SGD with momentum on the *mean* loss.

        step_size = sqrt(learning_rate / num_data),   friction = momentum_decay / step_size

        sghmc(posterior, **from_learning_rate(0.1, 0.1, num_data))

    Args:
        learning_rate: The learning rate of SGD, as `lr` in `roamax.torch` and `learning_rate` in `ensemble`.
        momentum_decay: One minus the momentum of SGD.
        num_data: The number of training examples.

    Returns:
        Keyword arguments for `sghmc` and `cyclical`.
    """
    step_size = math.sqrt(finite(learning_rate, "learning_rate", above=0) / whole(num_data, "num_data"))
    return {"step_size": step_size, "friction": finite(momentum_decay, "momentum_decay", above=0, most=1) / step_size}
