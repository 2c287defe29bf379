"""Progress with the time left, on a terminal; silent elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, str], None]


@contextmanager
def progress_bar(title: str, total: int, done: int = 0, show: bool | None = None) -> Iterator[Report]:
    """A bar for `total` steps of which `done` are behind us: call it with the steps done and a note.

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
        task = bar.add_task(title, total=total, completed=done, note="compiling")
        yield lambda steps, note: bar.update(task, completed=steps, note=note)
