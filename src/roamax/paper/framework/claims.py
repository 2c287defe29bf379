"""Statements of the paper, in its text or figures, and whether they hold here."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roamax.paper.framework.comparison import Holds, Value, exceeds


class Claim(NamedTuple):
    """A statement, whether it holds here, the data it is about, and our two numbers if it compares two.

    `data` also names the method or measure of a statement about several.
    """

    statement: str
    holds: Holds
    data: str = ""
    here: Sequence[Value] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the claim ready for JSON."""
        return self._asdict() | {"here": [list(value) for value in self.here]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Claim":
        """Return the claim from the result of `to_json`."""
        here = [Value(math.nan if mean is None else mean, sd) for mean, sd in stored["here"]]
        return cls(stored["statement"], stored["holds"], stored["data"], here)


def above(statement: str, first: Value | None, second: Value | None, data: str = "") -> Claim:
    """Return the claim that the first number is above the second; None is one that was not measured."""
    here = () if first is None or second is None else (first, second)
    return Claim(statement, exceeds(first, second), data, here)


def below(statement: str, first: Value | None, second: Value | None, data: str = "") -> Claim:
    """Return the claim that the first number is below the second; None is one that was not measured."""
    return above(statement, first, second, data)._replace(holds=exceeds(second, first))
