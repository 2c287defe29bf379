"""Contests: contestants that do the same work take turns, and are compared within a round.

Other load on the machine affects all contestants of a round alike, so ratios are steadier than times.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

Turn = Callable[[], Any]
"""One turn of a contestant: a call that ends when its work has ended."""


Value = TypeVar("Value")
BEST = "best"
"""In a mark, the fastest of the other contestants in a round."""


class Mark(NamedTuple):
    """A bound for the first contestant's value, alone or relative to that of the second, or of the `BEST` other."""

    first: str
    second: str | None = None
    kind: Literal["ratio", "difference", "value"] = "ratio"
    at_most: float | None = None
    at_least: float | None = None

    def of(self, values: Mapping[str, float]) -> float:
        """Return the number that counts, from the values of one round."""
        if self.kind == "value" or self.second is None:
            return values[self.first]
        others = [value for name, value in values.items() if name != self.first]
        first, second = values[self.first], min(others) if self.second == BEST else values[self.second]
        return first / second if self.kind == "ratio" else first - second

    def holds(self, number: float) -> bool:
        """Return whether the bound is kept."""
        return (self.at_most is None or number <= self.at_most) and (self.at_least is None or number >= self.at_least)


class Spread(NamedTuple):
    """The median of several values, between their quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))


def seconds_of(turn: Turn, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that a turn takes."""
    begun = clock()
    turn()
    return clock() - begun


def both_clocks(turn: Turn) -> tuple[float, float]:
    """Return the seconds that a turn takes, and the CPU seconds of all threads of this process."""
    begun = time.process_time()
    seconds = seconds_of(turn)
    return seconds, time.process_time() - begun


def result_of(turn: Turn) -> float:
    """Return the result of a turn that measures something other than time."""
    return float(turn())


class Contest(NamedTuple):
    """Contestants, and the mark for one of them."""

    what: str
    contestants: Mapping[str, Turn]
    mark: Mark
    work: float = 1.0
    """The number of steps, or other units of work, per turn: values are per unit."""
    unit: Literal["s", "MB"] = "s"
    measure: Callable[[Turn], float] = seconds_of


def take_turns(
    contestants: Mapping[str, Turn], rounds: int, measure: Callable[[Turn], Value] = seconds_of
) -> dict[str, list[Value]]:
    """Return each contestant's values over `rounds`, in each of which all take a turn, after a round of warm-up."""
    found: dict[str, list[Value]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, turn in contestants.items():
            value = measure(turn)
            if number > 0:
                found[name].append(value)
    return found


def hold(contest: Contest, rounds: int) -> dict[str, Any]:
    """Hold a contest and return its outcome, ready for JSON."""
    found = take_turns(contest.contestants, rounds, contest.measure)
    values = {name: [value / contest.work for value in taken] for name, taken in found.items()}
    numbers = [contest.mark.of({name: taken[number] for name, taken in values.items()}) for number in range(rounds)]
    spread = Spread.of(numbers)
    return {
        "what": contest.what,
        "mark": contest.mark._asdict(),
        "rounds": rounds,
        **spread._asdict(),
        "holds": contest.mark.holds(spread.median),
        "unit": contest.unit,
        "values": {name: Spread.of(taken)._asdict() for name, taken in values.items()},
    }
