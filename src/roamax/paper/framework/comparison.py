"""Our numbers over seeds and the paper's, in the paper's layout, and whether its orderings hold."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from roamax.report.table import UNKNOWN, Cell, Table, cells

Key = tuple[str, ...]
SCORES = ("ACC", "NLL", "ECE", "KLD")
"""The columns of most of the paper's tables."""
EPSILON_SQUARED = "epsilon²"
"""The paper's step size."""
LENGTH = f"{EPSILON_SQUARED} or learning rate"
"""The latter for deep ensembles."""
REFERENCE = "HMC"
"""The method that others are measured by, on CIFAR-10 with another network: its numbers are never marked as the best.
Nor is the largest KLD: draws that are far apart may still be bad."""
BETTER = {"ACC": "max", "NLL": "min", "ECE": "min", "KLD": "max", "error barrier": "max", "NLL barrier": "max"}


class Value(NamedTuple):
    """A mean over seeds and the standard deviation, which is None for a single seed."""

    mean: float
    sd: float | None = None

    @classmethod
    def over(cls, numbers: Sequence[float]) -> "Value":
        """Return the mean and the standard deviation of one number per seed."""
        spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
        return cls(float(np.mean(numbers)), spread)


Row = Mapping[str, Value]
Rows = Mapping[Key, Row]
Places = list[tuple[Key, str]]
Holds = bool | str | None
"""Whether something holds here; "level" if the difference is within the noise, None if it was not measured."""


def exceeds(first: Value | None, second: Value | None) -> Holds:
    """Return whether the first mean is above the second.

    They are level if they differ by less than the standard deviation of the difference between seeds, or if both are of
    a single seed, which does not tell the noise.
    """
    if first is None or second is None:
        return None
    if first.sd is None and second.sd is None:
        return "level"
    noise = math.hypot(first.sd or 0.0, second.sd or 0.0)
    return "level" if abs(first.mean - second.mean) < noise else first.mean > second.mean


def printed(columns: Sequence[str], rows: Mapping[Key, Sequence[Any]]) -> Rows:
    """Return rows as the paper prints them.

    Args:
        columns: The names of the columns; a row may be shorter.
        rows: Numbers, or pairs of a number and its standard deviation, or None for a gap.

    Returns:
        The rows with their values by column.
    """
    return {
        key: {
            column: Value(*number) if isinstance(number, tuple) else Value(number)
            for column, number in zip(columns, numbers, strict=False)
            if number is not None
        }
        for key, numbers in rows.items()
    }


def finite(row: Row) -> dict[str, Value]:
    """Return a row without diverged values."""
    return {name: value for name, value in row.items() if math.isfinite(value.mean)}


class Lead(NamedTuple):
    """The method in front by a measure of the paper: its number and that of the best other one, there and here."""

    measure: str
    data: str
    name: str
    paper: tuple[Value, Value]
    ours: tuple[Value, Value]
    holds: Holds


@dataclass(frozen=True)
class Comparison:
    """Our rows and the paper's, named by `heads`, with one column for each of `columns`.

    Compared are the columns, or the rows by their last name; for the other side, a column or the first name of a row,
    `better` tells whether "max" or "min" is best, and has no entry if neither is.
    """

    title: str
    heads: Key
    columns: Key
    rows: Rows
    paper: Rows = field(default_factory=dict)
    compared: Literal["columns", "rows"] = "columns"
    better: Mapping[str, str] = field(default_factory=dict)
    digits: int = 3
    style: str = "f"
    """How numbers are written: "f" with that many decimals, "g" with that many digits."""
    untestable: str = ""
    """Why the paper's orderings cannot be tested by these rows; empty if they can."""

    def to_json(self) -> dict[str, Any]:
        """Return the comparison ready for JSON."""
        sides = {
            side: [{"row": key, "values": dict(row)} for key, row in rows.items()]
            for side, rows in (("rows", self.rows), ("paper", self.paper))
        }
        names = ("title", "heads", "columns", "compared", "digits", "style", "untestable")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"better": dict(self.better)} | sides

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Comparison":
        """Return the comparison from the result of `to_json`."""
        names = {name: tuple(stored[name]) for name in ("heads", "columns")}
        sides = {
            side: {
                tuple(entry["row"]): {
                    name: Value(math.nan if mean is None else mean, sd) for name, (mean, sd) in entry["values"].items()
                }
                for entry in stored[side]
            }
            for side in ("rows", "paper")
        }
        return cls(**{**stored, **names, **sides})

    def table(self) -> Table:
        """Return the table: each of our rows, with the paper's below it if it has one."""
        ours, theirs = self._cells(self.rows), self._cells(self.paper)
        lines = []
        for key in dict.fromkeys([*self.rows, *self.paper]):
            for side, shown, mark in ((self.rows, ours, ""), (self.paper, theirs, ", paper")):
                if key in side or (self.paper and not mark):
                    names = [*key[:-1], f"{key[-1]}{mark}"]
                    row = [shown.get((key, column), Cell(UNKNOWN)) for column in self.columns]
                    lines.append([*map(Cell, names), *row])
        align = "l" * len(self.heads) + "r" * len(self.columns)
        return Table(self.title, [*self.heads, *self.columns], align, lines)

    def orderings(self) -> str:
        """Return a sentence on how many of the paper's orderings hold in our numbers, and which do not."""
        if self.untestable:
            return f"The paper's orderings are not testable here: {self.untestable}"
        held, level, failed, total = 0, 0, [], 0
        for where, better, places in self._groups(self.paper):
            paper, ours = (self._named(rows, places) for rows in (self.paper, self.rows))
            # Numbers without a better direction have no order.
            for (first, a), (second, b) in itertools.combinations(paper.items() if better else (), 2):
                if a.mean == b.mean or first not in ours or second not in ours:
                    continue
                total += 1
                lower, higher = (first, second) if a.mean < b.mean else (second, first)
                holds = exceeds(ours[higher], ours[lower])
                if holds == "level":
                    level += 1
                elif holds:
                    held += 1
                else:
                    failed.append(f"{where}: {lower} below {higher}")
        if total == 0:
            return ""
        noise = f", {level} cannot be told from the noise" if level else ""
        rest = f" Not: {'; '.join(failed)}." if failed else ""
        return f"{held} of the {total} orderings of the paper that are measured here hold{noise}.{rest}"

    def leads(self) -> Iterator[Lead]:
        """Yield the paper's leader of each group of which two methods or more were measured here."""
        for _, better, places in self._groups(self.paper):
            paper, ours = (self._named(rows, places) for rows in (self.paper, self.rows))
            sign = 1 if better == "max" else -1
            order = sorted((ours.keys() & paper.keys()) - {REFERENCE}, key=lambda name: -sign * paper[name].mean)
            if not better or len(order) < 2 or paper[order[0]].mean == paper[order[1]].mean:
                continue
            rival = max(order[1:], key=lambda name: sign * ours[name].mean)
            pair = (order[0], rival) if sign > 0 else (rival, order[0])
            key, column = places[0]
            if self.compared == "rows":
                measure, data = column, key[:-1]
            else:
                measure, data = (key[0], key[1:]) if self.heads[0] == "Metric" else (self.title, key)
            yield Lead(
                measure,
                ", ".join(data),
                order[0],
                (paper[order[0]], paper[order[1]]),
                (ours[order[0]], ours[rival]),
                "not testable" if self.untestable else exceeds(*(ours[name] for name in pair)),
            )

    def _cells(self, rows: Rows) -> dict[tuple[Key, str], Cell]:
        found: dict[tuple[Key, str], Cell] = {}
        form = f".{self.digits}{self.style}"
        for _, better, places in self._groups(rows):
            found |= {(key, column): cells([rows[key].get(column)], form)[0] for key, column in places}
            if any("KLD" in (key[0], column) for key, column in places):
                continue
            rivals = [(key, column) for key, column in places if REFERENCE not in (key[-1], column)]
            values = [rows[key].get(column) for key, column in rivals]
            found |= zip(rivals, cells(values, form, better), strict=True)
        return found

    def _groups(self, rows: Rows) -> Iterator[tuple[str, str | None, Places]]:
        """Yield the groups that are compared: their name, which direction is better, and the row and column of each."""
        if self.compared == "columns":
            for key in rows:
                yield ", ".join(key), self.better.get(key[0]), [(key, column) for column in self.columns]
            return
        for prefix in dict.fromkeys(key[:-1] for key in rows):
            keys = [key for key in rows if key[:-1] == prefix]
            for column in self.columns:
                yield ", ".join([*prefix, column]), self.better.get(column), [(key, column) for key in keys]

    def _named(self, rows: Rows, places: Places) -> dict[str, Value]:
        """Return the finite values of a group, by name."""
        found = {
            column if self.compared == "columns" else key[-1]: rows.get(key, {}).get(column) for key, column in places
        }
        return finite({name: value for name, value in found.items() if value is not None})
