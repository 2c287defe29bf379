"""Tables in the paper's layout: our numbers over seeds, the paper's beside them, and whether its orderings hold."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

Key = tuple[str, ...]


class Value(NamedTuple):
    """A mean over seeds and its standard deviation; the latter is None where there was one seed."""

    mean: float
    sd: float | None = None

    @classmethod
    def over(cls, numbers: Sequence[float]) -> "Value":
        """The mean and the standard deviation of a number of each seed."""
        spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
        return cls(float(np.mean(numbers)), spread)


Rows = Mapping[Key, Mapping[str, Value]]


Holds = bool | str | None
"""Whether something holds here; "level" where that cannot be told from the noise, None where it was not measured."""


def are_level(first: Value, second: Value) -> bool:
    """Whether two means differ by less than the standard deviation of the difference between seeds."""
    return abs(first.mean - second.mean) < math.hypot(first.sd or 0.0, second.sd or 0.0)


def exceeds(first: Value | None, second: Value | None) -> Holds:
    """Whether the first mean is above the second."""
    if first is None or second is None:
        return None
    return "level" if are_level(first, second) else first.mean > second.mean


@dataclass(frozen=True)
class Table:
    """Rows named by `heads`, and a column for each of `columns`.

    What is compared stands in the columns, or in the last of the names of a row; `better` says of the other side,
    a column or the first name of a row, whether "max" or "min" is best; nothing where neither is.
    """

    title: str
    heads: Key
    columns: Key
    rows: Rows
    paper: Rows = field(default_factory=dict)
    compared: Literal["columns", "rows"] = "columns"
    better: Mapping[str, str] = field(default_factory=dict)
    digits: int = 3

    def to_json(self) -> dict[str, Any]:
        """The table as JSON holds it."""
        pack = [
            [
                {"row": list(key), "values": {name: list(value) for name, value in row.items()}}
                for key, row in side.items()
            ]
            for side in (self.rows, self.paper)
        ]
        return {
            "title": self.title,
            "heads": list(self.heads),
            "columns": list(self.columns),
            "rows": pack[0],
            "paper": pack[1],
            "compared": self.compared,
            "better": dict(self.better),
            "digits": self.digits,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Table":
        """The table that `to_json` wrote."""

        def rows(packed: Sequence[Mapping[str, Any]]) -> Rows:
            return {
                tuple(entry["row"]): {name: _value(pair) for name, pair in entry["values"].items()} for entry in packed
            }

        plain = {name: stored[name] for name in ("title", "compared", "better", "digits")}
        return cls(heads=tuple(stored["heads"]), columns=tuple(stored["columns"]), rows=rows(stored["rows"]),
                   paper=rows(stored["paper"]), **plain)  # fmt: skip

    def lines(self) -> Iterator[tuple[list[str], list[tuple[str, bool]]]]:
        """Names and cells, each with whether it is the best: ours, and the paper's below where it has the row."""
        for key in dict.fromkeys([*self.rows, *self.paper]):
            for rows, mark in ((self.rows, ""), (self.paper, "paper")):
                if key in rows or (not mark and self.paper):
                    cells = [self._cell(rows, key, column) for column in self.columns]
                    yield [*key[:-1], f"{key[-1]}, {mark}" if mark else key[-1]], cells

    def _cell(self, rows: Rows, key: Key, column: str) -> tuple[str, bool]:
        value = rows.get(key, {}).get(column)
        if value is None or not math.isfinite(value.mean):
            return "–", False
        spread = "" if value.sd is None else f" ± {value.sd:.{self.digits}f}"
        return f"{value.mean:.{self.digits}f}{spread}", self._is_best(rows, key, column)

    def _is_best(self, rows: Rows, key: Key, column: str) -> bool:
        direction = self._direction(key, column)
        rivals = [value.mean for _, value in self._rivals(rows, key, column) if math.isfinite(value.mean)]
        if direction is None or len(rivals) < 2:
            return False
        best = max(rivals) if direction == "max" else min(rivals)
        return round(rows[key][column].mean, self.digits) == round(best, self.digits)

    def _direction(self, key: Key, column: str) -> str | None:
        return self.better.get(key[0] if self.compared == "columns" else column)

    def _rivals(self, rows: Rows, key: Key, column: str) -> list[tuple[str, Value]]:
        if self.compared == "columns":
            return [(name, value) for name, value in rows.get(key, {}).items() if name in self.columns]
        return [(other[-1], row[column]) for other, row in rows.items() if other[:-1] == key[:-1] and column in row]

    def orderings(self) -> str:
        """How many of the paper's orderings hold in our numbers, and those that do not."""
        held, level, failed, total = 0, 0, [], 0
        for where, paper, ours in self._groups():
            for (first, a), (second, b) in itertools.combinations(paper.items(), 2):
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

    def _groups(self) -> Iterator[tuple[str, dict[str, Value], dict[str, Value]]]:
        """Where something is compared: the paper's numbers, and ours. What is neither good nor bad has no order."""
        if self.compared == "columns":
            for key in self.paper:
                if key[0] in self.better:
                    yield ", ".join(key), dict(self.paper[key]), finite(self.rows.get(key, {}))
            return
        for prefix in dict.fromkeys(key[:-1] for key in self.paper):
            for column in (column for column in self.columns if column in self.better):
                example = (*prefix, "")
                paper, ours = (dict(self._rivals(rows, example, column)) for rows in (self.paper, self.rows))
                yield ", ".join([*prefix, column]), paper, finite(ours)


def markdown(table: Table) -> str:
    """A Markdown table, the best of our numbers and of the paper's in bold."""
    lines = [[*table.heads, *table.columns], ["---"] * (len(table.heads) + len(table.columns))]
    lines += [[*names, *(f"**{text}**" if best else text for text, best in cells)] for names, cells in table.lines()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex(table: Table) -> str:
    """A LaTeX table in the style of booktabs."""

    def bold(text: str, best: bool) -> str:
        # "0.946 ± 0.002" is set as the paper sets it: the spread small, and not bold.
        mean, _, spread = text.partition(" ± ")
        small = rf"$\scriptstyle{{\pm{spread}}}$" if spread else ""
        return (rf"\textbf{{{mean}}}" if best else mean.replace("–", "--")) + small

    heads = " & ".join(map(escape, (*table.heads, *table.columns)))
    body = [
        " & ".join([*map(escape, names), *(bold(*cell) for cell in cells)]) + r" \\" for names, cells in table.lines()
    ]
    form = "l" * len(table.heads) + "r" * len(table.columns)
    return "\n".join([rf"\begin{{tabular}}{{{form}}}", r"\toprule", rf"{heads} \\", r"\midrule", *body, r"\bottomrule",
                      r"\end{tabular}"])  # fmt: skip


def escape(text: str) -> str:
    """Text as LaTeX takes it."""
    for symbol in "\\&%$#_{}":
        text = text.replace(symbol, rf"\{symbol}" if symbol != "\\" else r"\textbackslash ")
    return text.replace("–", "--").replace("±", r"$\pm$")


def finite(row: Mapping[str, Value]) -> dict[str, Value]:
    """A row without what diverged."""
    return {name: value for name, value in row.items() if math.isfinite(value.mean)}


def _value(pair: Sequence[float | None]) -> Value:
    mean, sd = pair
    return Value(math.nan if mean is None else mean, sd)
