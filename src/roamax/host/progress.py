"""Progress with the time left, on a terminal; silent elsewhere."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Report = Callable[[int | None, str], None]
Item = TypeVar("Item")


def followed(title: str, items: Iterable[Item], total: int, show: bool | None = None) -> Iterator[Item]:
    """The items, with a bar that shows how many of them are done."""
    with progress_bar(title, total, show=show, note="") as report:
        for number, item in enumerate(items):
            yield item
            report(number + 1, "")


@contextmanager
def progress_bar(
    title: str, total: int, done: int = 0, show: bool | None = None, note: str = "compiling"
) -> Iterator[Report]:
    """A bar for `total` steps of which `done` are behind us: call it with the steps done and a note.

    Steps None are as many as before; the first note is what goes on until the first call.

    `show=None` shows it where standard error is a terminal.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps, note: None
        return
    from rich import progress
    from rich.console import Console

    columns = [
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=24),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.fields[note]}"),
    ]
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, completed=done, note=note)
        yield lambda steps, note: bar.update(task, completed=steps, note=note)
