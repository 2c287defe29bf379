"""The scalar hyperparameters of learned samplers, by name."""

import jax

from roamax.schedules import as_schedule, describe
from roamax.types import Scalar


class Scalars:
    """Scalar hyperparameters, each a float or a schedule; an invalid float raises an error that names it."""

    def __init__(self, **given: Scalar):
        self._schedules = [as_schedule(value, name, positive=name != "temperature") for name, value in given.items()]
        self.settings = {name: describe(value) for name, value in given.items()}
        """Their values for JSON."""

    def at(self, step: jax.Array) -> tuple[jax.Array, ...]:
        """Return the values at a step, in the order of the arguments."""
        return tuple(schedule(step) for schedule in self._schedules)
