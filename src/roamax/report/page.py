"""One self-contained HTML page: a table, figures, and what made them."""

import html
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamax.host import files
from roamax.host.progress import followed

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1c2430; --dim: #667080; --line: #d9dee6; --best: #e3f1e6; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181f; --ink: #e6e9ee; --dim: #98a1b0; --line: #303846; --best: #1f3a28; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
       max-width: 60rem; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
p, figcaption, footer { color: var(--dim); } p { margin: .25rem 0 .75rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--dim); font-weight: 600; }
td.best { background: var(--best); font-weight: 600; }
figure { margin: 0; } figure svg, figure img { max-width: 100%; height: auto; }
footer { margin-top: 3rem; font-size: .85rem; } code { font-size: .85rem; overflow-wrap: anywhere; }
"""


class Column(NamedTuple):
    """A column of the summary: the key in each record, its heading, its format, and which end is better."""

    key: str
    heading: str
    format: str = ".3f"
    better: str | None = None


class Figure(NamedTuple):
    """A matplotlib figure with the name of its files, a heading and a caption."""

    name: str
    figure: Any
    heading: str
    caption: str


def write_page(
    path: Path,
    title: str,
    lead: str,
    columns: Sequence[Column],
    records: Sequence[Mapping[str, Any]],
    figures: Sequence[Figure],
    made_by: Mapping[str, Any],
    progress: bool | None = None,
) -> None:
    """Write the page, and each figure as PNG and PDF beside it; `progress=None` shows a bar on a terminal."""
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(lead)}</p>", table_html(columns, records)]
    for entry in followed("drawing", figures, len(figures), progress):
        parts += [
            f"<h2>{html.escape(entry.heading)}</h2>",
            f'<figure id="{html.escape(entry.name)}">{_svg(entry)}'
            f"<figcaption>{html.escape(entry.caption)}</figcaption></figure>",
        ]
        for kind in ("png", "pdf"):
            files.write_bytes(path.with_name(f"{entry.name}.{kind}"), _render(entry.figure, kind))
    versions = ", ".join(f"{name} {number}" for name, number in made_by["versions"].items())
    parts.append(
        f"<footer>Made by <code>{html.escape(made_by['command'])}</code>, seed {made_by['seed']}. {versions}.</footer>"
    )
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    # An empty icon of the page's own keeps browsers from asking a server for one.
    head += f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    files.write_bytes(
        path, f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'.encode()
    )


def table_html(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> str:
    """The summary table, with the best value of each column marked."""
    heads = "".join(f"<th>{html.escape(column.heading)}</th>" for column in columns)
    best = {column.key: best_value(column, records) for column in columns}
    rows = []
    for record in records:
        cells = []
        for column in columns:
            mark = ' class="best"' if column.better and record[column.key] == best[column.key] else ""
            cells.append(f"<td{mark}>{html.escape(cell(column, record[column.key]))}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def markdown(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table."""
    rows = [[column.heading for column in columns], ["---"] * len(columns)]
    rows += [[cell(column, record[column.key]) for column in columns] for record in records]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def best_value(column: Column, records: Sequence[Mapping[str, Any]]) -> Any:
    """The best known value of a column, or None where neither end is better."""
    values = [record[column.key] for record in records]
    known = [value for value in values if isinstance(value, int | float) and not math.isnan(value)]
    if column.better is None or not known:
        return None
    return max(known) if column.better == "high" else min(known)


def cell(column: Column, value: Any) -> str:
    """A value as the table shows it: an en dash for what is not known."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return str(value) if isinstance(value, str) else format(value, column.format)


def _svg(entry: Figure) -> str:
    text = _render(entry.figure, "svg").decode()
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{html.escape(entry.heading)}"', 1)


def _render(figure: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()
