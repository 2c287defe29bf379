"""A self-contained HTML page: conclusions, pictures of predictions, a table, figures, and their provenance."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamax.errors import check, named_file
from roamax.host import files
from roamax.host.progress import followed
from roamax.report.conclusions import Conclusion
from roamax.report.figures import image
from roamax.report.table import Table

OURS = re.compile(rb'<meta name="generator" content="roamax">|<title>roamax (report|demo)</title>')
"""How to tell a page of ours; those of earlier versions by their titles."""


class Figure(NamedTuple):
    """A matplotlib figure with the name of its files, a heading and a caption."""

    name: str
    figure: Any
    heading: str
    caption: str


class Page(NamedTuple):
    """The content of a page, from top to bottom."""

    title: str
    lead: str
    conclusions: Mapping[str, Sequence[Conclusion]]
    """Conclusions by what they are about; an empty name has no heading."""
    pictures: Sequence[Figure]
    """Figures above the table: predictions to look at."""
    table: Table
    figures: Sequence[Figure]
    made_by: Mapping[str, Any]
    """The result of `runs.provenance`."""


def write_page(path: Path, page: Page, progress: bool | None = None) -> None:
    """Write a page, and each figure as PNG and PDF in a folder of its own next to it.

    Args:
        path: The page's file, for which `check_page` holds.
        page: Its content.
        progress: Whether to show a progress bar; None shows it on a terminal only.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    check_page(path)
    drawings, pictures = {}, {}
    entries = [*page.pictures, *page.figures]
    for entry in followed("drawing", entries, len(entries), progress):
        svg = image(entry.figure, "svg").decode()
        label = Markup('<svg role="img" aria-label="{}"').format(entry.heading)
        drawings[entry.name] = Markup(svg[svg.index("<svg") :].replace("<svg", label, 1))
        pictures |= {f"{entry.name}.{kind}": image(entry.figure, kind) for kind in ("png", "pdf")}
    environment = Environment(
        loader=PackageLoader("roamax", "report"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    text = environment.get_template("page.html").render(page=page, drawings=drawings)
    # The page comes first: where it is, the folder is ours too.
    files.make_folder(path.parent)
    # A name of a file may hold bytes that are no text.
    files.write_bytes(path, text.encode(errors="backslashreplace"))
    if pictures:
        files.make_folder(figure_folder(path))
    for name, content in pictures.items():
        files.write_bytes(figure_folder(path) / name, content)


def figure_folder(path: Path) -> Path:
    """Return the folder for the figures of a page."""
    return path.with_name(f"{path.stem}_figures")


def check_page(path: Path, *others: Path) -> None:
    """Raise an `InputError` unless `path` is new or an earlier page of ours, and `others` are not somebody else's."""
    if named_file(path, "out").is_file():
        with open(path, "rb") as file:
            head = file.read(4096)
        check(OURS.search(head) is not None, "out", "be a new file, or a page that roamax wrote", path)
        return
    check(not os.path.lexists(path), "out", "be a regular file, or a new one", path)
    folder, taken = figure_folder(path), [other for other in others if other.exists()]
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        taken.append(folder)
    check(not taken, "out", "be a page whose other files are ours too, or new", " and ".join(map(str, taken)))
