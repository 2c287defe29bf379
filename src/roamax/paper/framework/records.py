"""What an experiment measured of each chain, in a small file: with it, results need neither the chains nor their time.

Chains take gigabytes and stay where they were run. A record takes a line, so that seeds and methods of one experiment
can be run on different days and machines, and searches are not repeated.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roamax.errors import shaped
from roamax.host import files

FORM = {"*": {"*": {"value": (dict, list, float, str, None), "note": (str, None), "seconds": {"*": float}}}}


class Seconds(NamedTuple):
    """The time that had gone into a chain, or into a file of it, before it was first used, and that at the end."""

    before: float
    total: float


class Answer(NamedTuple):
    """A function's result for a chain, or a note why there is none; and the time by path in the folder of chains."""

    value: Any
    note: str | None
    seconds: dict[str, Seconds]
    is_final: bool = True
    """Whether another try would give the same."""


class Records:
    """Answers by function and chain, of this and of earlier runs, in a file if there is one."""

    def __init__(self, path: Path | None = None):
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._known = shaped(files.read_json(path), FORM, path, "Remove it to measure again.")

    def of(self, function: Callable[..., Any]) -> dict[str, Answer]:
        """Return what a function returned for chains, by their names."""
        return {
            chain: Answer(
                _decoded(kept["value"]), kept["note"], {path: Seconds(n, n) for path, n in kept["seconds"].items()}
            )
            for chain, kept in self._known.get(_name(function), {}).items()
        }

    def add(self, function: Callable[..., Any], answers: Mapping[str, Answer]) -> None:
        """Keep what a function returned for chains, as far as JSON can hold it."""
        kept = {
            chain: {
                "value": _encoded(answer.value),
                "note": answer.note,
                "seconds": {path: round(seconds.total, 2) for path, seconds in answer.seconds.items()},
            }
            for chain, answer in answers.items()
            if answer.is_final and _survives(answer.value)
        }
        if self._path is None or not kept or not _name(function):
            return
        self._known.setdefault(_name(function), {}).update(kept)
        lines = [
            f"{json.dumps(name)}: {{\n"
            + ",\n".join(f" {json.dumps(chain)}: {json.dumps(record)}" for chain, record in sorted(chains.items()))
            + "\n}"
            for name, chains in sorted(self._known.items())
        ]
        files.write_bytes(self._path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def records_in(folder: Path) -> Records:
    """Return the records of the experiment with that folder for its results."""
    return Records(folder / "records.json")


def _name(function: Callable[..., Any]) -> str:
    """Return a function's name; nothing for one with arguments of its own, whose results depend on these too."""
    return getattr(function, "__qualname__", "")


def _survives(value: Any) -> bool:
    """Return whether a value is the same after JSON, unlike arrays."""
    try:
        return repr(_decoded(_encoded(value))) == repr(value)
    except TypeError:
        return False


def _encoded(value: Any) -> Any:
    """Return a value as it is read back from JSON, which has no NaN and infinities: they become text."""
    return json.loads(json.dumps(value), parse_constant=str)


def _decoded(value: Any) -> Any:
    """Invert `_encoded`. One network has no diversity, for example, and its record says NaN."""
    if isinstance(value, dict):
        return {key: _decoded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_decoded(entry) for entry in value]
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value
