"""Progress bars with the time left, on terminals only."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Report = Callable[[int | None, str], None]
Item = TypeVar("Item")


def followed(title: str, items: Iterable[Item], total: int, show: bool | None = None) -> Iterator[Item]:
    """Yield the items, with a progress bar."""
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
    """Show a progress bar for `total` steps.

    Args:
        title: The text before the bar.
        total: The number of steps, or of bytes.
        done: The number already done.
        show: Whether to show the bar; None shows it if standard error is a terminal.
        note: The text after the bar until the first call.
        in_bytes: Whether to count in kB, MB and GB.

    Yields:
        A function of the number of steps done (None leaves the bar where it is) and a note.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps, note: None
        return
    from rich import progress
    from rich.console import Console

    columns = [
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.fields[note]}", markup=False),
    ]
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, completed=done, note=note)
        yield lambda steps, note: bar.update(task, completed=steps, note=note)
