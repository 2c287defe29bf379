"""Where an experiment runs: its scale, its seeds, and the folder in which chains are kept.

A chain that is there is not run again, whichever experiment asked for it first, and one that was broken off goes on.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import metrics, runs, storage
from roamax.data import augment
from roamax.draws import Draws
from roamax.errors import DivergenceError, FileError, InputError, lookup
from roamax.evaluation import space
from roamax.experiments import methods
from roamax.experiments.compare import Method, score, task_record
from roamax.experiments.problems import SCALES, Hyper, Problem
from roamax.experiments.tables import Value
from roamax.predict import predict, predict_draws
from roamax.sampling import sample
from roamax.tasks import Task, TaskSpec


class Chain(NamedTuple):
    """One method's draws on one problem with one seed."""

    problem: Problem
    task: Task
    method: Method
    draws: Draws
    folder: Path
    seconds_per_step: float

    @property
    def labels(self) -> np.ndarray:
        """The test set's."""
        return np.asarray(self.task.test[1])

    @property
    def log_probs(self) -> np.ndarray:
        """Each draw's log-probabilities on the test set, kept beside the draws."""
        path = self.folder / "predictions.safetensors"
        if path.exists():
            return storage.read_tensors(path)["log_probs"]
        log_probs = predict_draws(self.task.apply, self.draws, self.task.test[0])
        storage.write_bytes(path, storage.pack_tensors({"log_probs": log_probs}))
        return log_probs

    @property
    def space(self) -> dict[str, Any]:
        """The geometry of the draws as `evaluation.space` has it, kept beside them."""
        path = self.folder / "space.json"
        if not path.exists():
            storage.write_json(path, space(self.task, self.draws))
        return storage.read_json(path)

    @property
    def scores(self) -> dict[str, float]:
        """The metrics of the averaged prediction, and the diversity of the draws."""
        if self.task.is_regression:
            return score(self.task, self.draws)
        return metrics.summary(self.log_probs, self.labels)

    def validation_nll(self) -> float:
        """The NLL of the averaged prediction on held-out training data: what may be tuned on."""
        x, y = self.task.valid
        if self.task.is_regression:
            mean, std = predict(self.task.apply, self.draws, x)
            return metrics.gaussian_nll(mean, std, y)
        return metrics.nll(predict(self.task.apply, self.draws, x), y)

    @property
    def average(self) -> np.ndarray:
        """The log-probabilities of the averaged prediction."""
        return np.asarray(metrics.average(self.log_probs))


@dataclass
class Lab:
    """`weights` are files for learned methods to take instead of those that ship.

    `notes` are what an experiment could not do, and why, one line each.
    """

    scale: str
    runs: Path
    seeds: Sequence[int] = (0, 1, 2)
    weights: Mapping[str, Path] = field(default_factory=dict)
    progress: bool | None = None
    only: Sequence[str] = ()
    """Problems to keep to; all of an experiment's where there is none."""
    engine: str = "local"
    address: str | None = None
    """Whether jobs run here one after the other, or as tasks of a Ray cluster, and where that is."""
    notes: list[str] = field(default_factory=list)
    seconds_before: dict[Path, float] = field(default_factory=dict)
    """What chains had taken when they were first asked for: the time that an experiment was spared."""
    _tasks: dict[TaskSpec, Task] = field(default_factory=dict)

    def problems(self, *names: str) -> list[Problem]:
        """Those that the scale has and whose data are here; a note says how to get the others."""
        known = lookup(SCALES, self.scale, "scale")
        for name in self.only:
            lookup(known, name, "problems")
        wanted = [name for name in names if name in known and name in (self.only or names)]
        return [known[name] for name in wanted if self.is_here(known[name].task)]

    def task(self, spec: TaskSpec) -> Task:
        """The task, built once."""
        if spec not in self._tasks:
            self._tasks[spec] = spec.build()
        return self._tasks[spec]

    def chains(self, problem: Problem, name: str, **changed: Any) -> list[Chain]:
        """A method's chains on a problem, one for each seed; none, and a note, where it has no weights or diverges.

        `changed` hyperparameters win over the problem's.
        """
        hyper = {**self.hyper(problem, name), **changed}
        # Every chain compiles its own programs, and the system lets a process keep only so many.
        jax.clear_caches()
        try:
            return [self._chain(problem, name, hyper, seed) for seed in self.seeds]
        except (InputError, DivergenceError) as error:
            self.note(f"{problem.label}, {name}: {error}")
            return []

    def hyper(self, problem: Problem, name: str) -> Hyper:
        """A method's hyperparameters on a problem, and the weights it should take."""
        own = {"weights": str(self.weights[name])} if name in self.weights else {}
        return {**problem.hyper.get(name, {}), **own}

    def methods(self, problem: Problem, names: Iterable[str]) -> Iterator[tuple[Method, Task, Path]]:
        """Methods on a problem that can be run, each with where its chain with the first seed is kept."""
        for name in names:
            try:
                spec, task, method = self._prepare(problem, name, self.hyper(problem, name))
            except InputError as error:
                self.note(f"{problem.label}, {name}: {error}")
                continue
            yield method, task, self._folder(spec, method, self.seeds[0])

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job, run here or on the cluster."""
        engine = lookup({"local": _here, "ray": functools.partial(_on_ray, self.address)}, self.engine, "engine")
        return engine(function, jobs)

    def count_time(self, folder: Path) -> None:
        """Count what the run in a folder has taken so far as time of this experiment, which it is spared."""
        self.seconds_before.setdefault(folder, runs.seconds_taken(folder / "state") or 0.0)

    def note(self, text: str) -> None:
        """Say once what could not be done."""
        if text not in self.notes:
            self.notes.append(text)

    def is_here(self, spec: TaskSpec) -> bool:
        """Whether the task's data are; a note says how to get them if not."""
        try:
            self.task(spec)
        except FileError as error:
            self.note(str(error))
            return False
        return True

    def _chain(self, problem: Problem, name: str, hyper: Hyper, seed: int) -> Chain:
        spec, task, method = self._prepare(problem, name, hyper)
        folder = self._folder(spec, method, seed, bool(hyper.get("augment")))
        self.count_time(folder)
        draws = sample(
            jax.random.key(seed),
            method.sampler,
            task.init,
            task.train if not hyper.get("augment") else _Augmented(task, seed),
            batch_size=None if hyper.get("augment") else method.batch_size,
            burn_in=method.burn_in,
            num_samples=method.num_samples,
            thinning=method.thinning,
            out=folder,
            about={"task": task_record(spec)},
            progress=self.progress,
        )
        seconds = runs.seconds_taken(folder / "state") or 0.0
        return Chain(problem, task, method, draws, folder, seconds / draws.steps[-1])

    def _prepare(self, problem: Problem, name: str, hyper: Hyper) -> tuple[TaskSpec, Task, Method]:
        spec = methods.task_of(problem, hyper)
        task = self.task(spec)
        return spec, task, methods.method(name, problem, task, hyper)

    def _folder(self, spec: TaskSpec, method: Method, seed: int, augmented: bool = False) -> Path:
        digest = _digest(spec, method, augmented)
        return self.runs / f"{_slug(spec.data)}-{_slug(method.name)}-{digest}-seed{seed}"


def _here(function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
    return [function(*job) for job in jobs]


def _on_ray(address: str | None, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
    import ray

    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    remote = ray.remote(function)
    return ray.get([remote.remote(*job) for job in jobs])


class _Augmented:
    """Batches of the training data, cropped and mirrored at random, as a function of the step."""

    def __init__(self, task: Task, seed: int):
        self.data, self.batch_size, self.key = task.train, task.batch_size, jax.random.key(seed)

    def __call__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = _augmented(jax.random.fold_in(self.key, step), self.data, self.batch_size)
        return np.asarray(x), np.asarray(y)


@functools.partial(jax.jit, static_argnames="size")
def _augmented(key: jax.Array, data: Any, size: int) -> Any:
    row_key, image_key = jax.random.split(key)
    rows = jax.random.randint(row_key, (size,), 0, len(data[1]))
    # Four pixels of 32, as is usual: the same share of smaller images.
    return augment(image_key, data[0][rows], padding=data[0].shape[1] // 8), data[1][rows]


def measure(
    lab: Lab, problems: Iterable[Problem], names: Iterable[str], of_chain: Callable[[Chain], Mapping[str, float]]
) -> dict[tuple[str, str], dict[str, Value]]:
    """Numbers of a chain over seeds, for every problem and method: rows of a table that compares methods by row."""
    rows: dict[tuple[str, str], dict[str, Value]] = {}
    for problem, name in itertools.product(problems, list(names)):
        found = [of_chain(chain) for chain in lab.chains(problem, name)]
        if found:
            rows[problem.label, name] = {key: Value.over([one[key] for one in found]) for key in found[0]}
    return rows


def methods_as_columns(rows: Mapping[tuple[str, str], Mapping[str, Value]]) -> dict[tuple[str, str], dict[str, Value]]:
    """The rows of `measure` turned: one for each number and problem, with a column for each method."""
    turned: dict[tuple[str, str], dict[str, Value]] = {}
    for key in dict.fromkeys(key for row in rows.values() for key in row):
        for (label, name), row in rows.items():
            if key in row:
                turned.setdefault((key, label), {})[name] = row[key]
    return turned


def _digest(spec: TaskSpec, method: Method, augmented: bool) -> str:
    """A mark of all that decides the draws but the seed: another setting is another folder."""
    settings = [task_record(spec), dict(method.sampler.settings), *method[2:], augmented]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-").replace("_", "-")
