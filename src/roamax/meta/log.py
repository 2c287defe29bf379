"""The log of a meta-training run: one row of `log.csv` per outer step, and a plot of it."""

import csv
import errno
import io
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from roamax.errors import FileError
from roamax.host import files


class Row(NamedTuple):
    """One outer step. A field is empty if there was no validation, or no finite loss.

    `step` counts the updates so far; row 0 is the validation before the first. `inner_gradients` and `seconds` are
    totals of the run so far, `compile_seconds` is that of this step.
    """

    step: int
    stage: int
    estimator: str
    loss: float | str
    validation: float | str
    gradient_norm: float | str
    bad: int
    inner_gradients: int
    seconds: float
    compile_seconds: float
    tasks: str


class Log:
    """A log file that rows are appended to. Opened at a checkpoint's step, it drops the rows of later steps."""

    def __init__(self, path: Path, step: int):
        kept = [row for row in read_rows(path) if int(row.step) <= step] if path.exists() else []
        files.write_bytes(path, "".join(map(_line, [Row._fields, *kept])).encode())
        self._path = path
        with files.writing(path):
            # Unbuffered, so that closing has nothing left to write, which could fail on a full disk.
            self._file = path.open("ab", buffering=0)

    def add(self, row: Row) -> None:
        """Append a row; it survives a kill of this process."""
        with files.writing(self._path):
            line = _line(row).encode()
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Flush the rows to disk, before a checkpoint that relies on them."""
        with files.writing(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> list[Row]:
    """Read the complete rows of a log, as text; a truncated last row is left out."""
    lines = files.read_bytes(path).decode(errors="replace").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    try:
        parsed = list(csv.reader(whole))[1:]
    except csv.Error as error:
        raise FileError(f"{path} is damaged: {error}. Remove it; a run resumes without.") from error
    return [Row(*row) for row in parsed if len(row) == len(Row._fields) and row[0].isdecimal()]  # type: ignore


def plot(log: Path, picture: Path) -> None:
    """Plot the meta-loss of each step, its running mean, and the validation loss."""
    import matplotlib.pyplot as plt
    import numpy as np

    rows = read_rows(log)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    steps, losses = _column(rows, "loss")
    if len(losses):
        axes.plot(steps, losses, ".", markersize=3, alpha=0.4, label="loss of an outer step")
        window = max(1, len(losses) // 40)
        means = np.convolve(losses, np.ones(window) / window, mode="valid")
        axes.plot(steps[window - 1 :], means, label=f"mean of {window}")
    steps, losses = _column(rows, "validation")
    axes.plot(steps, losses, "o-", markersize=4, label="validation")
    axes.set(xlabel="outer step", ylabel="meta-loss", yscale="log")
    axes.legend()
    content = io.BytesIO()
    figure.savefig(content, dpi=120, format="png")
    plt.close(figure)
    files.write_bytes(picture, content.getvalue())


def _column(rows: list[Row], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of a column, where it holds numbers."""
    points = []
    for row in rows:
        with suppress(ValueError):
            points.append((int(row.step), float(getattr(row, name))))
    return [step for step, _ in points], [value for _, value in points]


def _line(row: tuple) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(row)
    return buffer.getvalue()
