"""Output of results: tables, Markdown, LaTeX or JSON."""

from collections.abc import Callable
from typing import Any

from roamax.host import files
from roamax.report.table import Table, latex, markdown, terminal


def print_table(table: Table) -> None:
    """Print a table; one that does not fit the terminal is printed at its full width."""
    from rich.console import Console

    console, shown = Console(), terminal(table)
    needed = console.measure(shown, options=console.options.update(max_width=1000)).minimum
    Console(width=max(console.width, needed)).print(shown)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(files.json_text(value))


FORMATS: dict[str, Callable[[Table], None]] = {
    "table": print_table,
    "markdown": lambda table: print(markdown(table)),
    "latex": lambda table: print(latex(table)),
}
"""The ways to print a summary, by name."""
