"""The environment of an experiment: its scale, seeds, workers, and the folder of its chains."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from roamax import data, pretrained
from roamax.errors import FileError, InputError, as_seed, lookup, whole
from roamax.evaluation.compare import Method
from roamax.evaluation.run import read_predictive
from roamax.paper.framework import chain
from roamax.paper.framework.chain import Chain, Setup
from roamax.paper.framework.comparison import Value
from roamax.paper.framework.methods import LEARNED
from roamax.paper.framework.methods import names as method_names
from roamax.paper.framework.problems import OWN, SCALES, Hyper, Problem
from roamax.paper.framework.records import Answer, Records
from roamax.parallel.workers import Here, Workers
from roamax.tasks import Task

Record = Mapping[str, Any]
T = TypeVar("T")


@dataclass
class Lab:
    """The environment of an experiment, which provides problems and the results of functions of their chains.

    `weights` are files that replace the weights that ship, by learned method; `notes` say what an experiment could not
    do and why, one line each.
    """

    scale: str
    runs: Path
    seeds: Sequence[int] = (0, 1, 2)
    weights: Mapping[str, Path] = field(default_factory=dict)
    progress: bool | None = None
    only: Sequence[str] = ()
    """The only problems to run; all of an experiment's if empty."""
    only_methods: Sequence[str] = ()
    """The only methods to run; all of an experiment's if empty."""
    steps: Sequence[int] = ()
    """The lengths of runs, in steps; each problem's own if empty."""
    draws: int | None = None
    """The number of draws, as far apart as ever; each problem's own if None."""
    workers: Workers = field(default_factory=Here)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Hyper] = field(default_factory=dict)
    """The hyperparameters of each method whose chains were asked for, by the problem's label and the method."""
    records: Records = field(default_factory=Records)
    """What was measured of chains in earlier runs, and in this one."""
    spared: dict[Path, float] = field(default_factory=dict)
    """The seconds that had gone into existing results before they were first used here."""

    def problems(self, *names: str) -> list[Problem]:
        """Return the problems of the scale whose data are installed, in each length; notes name the others."""
        known = SCALES[self.scale]
        wanted = [known[name] for name in names if name in known and self.wants(name, known[name].label)]
        installed = [problem.drawing(self.draws) for problem in wanted if self.attempt(problem.task.build)]
        return [problem.lasting(steps) for problem in installed for steps in self.steps or (problem.steps,)]

    def wants(self, name: str, label: str) -> bool:
        """Return whether a problem is to be run; a note names one that is not."""
        if self.only and name not in self.only:
            self.note(f"{label}: not run.")
            return False
        return True

    def methods_of(self, names: Iterable[str]) -> list[str]:
        """Return the methods among these that are to be run; notes name the others."""
        wanted = [name for name in names if name in (self.only_methods or (name,))]
        for name in names:
            if name not in wanted:
                self.note(f"{name}: not run.")
        return wanted

    def setup(self, problem: Problem, name: str, **changed: Any) -> Setup:
        """Return the setup of a method's chains on a problem; `changed` overrides the problem's settings."""
        own: Hyper = {"weights": str(self.weights[name].absolute())} if name in self.weights else {}
        return Setup(problem, name, {**problem.hyper.get(name, {}), **own, **changed})

    def weights_of(self, problem: Problem, name: str) -> str:
        """Return the weights of a learned method on a problem, as `pretrained.resolve` takes them."""
        own = LEARNED[name][1] if name in LEARNED else "pretrained"
        return self.setup(problem, name).hyper.get("weights", own)

    def look(self, of_chain: Callable[[Chain], Any], setups: Sequence[Setup]) -> list[list[Any]]:
        """Call a function on the chains of each setup, which are run unless they exist.

        Args:
            of_chain: A module-level function, since it may be called in another process.
            setups: The setups of the chains.

        Returns:
            For each setup, one result per seed; none, with a note, if a method has no weights or a chain diverges. What
            `records` has is not measured again.
        """
        # In this process, each chain has its own progress bar.
        progress = self.progress if isinstance(self.workers, Here) else False
        # Two setups may have the same chain, such as if a search found the default.
        marks = [self._mark(setup) for setup in setups]
        for setup in setups:
            shipped = setup.hyper.get("weights") in pretrained.names()
            named = {key: value for key, value in setup.hyper.items() if key != "weights" or shipped}
            self.settings[f"{setup.problem.label}, {setup.name}"] = named
        different = dict(zip(marks, setups, strict=True))
        # Seed by seed: all chains of a setup but the first find their compiled programs on disk.
        known = self.records.of(of_chain)
        left = [(seed, mark) for seed in self.seeds for mark in different if chain.name_of(mark, seed) not in known]
        jobs = [(of_chain, different[mark], seed, self.runs, progress) for seed, mark in left]
        answers = self.workers.map(chain.look, jobs) if jobs else []
        new = {chain.name_of(mark, seed): answer for (seed, mark), answer in zip(left, answers, strict=True)}
        self.records.add(of_chain, new)
        found = {mark: [(known | new)[chain.name_of(mark, seed)] for seed in self.seeds] for mark in different}
        for answer in itertools.chain.from_iterable(found.values()):
            for path, seconds in answer.seconds.items():
                self.spared.setdefault(self.runs / path, seconds.before)
        return [self._values(found[mark]) for mark in marks]

    def measure(
        self, problems: Iterable[Problem], names: Iterable[str], of_chain: Callable[[Chain], Record]
    ) -> dict[tuple[str, str], list[Record]]:
        """Call a function on the chains of every problem and method.

        Returns:
            One record per seed, by the problem's label and the method's name; what could not be measured is left out.
        """
        pairs = list(itertools.product(problems, self.methods_of(list(names))))
        found = self.look(of_chain, [self.setup(problem, name) for problem, name in pairs])
        return {
            (problem.label, name): records for (problem, name), records in zip(pairs, found, strict=True) if records
        }

    def methods(self, problem: Problem, names: Iterable[str]) -> Iterator[tuple[Method, Task, Path]]:
        """Yield the methods that can run on a problem, each with its task and the folder of its first seed's chain."""
        for name in names:
            try:
                _, task, method, folder = chain.prepare(self.setup(problem, name), self.seeds[0], self.runs)
            except InputError as error:
                self.note(f"{problem.label}, {name}: {error}")
                continue
            yield method, task, folder

    def _mark(self, setup: Setup) -> str:
        """Return what is the same for setups with the same chains."""
        try:
            return chain.kind_of(chain.prepare(setup, self.seeds[0], self.runs)[-1])
        except InputError:
            return str(setup)

    def _values(self, answers: Sequence[Answer]) -> list[Any]:
        notes = [answer.note for answer in answers if answer.note]
        if notes:
            self.note(notes[0])
        return [] if notes else [answer.value for answer in answers]

    def count_time(self, folder: Path) -> None:
        """Count the time that the run in a folder has taken so far as saved by this experiment."""
        # It had the whole machine, which chains share.
        self.spared.setdefault(folder, chain.seconds_so_far(folder) * self.workers.count)

    def note(self, text: str) -> None:
        """Add a note about what could not be done, once."""
        if text not in self.notes:
            self.notes.append(text)

    def attempt(self, load: Callable[[], T]) -> T | None:
        """Return what a function loads; if data are missing, add a note on how to get them and return None."""
        try:
            return load()
        except FileError as error:
            self.note(str(error))
            return None


def make_lab(
    chains: str | Path,
    *,
    scale: str = "cpu",
    seeds: int = 3,
    seed: int = 0,
    weights: Mapping[str, Path] | None = None,
    problems: Sequence[str] = (),
    methods: Sequence[str] = (),
    steps: Sequence[int] = (),
    draws: int | None = None,
    progress: bool | None = None,
) -> Lab:
    """Check the options of an experiment, as `run_experiment` takes them, and return its environment."""
    seeds, steps = whole(seeds, "seeds"), [whole(count, "steps") for count in steps]
    draws = None if draws is None else whole(draws, "draws")
    as_seed(as_seed(seed) + seeds - 1)
    known = dict.fromkeys((*lookup(SCALES, scale, "scale"), *OWN))
    for name in problems:
        lookup(known, name, "problems")
    for name in weights or {}:
        lookup(LEARNED, name, "weights")
    for name in methods:
        lookup(dict.fromkeys(method_names()), name, "methods")
    home, all_seeds = Path(chains).absolute(), range(seed, seed + seeds)
    return Lab(scale, home, all_seeds, weights or {}, progress, problems, methods, steps, draws)


def published_hmc() -> tuple[np.ndarray, np.ndarray]:
    """Read the published predictions of HMC for the test set of CIFAR-10, and its labels."""
    probs = read_predictive(data.data_dir() / "hmc_cifar10_reference.npz")
    return probs, np.asarray(data.load("cifar10").y_test)


def averaged(
    found: Mapping[tuple[str, str], Sequence[Record]], columns: Sequence[str] | None = None
) -> dict[tuple[str, str], dict[str, Value]]:
    """Return the means over seeds of the records' numbers, or of those in `columns`, with one row per method."""
    return {
        key: {column: Value.over([one[column] for one in records]) for column in columns or records[0]}
        for key, records in found.items()
    }


def methods_as_columns(rows: Mapping[tuple[str, str], Mapping[str, Value]]) -> dict[tuple[str, str], dict[str, Value]]:
    """Transpose the rows of `averaged`: one row per number and problem, with one column per method."""
    turned: dict[tuple[str, str], dict[str, Value]] = {}
    for key in dict.fromkeys(key for row in rows.values() for key in row):
        for (label, name), row in rows.items():
            if key in row:
                turned.setdefault((key, label), {})[name] = row[key]
    return turned
