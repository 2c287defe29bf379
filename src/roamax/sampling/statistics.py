"""What the steps of a run told: energy, acceptance and divergences, in memory and on disk."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roamax.errors import FileError
from roamax.host import files
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
        self._unwritten = b""
        content = files.read_bytes(self._path) if self._path is not None and self._path.exists() else b""
        self._length = content.rfind(b"\n") + 1
        for number, line in enumerate(content[: self._length].splitlines(), start=1):
            try:
                step, info = _parsed(line, like=next(iter(self._rows.values()), None))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                raise FileError(f"{self._path} is damaged in line {number}: restore it, or remove it.") from error
            self._rows[step] = info

    def add(self, step: int, info: Info) -> None:
        """Keep what the step before `step` told, unless it is there already."""
        if step in self._rows:
            return
        self._rows[step] = info
        fields = {name: np.asarray(value).tolist() for name, value in info._asdict().items()}
        self._unwritten += json.dumps({"step": step, **fields}).encode() + b"\n"

    def sync(self) -> None:
        """Write what is not on disk yet."""
        if self._path is None or not self._unwritten:
            return
        if self._length:
            files.append(self._path, self._unwritten, after=self._length)
        else:
            files.write_bytes(self._path, self._unwritten)
        self._length += len(self._unwritten)
        self._unwritten = b""

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


def _parsed(line: bytes, like: Any) -> tuple[int, Any]:
    """Return the step and the arrays of a line, which have one number per chain, as those of another line."""
    fields = json.loads(line)
    energy, acceptance = (np.asarray(fields[name], np.float32) for name in ("energy", "acceptance"))
    arrays = energy, acceptance, np.asarray(fields["divergent"], bool)
    shape = (energy.size,) if like is None else like.energy.shape
    if any(array.shape != shape for array in arrays):
        raise ValueError("another number of chains")
    return int(fields["step"]), Info(*arrays)  # pyright: ignore[reportArgumentType]
