"""What the steps of a run told: energy, acceptance and divergences, in memory and on disk."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roamax.errors import FileError
from roamax.types import Info

FILE = "statistics.jsonl"


class Statistics(NamedTuple):
    """What chains told of their last step before each of `steps`; arrays have axes (chain, step).

    `energy` is that of the position before the step, on full-data scale; `acceptance` the probability of a Metropolis
    test, 1 without one; `divergent` whether the integrator of HMC or NUTS failed.
    """

    steps: np.ndarray
    energy: np.ndarray
    acceptance: np.ndarray
    divergent: np.ndarray

    def at(self, chains: Any, places: Any) -> "Statistics":
        """Return those of some chains, at some places."""
        parts = (self.energy, self.acceptance, self.divergent)
        return Statistics(self.steps[places], *(part[chains][:, places] for part in parts))


def joined(parts: Sequence[Statistics | None], axis: int) -> Statistics | None:
    """Concatenate statistics along chains (0) or steps (1); None unless all are there and of one length."""
    there = [part for part in parts if part is not None]
    if len(there) < len(parts) or (axis == 0 and len({len(part.steps) for part in there}) > 1):
        return None
    arrays = (np.concatenate(column, axis=axis) for column in zip(*(part[1:] for part in there), strict=True))
    return Statistics(there[0].steps, *arrays)


class StatisticsLog:
    """Statistics as a run collects them; with a folder also as lines of a file, one per step.

    Lines reach the disk at the latest with `sync`, before a checkpoint: a resumed run takes the steps after it again,
    and finds the same. A line that was cut short is dropped.
    """

    def __init__(self, folder: Path | None = None):
        self._path = None if folder is None else folder / FILE
        self._rows: dict[int, Info] = {}
        self._unwritten: list[str] = []
        if self._path is not None and self._path.exists():
            lines = self._path.read_text().splitlines()
            self._rows = dict(_parsed(self._path, number, line, len(lines)) for number, line in enumerate(lines))
            self._rows.pop(-1, None)

    def add(self, step: int, info: Info) -> None:
        """Keep what the step before `step` told, unless it is there already."""
        if step in self._rows:
            return
        self._rows[step] = info
        fields = {name: np.asarray(value).tolist() for name, value in info._asdict().items()}
        self._unwritten.append(json.dumps({"step": step, **fields}) + "\n")

    def sync(self) -> None:
        """Write what is not on disk yet."""
        if self._path is None or not self._unwritten:
            return
        kept = self._path.read_bytes() if self._path.exists() else b""
        whole = kept[: kept.rfind(b"\n") + 1]
        with open(self._path, "r+b" if kept else "wb") as file:
            file.seek(len(whole))
            file.truncate()
            file.write("".join(self._unwritten).encode())
            file.flush()
            os.fsync(file.fileno())
        self._unwritten = []

    def of(self, steps: Iterable[int]) -> Statistics | None:
        """Return the statistics at these steps; None unless all were kept, as in runs of earlier versions."""
        wanted = list(steps)
        if not wanted or any(step not in self._rows for step in wanted):
            return None
        rows = [self._rows[step] for step in wanted]
        return Statistics(np.asarray(wanted), *(np.stack(column, axis=1) for column in zip(*rows, strict=True)))

    def before(self, step: float) -> Statistics | None:
        """Return those of all steps before one."""
        return self.of(sorted(kept for kept in self._rows if kept < step))


def _parsed(path: Path, number: int, line: str, count: int) -> tuple[int, Info]:
    try:
        fields = json.loads(line)
        arrays: Any = (
            np.asarray(fields["energy"], np.float32),
            np.asarray(fields["acceptance"], np.float32),
            np.asarray(fields["divergent"], bool),
        )
        return int(fields["step"]), Info(*arrays)
    except (ValueError, KeyError, TypeError) as error:
        if number == count - 1:
            return -1, Info(np.zeros(0))  # pyright: ignore[reportArgumentType]
        raise FileError(f"{path} is damaged in line {number + 1}: restore it, or remove it.") from error
