"""Results on a terminal: tables that fit 80 columns, Markdown, LaTeX, or JSON."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roamax.host import files
from roamax.report.page import Column, best_value, cell, markdown
from roamax.report.tables import escape

Records = Sequence[Mapping[str, Any]]
SUMMARY = [Column("metric", "metric"), Column("value", "value", ".4g")]


def print_table(title: str, columns: Sequence[Column], records: Records) -> None:
    """A table with the best value of each column in bold."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        is_text = any(isinstance(record[column.key], str) for record in records)
        table.add_column(column.heading, justify="left" if is_text else "right", no_wrap=column != columns[-1])
    best = {column.key: best_value(column, records) for column in columns}
    for record in records:
        cells = []
        for column in columns:
            text, is_best = cell(column, record[column.key]), column.better and record[column.key] == best[column.key]
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        table.add_row(*cells)
    Console().print(table)


def latex(columns: Sequence[Column], records: Records) -> str:
    """A LaTeX table in the style of booktabs."""
    rows = [[cell(column, record[column.key]) for column in columns] for record in records]
    lines = [" & ".join(escape(text) for text in row) + r" \\" for row in rows]
    heads = " & ".join(escape(column.heading) for column in columns) + r" \\"
    form = "l" + "r" * (len(columns) - 1)
    return "\n".join([rf"\begin{{tabular}}{{{form}}}", r"\toprule", heads, r"\midrule", *lines, r"\bottomrule",
                      r"\end{tabular}"])  # fmt: skip


def print_json(value: Any) -> None:
    """Print a value as JSON, for programs."""
    print(files.json_text(value))


FORMATS: dict[str, Callable[[Any], None]] = {
    "table": lambda rows: print_table("", SUMMARY, rows),
    "markdown": lambda rows: print(markdown(SUMMARY, rows)),
    "latex": lambda rows: print(latex(SUMMARY, rows)),
}
"""How a summary is shown, by name."""
