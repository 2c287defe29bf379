"""The input of `roamax evaluate` and `roamax report`: runs, other predictive distributions, records of earlier runs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import runs
from roamax.data import archives
from roamax.errors import FileError, check
from roamax.host import files
from roamax.sampling.draws import Draws
from roamax.tasks import Task, TaskSpec, build


class Run(NamedTuple):
    """A run read from its folder: its configuration, task, draws so far, and the seconds they took, if known."""

    folder: Path
    config: Mapping[str, Any]
    task: Task
    draws: Draws
    seconds: float | None

    @property
    def seconds_per_step(self) -> float | None:
        """The time per step, if it is known."""
        return None if self.seconds is None else self.seconds / self.draws.steps[-1]


def open_run(folder: str | Path, data_dir: str | Path | None = None) -> Run:
    """Open the run in a folder that `roamax sample` made, finished or still running."""
    folder = Path(folder)
    path = folder / "config.json"
    config = files.read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("task"), dict):
        raise FileError(f"{path} does not say which task it is of: `roamax sample` makes such runs.")
    if not isinstance(config.get("sampler"), dict):
        raise FileError(f"{path} is damaged: it does not say which sampler made the run.")
    with archives.reading(path, "restore it"):
        task = build(TaskSpec(**config["task"]), data_dir)
        like = jax.eval_shape(task.init, jax.random.key(0))
    draws = Draws.load(folder, like=like)
    check(draws.num_samples > 0, "DIR", "hold at least one draw by now", folder)
    for name, what, arrays in (("data", "training", task.train), ("test", "test", task.test)):
        # Runs of earlier versions do not know their test data.
        if name in config and config[name] != runs.fingerprint(arrays):
            raise FileError(f"the {what} data of {task.name} are not those of the run in {folder}: restore the data.")
    return Run(folder, config, task, draws, runs.seconds_taken(folder / "state"))


def read_predictive(path: Path) -> np.ndarray:
    """Read the array `probs` (inputs, classes) of an npz file."""
    rule = "be an npz file with an array `probs` (inputs, classes) of finite numbers"
    with archives.reading(path, f"it must {rule}"):
        arrays = archives.npz_arrays(path, lambda name: name == "probs")
    probs = arrays.get("probs", np.zeros(0))
    if probs.ndim != 2 or probs.dtype.kind != "f" or not np.isfinite(probs).all():
        raise FileError(f"{path} must {rule}; got {probs.dtype} of shape {probs.shape}.")
    return probs


def read_record(path: Path) -> dict[str, Any]:
    """Read a record that `evaluate` made."""
    record = files.read_json(path)
    if not isinstance(record, dict):
        raise FileError(f"{path} is damaged: it is not a record of `roamax evaluate`. Remove it to measure anew.")
    if "num_draws" in record:  # the name in older records
        record["num_samples"] = record.pop("num_draws")
    return record


def names_of(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a name for each run of a comparison: its sampler, with the folder's name if several have the same."""
    records = list(records)
    samplers = [str(record["sampler"].get("name", record["run"])) for record in records]
    return [
        name if samplers.count(name) == 1 else f"{name} ({record['run']})"
        for name, record in zip(samplers, records, strict=True)
    ]
