"""Tables for a terminal, Markdown, HTML and LaTeX: one type, and one renderer per format."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

UNKNOWN = "–"


class Column(NamedTuple):
    """A column of records: the key in each record, its heading, its format, and whether "max" or "min" is better."""

    key: str
    heading: str
    format: str = ".3f"
    better: str | None = None


class Cell(NamedTuple):
    """The text of a cell, and whether it is the best among those it is compared with."""

    text: str
    is_best: bool = False


class Table(NamedTuple):
    """Headings and rows of cells; `align` has one letter per column, "l" for text and "r" for numbers."""

    title: str
    headings: Sequence[str]
    align: str
    rows: Sequence[Sequence[Cell]]


def from_records(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Return a table with one row per record, in which the best value of each column is marked.

    Args:
        columns: The columns.
        records: Numbers, texts, or None for unknown values.
        title: The title above the table in a terminal.

    Returns:
        The table. A column that holds any text is aligned as text.
    """
    shown = [cells([record[column.key] for record in records], column.format, column.better) for column in columns]
    is_text = [any(isinstance(record[column.key], str) for record in records) for column in columns]
    align = "".join("l" if text else "r" for text in is_text)
    return Table(title, [column.heading for column in columns], align, list(zip(*shown, strict=True)))


def cells(values: Sequence[Any], form: str, better: str | None = None) -> list[Cell]:
    """Return cells for values that are compared with each other: numbers, means with spreads, texts, or None.

    Args:
        values: The values; a pair is a mean and its standard deviation, which may be None.
        form: The format of numbers, such as ".3f".
        better: "max" or "min", or None if neither is better.

    Returns:
        One cell per value. The best are those that print like the best, if at least two values are known.
    """
    means = [value[0] if isinstance(value, tuple) else value for value in values]
    known = [mean for mean in means if isinstance(mean, int | float) and math.isfinite(mean)]
    best = None
    if better is not None and len(known) > 1:
        best = format(max(known) if better == "max" else min(known), form)
    return [
        Cell(_text(value, form), best is not None and _text(mean, form) == best)
        for value, mean in zip(values, means, strict=True)
    ]


def markdown(table: Table) -> str:
    """Return the table in Markdown, with the best in bold."""
    body = [[f"**{text}**" if is_best else text for text, is_best in row] for row in table.rows]
    lines = [list(table.headings), ["---"] * len(table.headings), *body]
    escaped = [[text.replace("|", "\\|") for text in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def latex(table: Table) -> str:
    """Return the table in LaTeX, in the style of booktabs, with the best in bold and small spreads."""
    body = [" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows]
    heads = " & ".join(map(escape_latex, table.headings)) + r" \\"
    begin, end = rf"\begin{{tabular}}{{{table.align}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", heads, r"\midrule", *body, r"\bottomrule", end])


_LATEX = str.maketrans({
    **{symbol: rf"\{symbol}" for symbol in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$",
})  # fmt: skip


def escape_latex(text: str) -> str:
    """Escape text for LaTeX."""
    return text.translate(_LATEX)


def terminal(table: Table) -> Any:
    """Return the table for rich, with the best in bold; only the last column may be wrapped."""
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(table.title) if table.title else None, title_justify="left", box=None, pad_edge=False)
    last = len(table.headings) - 1
    for number, (heading, side) in enumerate(zip(table.headings, table.align, strict=True)):
        shown.add_column(Text(heading), justify="left" if side == "l" else "right", no_wrap=number != last)
    for row in table.rows:
        shown.add_row(*(Text(text, "bold" if is_best else "") for text, is_best in row))
    return shown


def _text(value: Any, form: str) -> str:
    if isinstance(value, tuple):
        mean, spread = value
        return _text(mean, form) + ("" if spread is None or not math.isfinite(mean) else f" ± {spread:{form}}")
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN
    return value if isinstance(value, str) else format(value, form)


def _latex_cell(cell: Cell) -> str:
    # "0.946 ± 0.002" is set as in the paper: the spread is small, and not bold.
    mean, _, spread = map(escape_latex, cell.text.partition(" ± "))
    small = rf"$\scriptstyle{{\pm{spread}}}$" if spread else ""
    return (rf"\textbf{{{mean}}}" if cell.is_best else mean) + small
