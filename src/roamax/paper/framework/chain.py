"""A chain of an experiment: one method's draws on one problem with one seed, and measures of them, kept on disk.

A chain that exists is not run again, whichever experiment ran it, and an interrupted one resumes.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import runs
from roamax.data import augment
from roamax.errors import DivergenceError, InputError, shaped
from roamax.evaluation import metrics
from roamax.evaluation.compare import Method
from roamax.evaluation.evaluate import space
from roamax.evaluation.predict import mixture_nll, predict, predict_draws
from roamax.evaluation.score import score
from roamax.host import files
from roamax.paper.framework import methods
from roamax.paper.framework.comparison import SCORES
from roamax.paper.framework.problems import Hyper, Problem
from roamax.paper.framework.records import Answer, Seconds
from roamax.sampling.draws import Draws
from roamax.sampling.runner import sample
from roamax.tasks import Task, TaskSpec

CHAINS_IN_MEMORY = 16
"""The number of chains after which caches are cleared: each compiles its own programs, and the system limits how many a
process can map."""
_count = itertools.count(1)


class Setup(NamedTuple):
    """Everything that determines a chain except its seed."""

    problem: Problem
    name: str
    hyper: Hyper
    """All hyperparameters of the method, in the terms of `problems`."""


class Chain(NamedTuple):
    """One method's draws on one problem with one seed."""

    problem: Problem
    task: Task
    method: Method
    draws: Draws
    folder: Path
    seconds: dict[Path, Seconds]
    """The time that went into it and into the files that were used."""

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds of its steps, without compilation."""
        return runs.cpu_seconds_taken(self.folder / "state") or 0.0

    @property
    def labels(self) -> np.ndarray:
        """The labels of the test set."""
        return np.asarray(self.task.test[1])

    @property
    def log_probs(self) -> np.ndarray:
        """Each draw's log-probabilities on the test set, kept in the chain's folder."""
        path = self.folder / "predictions.safetensors"
        existed = path.exists()
        if not existed:
            begun = time.monotonic()
            log_probs = predict_draws(self.task.apply, self.draws, self.task.test[0])
            arrays = {"log_probs": log_probs, "seconds": np.asarray(time.monotonic() - begun)}
            files.write_bytes(path, files.pack_tensors(arrays))
        arrays = files.read_tensors(path)
        self._count(path, float(arrays.get("seconds", 0.0)), existed)
        return arrays["log_probs"]

    @property
    def space(self) -> dict[str, Any]:
        """The geometry of the draws, by `evaluate.space`, kept in the chain's folder."""
        path = self.folder / "space.json"
        existed = path.exists()
        if not existed:
            begun = time.monotonic()
            record = space(self.task, self.draws)
            files.write_json(path, {**record, "seconds": time.monotonic() - begun})
        record = shaped(files.read_json(path), {"cosine": [list], "seconds?": float}, path, "Remove it.")
        self._count(path, record.get("seconds", 0.0), existed)
        return record

    def _count(self, path: Path, seconds: float, existed: bool) -> None:
        self.seconds.setdefault(path, Seconds(seconds if existed else 0.0, seconds))

    @property
    def scores(self) -> dict[str, float]:
        """The metrics of the averaged prediction, and the diversity of the draws."""
        if self.task.is_regression:
            return score(self.task, self.draws)
        return metrics.summary(self.log_probs, self.labels)

    @property
    def average(self) -> np.ndarray:
        """The log-probabilities of the averaged prediction."""
        return np.asarray(metrics.average(self.log_probs))

    def predict(self, x: Any) -> Any:
        """Compute the averaged prediction at other inputs."""
        return predict(self.task.apply, self.draws, x)

    def validation_nll(self) -> float:
        """Compute the NLL of the averaged prediction on validation data, the target of tuning."""
        x, y = self.task.valid
        if self.task.is_regression:
            return mixture_nll(self.task.apply, self.draws, x, y)
        return metrics.nll(self.predict(x), y)


def scores(chain: Chain) -> dict[str, float]:
    """Compute accuracy, NLL and calibration error of the averaged prediction, and the diversity of its draws."""
    return {column: chain.scores[column.lower()] for column in SCORES}


def look(of_chain: Callable[[Chain], Any], setup: Setup, seed: int, home: Path, progress: bool | None) -> Answer:
    """Run a chain, or take an existing one, and call a function on it, in any process."""
    if next(_count) % CHAINS_IN_MEMORY == 0:
        jax.clear_caches()
    spent: dict[Path, Seconds] = {}
    value, note, is_final = None, None, True
    try:
        value = of_chain(_run(setup, seed, home, progress, spent))
    except (InputError, DivergenceError) as error:
        note, is_final = f"{setup.problem.label}, {setup.name}: {error}", isinstance(error, DivergenceError)
    seconds = {path.relative_to(home).as_posix(): seconds for path, seconds in spent.items()}
    return Answer(value, note, seconds, is_final)


def prepare(setup: Setup, seed: int, home: Path) -> tuple[TaskSpec, Task, Method, Path]:
    """Return the task with the prior that the method is tuned to, the method on it, and the chain's folder."""
    spec = methods.task_of(setup.problem, setup.hyper)
    task = spec.build()
    method = methods.method(setup.name, setup.problem, task, setup.hyper)
    # A hash of everything that determines the draws except the seed: another setting is another folder.
    settings = [dataclasses.asdict(spec), method.sampler.settings, *method[2:], bool(setup.hyper.get("augment"))]
    settings += [setup.hyper["scale"]] if "scale" in setup.hyper else []
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return spec, task, method, home / name_of(f"{_slug(spec.data)}-{_slug(method.name)}-{digest}", seed)


def name_of(kind: str, seed: int) -> str:
    """Return the name of a chain's folder."""
    return f"{kind}-seed{seed}"


def kind_of(folder: Path) -> str:
    """Return what the names of chains that differ in their seed alone have in common."""
    return folder.name.rpartition("-seed")[0]


def seconds_so_far(folder: Path) -> float:
    """Return the seconds that the run in a folder has taken so far."""
    return runs.seconds_taken(folder / "state") or 0.0


def _run(setup: Setup, seed: int, home: Path, progress: bool | None, spent: dict[Path, Seconds]) -> Chain:
    spec, task, method, folder = prepare(setup, seed, home)
    augmented = bool(setup.hyper.get("augment"))
    before = seconds_so_far(folder)
    draws = sample(
        jax.random.key(seed),
        method.sampler,
        task.init,
        _Augmented(task, seed) if augmented else task.train,
        batch_size=None if augmented else method.batch_size,
        burn_in=method.burn_in,
        num_samples=method.num_samples,
        thinning=method.thinning,
        out=folder,
        about={"task": dataclasses.asdict(spec)},
        progress=progress,
    )
    spent[folder] = Seconds(before, seconds_so_far(folder))
    draws = methods.finished(setup.name, jax.random.key(seed), setup.problem, setup.hyper, draws)
    return Chain(setup.problem, task, method, draws, folder, spent)


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
    # The usual four pixels of 32, and the same share of smaller images.
    return augment(image_key, data[0][rows], padding=data[0].shape[1] // 8), data[1][rows]


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-").replace("_", "-")
