"""All measurements by name, each in its own process."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import apart, contests, growth, pairs, peers, starts, zoo
from benchmarks.timing import Contest, hold
from roamax.errors import InputError, check, nearest, shaped
from roamax.host import files
from roamax.host.machine import processor

PACKAGES = ("roamax", "jax", "jaxlib", "optax", "blackjax", "torch", "posteriors")


class Entry(NamedTuple):
    """A measurement: a contest, or growth with size."""

    make: Callable[[], Contest] | None = None
    grow: Callable[[int], Any] | None = None
    needs: tuple[str, ...] = ()
    devices: int = 1
    most_rounds: int = 100
    """A limit for slow entries, which hardly vary between rounds."""


ENTRIES = {
    "runner": Entry(contests.runner),
    "posteriors": Entry(peers.against_posteriors, needs=("torch", "posteriors")),
    "blackjax": Entry(peers.against_blackjax, most_rounds=3),
    "chains": Entry(contests.four_chains, devices=4),
    "predict": Entry(contests.predictions),
    "predict-cnn": Entry(contests.prediction_batches, most_rounds=5),
    "predict-memory": Entry(contests.prediction_memory, most_rounds=1),
    "devices": Entry(pairs.two_devices, devices=2),
    "members": Entry(pairs.against_the_limit, devices=2),
    "help": Entry(starts.help_text),
    "import": Entry(starts.importing),
    "second-start": Entry(starts.second_start, most_rounds=3),
    "zoo": Entry(grow=zoo.measure, most_rounds=5),
    "limits": Entry(grow=growth.limits),
    "by-parameters": Entry(grow=growth.by_parameters, most_rounds=5),
    "by-chains": Entry(grow=growth.by_chains, most_rounds=5),
    "by-draws": Entry(grow=growth.by_draws),
    "by-inner-steps": Entry(grow=growth.by_inner_steps),
}


def run(only: Sequence[str], rounds: int, out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure the named entries, or all; yield each with its record, and write all records so far to `out`.

    A record is the outcome of a contest, `rows` of growth, or the reason under `skipped`. If entries are named, records
    of others in `out` are kept; those of another machine or of other versions say so under `elsewhere`.
    """
    check(rounds >= 1, "rounds", "be a whole number >= 1", rounds)
    names = list(dict.fromkeys(only)) or list(ENTRIES)
    for name in names:
        if name not in ENTRIES:
            raise InputError(f"`only` must be names of measurements; got {name!r}: {nearest(name, ENTRIES)}")
    about = facts()
    kept = _kept(out, about) if only else {}
    for name in names:
        kept[name] = _measured(name, rounds)
        ordered = {name: kept[name] for name in ENTRIES if name in kept}
        files.write_json(out, {**about, "entries": ordered})
        yield name, kept[name]


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Measure an entry in this process, and return its record."""
    entry = ENTRIES[name]
    rounds = min(rounds, entry.most_rounds)
    if entry.make is not None:
        return hold(entry.make(), rounds)
    assert entry.grow is not None
    found = entry.grow(rounds)
    return {"rows": found} if isinstance(found, list) else found


def facts() -> dict[str, Any]:
    """Return what the numbers depend on: versions, and the machine."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    machine = {"cores": os.cpu_count(), "processor": processor(), "system": platform.system()}
    return {"versions": {"python": platform.python_version(), **found}, "machine": machine}


def _measured(name: str, rounds: int) -> dict[str, Any]:
    entry = ENTRIES[name]
    absent = [package for package in entry.needs if peers.missing(package)]
    if absent:
        return {"skipped": f"{' and '.join(absent)} not installed: pip install {' '.join(absent)}, or make bench"}
    try:
        return apart.call(measure, name, rounds, devices=entry.devices)
    except apart.Failed as error:
        return {"skipped": f"failed: {error}"}


def _kept(out: Path, about: dict[str, Any]) -> dict[str, Any]:
    if not out.exists():
        return {}
    found = shaped(files.read_json(out), {"entries": {"*": dict}}, out)
    before = {name: found.get(name) for name in about}
    note = {} if before == about else {"elsewhere": before}
    return {name: {**note, **record} for name, record in found["entries"].items()}
