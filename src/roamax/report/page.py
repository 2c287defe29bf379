"""A self-contained HTML page: a table, figures, and their provenance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamax.host import files
from roamax.host.progress import followed
from roamax.report.figures import image
from roamax.report.table import Table


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
    table: Table,
    figures: Sequence[Figure],
    made_by: Mapping[str, Any],
    progress: bool | None = None,
) -> None:
    """Write the page, and each figure as PNG and PDF next to it.

    Args:
        path: The page's file.
        title: Its heading.
        lead: A paragraph below the heading.
        table: The table below the lead, with the best values marked.
        figures: The figures of the page.
        made_by: The result of `runs.provenance`.
        progress: Whether to show a progress bar; None shows it on a terminal only.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    drawings = []
    for entry in followed("drawing", figures, len(figures), progress):
        svg = image(entry.figure, "svg").decode()
        label = Markup('<svg role="img" aria-label="{}"').format(entry.heading)
        drawings.append(Markup(svg[svg.index("<svg") :].replace("<svg", label, 1)))
        for kind in ("png", "pdf"):
            files.write_bytes(path.with_name(f"{entry.name}.{kind}"), image(entry.figure, kind))
    environment = Environment(
        loader=PackageLoader("roamax", "report"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    text = environment.get_template("page.html").render(
        title=title, lead=lead, table=table, figures=figures, drawings=drawings, made_by=made_by
    )
    files.write_bytes(path, text.encode())
