"""Progress with the time left, on a terminal; silent elsewhere."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Report = Callable[[int | None, str], None]
Item = TypeVar("Item")


def followed(title: str, items: Iterable[Item], total: int, show: bool | None = None) -> Iterator[Item]:
    """Yield the items, with a bar that shows how many of them are done."""
    with progress_bar(title, total, show=show, note="") as report:
        for number, item in enumerate(items):
            yield item
            report(number + 1, "")


@contextmanager
def progress_bar(
    title: str,
    total: int,
    done: int = 0,
    show: bool | None = None,
    note: str = "compiling",
    in_bytes: bool = False,
) -> Iterator[Report]:
    """Show a bar for `total` steps; call what it yields with the number of steps done and a note.

    Args:
        title: What is being done.
        total: The number of steps, or of bytes.
        done: How many of them are done already.
        show: Whether to show the bar; None shows it where standard error is a terminal.
        note: What happens until the first call.
        in_bytes: Whether to count in kB, MB and GB.

    Yields:
        The function to call; steps None leave the bar where it is.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps, note: None
        return
    from rich import progress
    from rich.console import Console

    columns = [
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=24),
        progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.fields[note]}"),
    ]
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, completed=done, note=note)
        yield lambda steps, note: bar.update(task, completed=steps, note=note)
