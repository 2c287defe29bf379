"""The scalar hyperparameters of learned samplers, by name."""

import jax

from roamax.schedules import as_schedule, describe
from roamax.types import Scalar


class Scalars:
    """Scalar hyperparameters, each a float or a schedule; a bad float is refused by its name."""

    def __init__(self, **given: Scalar):
        self._schedules = [as_schedule(value, name, positive=name != "temperature") for name, value in given.items()]
        self.settings = {name: describe(value) for name, value in given.items()}
        """The same as JSON can hold them."""

    def at(self, step: jax.Array) -> tuple[jax.Array, ...]:
        """Return the values at a step, in the order in which they were given."""
        return tuple(schedule(step) for schedule in self._schedules)
