"""Results on a terminal: tables that fit 80 columns, or JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from roamax.report.page import Column, best_value, cell


def print_table(title: str, columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> None:
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


def print_json(value: Any) -> None:
    """The value on standard output, for programs; NaN and infinities, which JSON lacks, are null."""
    text = json.dumps(value, default=float)
    print(json.dumps(json.loads(text, parse_constant=lambda name: None), indent=1))
