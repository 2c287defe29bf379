"""A queue of experiments that share their chains, with the hours that are left."""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roamax import runs
from roamax.errors import FileError, InputError, lookup, whole
from roamax.evaluation.compare import step_timer
from roamax.host.machine import usable_cores
from roamax.paper.framework import chain
from roamax.paper.framework.lab import Lab, make_lab
from roamax.paper.framework.records import Records, records_in
from roamax.paper.framework.registry import EXPERIMENTS, run_experiment

ROUNDS, STEPS = 2, 2
"""How often steps are timed, and how many at a time: a step of a large network takes seconds."""


class _Asked(Exception):
    """An experiment asked for its chains."""


class _Planner:
    """Workers that keep the first jobs that they are given, and do none."""

    count = 1
    jobs: Sequence[tuple] = ()

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """Keep the jobs, and leave the experiment."""
        self.jobs = jobs if function is chain.look else ()
        raise _Asked


def chains_of(name: str, lab: Lab, records: Records, pace: dict[str, float]) -> dict[Path, float]:
    """Return the folders of the chains that an experiment asks for first, and the hours that each still takes.

    Args:
        name: The experiment.
        lab: Its environment, without records.
        records: What is known of its chains: those take no more time.
        pace: The seconds per step of each kind of chain, as far as they are known. The others, taken from a chain that
            was begun or measured, are added.

    Returns:
        The hours by folder. Chains of later searches are not among them.
    """
    if not EXPERIMENTS[name].has_chains:
        return {}
    planner = _Planner()
    with contextlib.suppress(_Asked):
        importlib.import_module(f"roamax.paper.{name.replace('-', '_')}").run(
            dataclasses.replace(lab, workers=planner, notes=[], settings={}, spared={})
        )
    hours: dict[Path, float] = {}
    for of_chain, setup, seed, *_ in planner.jobs:
        with contextlib.suppress(InputError):  # such as for lack of weights; the experiment will say so
            _, task, method, folder = chain.prepare(setup, seed, lab.runs)
            if folder.name in records.of(of_chain):
                hours[folder] = 0.0
                continue
            pointer = runs.read_pointer(folder / "state") or {"step": 0, "seconds": 0.0}
            left = method.num_steps - pointer["step"]
            kind = chain.kind_of(folder)
            if pointer["step"]:
                pace[kind] = pointer["seconds"] / pointer["step"]
            elif kind not in pace:
                timer = step_timer(method.sampler, task, STEPS)
                pace[kind] = min(timer() for _ in range(ROUNDS))
            hours[folder] = max(0, left) * pace[kind] / 3600
    return hours


def plan_queue(out: str | Path, *, names: Sequence[str] = (), **options: Any) -> list[dict[str, Any]]:
    """Return what a queue would run: the chains that are left and the hours that they take, on one core.

    Args:
        out: The folder of the queue.
        names: The experiments; all if empty.
        options: Further arguments, as of `run_queue`.

    Returns:
        A record per experiment and kind of chain: `experiment`, `chain`, `chains` and `hours`. A chain that several
        experiments share counts in the first.
    """
    _, asked = _asked(Path(out).absolute(), names, options)
    records: dict[tuple[str, str], dict[str, Any]] = {}
    seen: set[Path] = set()
    for name, chains in asked.items():
        for folder, hours in chains.items():
            kind = chain.kind_of(folder)
            if hours and folder not in seen:
                empty = {"experiment": name, "chain": kind.rpartition("-")[0], "chains": 0, "hours": 0.0}
                record = records.setdefault((name, kind), empty)
                record["chains"] += 1
                record["hours"] += hours
            seen.add(folder)
    return list(records.values())


def run_queue(
    out: str | Path,
    *,
    names: Sequence[str] = (),
    report: Callable[[str], None] = print,
    workers: int | None = None,
    **options: Any,
) -> dict[str, dict[str, Any]]:
    """Run experiments one after the other, or resume where they stopped.

    Each has a folder for its results, and all share one for chains, so that what is there is not run again. With
    `problems`, experiments without chains on these are left out. An experiment that fails does not stop the others.

    Args:
        out: The folder for all of it.
        names: The experiments; all if empty.
        report: Called with a line before each experiment, with the hours left, and after one that fails.
        workers: The number of processes, by default one per core.
        options: Further arguments of `run_experiment`: `scale`, `seeds`, `seed`, `weights`, `problems`, `methods`,
            `draws` and `progress`.

    Returns:
        The content of each results.json, by experiment, without those that failed.
    """
    home = Path(out).absolute()
    count = usable_cores() if workers is None else whole(workers, "workers")
    lab, asked = _asked(home, names, options)
    queue = list(asked)
    results: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(queue):
        done = {folder for earlier in queue[:place] for folder in asked[earlier]}
        left = {folder: hours for later in queue[place:] for folder, hours in asked[later].items() if hours}
        hours = [hours for folder, hours in left.items() if folder not in done]
        report(
            f"{place + 1} of {len(queue)}, {name}: {len(hours)} chains left in the queue, "
            f"about {sum(hours) / count:.1f} hours on {count} cores."
        )
        try:
            results[name] = run_experiment(name, home / name, chains=lab.runs, workers=workers, **options)
        except (InputError, FileError) as error:
            report(f"{name} failed: {error}")
    return results


def _asked(home: Path, names: Sequence[str], options: dict[str, Any]) -> tuple[Lab, dict[str, dict[Path, float]]]:
    """Return the environment of a queue, and the chains of each of its experiments, with the hours they still take."""
    for name in names:
        lookup(EXPERIMENTS, name, "names")
    lab, pace = make_lab(home / "chains", **options), {}
    asked = {name: chains_of(name, lab, records_in(home / name), pace) for name in names or EXPERIMENTS}
    return lab, {name: chains for name, chains in asked.items() if chains or not lab.only}
