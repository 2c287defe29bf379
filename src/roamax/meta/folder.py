"""The folder of a meta-training run.

config.json          the arguments that determine the result
log.csv, log.png     one row per outer step, and a plot of it
state/               the checkpoint to resume from
weights.safetensors  the weights with the best validation loss so far, and weights.json, their card
results.json         a summary, once the run is finished
"""

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roamax import runs
from roamax.data.registry import REGISTRY
from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.meta import checkpoint
from roamax.meta import config as configs
from roamax.meta.checkpoint import TrainState
from roamax.meta.config import TrainConfig
from roamax.meta.families import settings
from roamax.meta.jobs import eligible
from roamax.numerics import trees
from roamax.tasks import Task, TaskDistribution, TaskSpec
from roamax.types import MetaParams

KINDS = {False: "classification", True: "regression"}


def settle(
    out: Path, config: TrainConfig, tasks: TaskDistribution, written: dict[str, Any] | None
) -> Mapping[str, Any]:
    """Return the arguments of the run in `out`, where `written` are, or raise an `InputError` if these are another's.

    Unfinished stages may grow, and stages may be added.
    """
    arguments: dict[str, Any] = {**configs.to_json(config), "task_names": tasks.names()}
    if written is None:
        return arguments
    before = as_arguments(out / "config.json", written)
    pointer = checkpoint.read_pointer(out / "state")
    step = 0 if pointer is None else pointer["step"]
    ends = np.cumsum([stage["outer_steps"] for stage in before["stages"].values()])
    growing = tuple(f"stages.{i}.outer_steps" for i, end in enumerate(ends) if end >= step)
    known = {name: stage for name, stage in arguments["stages"].items() if name in before["stages"]}
    runs.check_same(out, before, {**arguments, "stages": known}, growing)
    return {**written, "stages": arguments["stages"]} if "run" in written else arguments


def as_arguments(path: Path, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was `written` in `path` under today's names, with defaults for newer settings."""
    known = {name: value for name, value in written.items() if name not in ("task_names", "run")}
    try:
        return {**configs.to_json(configs.from_json(known)), "task_names": written.get("task_names")}
    except InputError as error:
        raise FileError(f"{path} is damaged or of another version: {str(error).splitlines()[0]:.160}") from error


def write_weights(folder: Path, config: TrainConfig, tasks: TaskDistribution, state: TrainState) -> None:
    """Write the best weights so far, `weights.safetensors`, with their card, `weights.json`."""
    files.write_bytes(folder / "weights.safetensors", pack_weights(state.best))
    files.write_json(folder / "weights.json", card(config, tasks, state))


def pack_weights(weights: MetaParams) -> bytes:
    """Return the content of a safetensors file with the weights."""
    return files.pack_tensors({name.replace("/", "."): leaf for name, leaf in trees.named_leaves(weights).items()})


def card(config: TrainConfig, tasks: TaskDistribution, state: TrainState) -> dict[str, Any]:
    """Return the card of the weights: the settings to use them with, then their history."""
    last, _ = config.stage_at(max(state.step, 1) - 1)
    begun = config.stages[: last + 1]
    seen = {tasks.names()[place] for stage in begun for place in eligible(stage.only, tasks.names())}
    names = [name.split("/", 1) if "/" in name else ["own", name] for name in seen]
    return {
        "sampler": config.sampler,
        **settings(config),
        "objective": config.objective,
        "tasks": config.tasks,
        "data": sorted({data for data, _ in names}),
        "architectures": sorted({model for _, model in names}),
        **_problems([task for task in tasks if task.name in seen]),
        "estimator": [stage.estimator for stage in begun],
        "inner_steps": [stage.inner_steps for stage in begun],
        "outer_steps": state.step,
        "started_from": config.weights,
        "seed": config.seed,
        "meta_loss": state.best_loss,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("roamax"),
    }


def _problems(tasks: Sequence[TaskSpec | Task]) -> dict[str, Any]:
    """Return the least and the most training examples, and the kinds, as far as they are known without the data."""
    sizes, kinds = set(), set()
    for task in tasks:
        if isinstance(task, Task):
            sizes.add(task.posterior.num_data)
            kinds.add(KINDS[task.is_regression])
        elif (entry := REGISTRY.get(task.data)) is not None:
            sizes.add(task.train_size or entry.num_train)
            kinds.add(KINDS[entry.classes == 0])
    return {"num_data": [min(sizes), max(sizes)], "kinds": sorted(kinds)} if sizes else {}


def write_results(folder: Path, config: TrainConfig, state: TrainState) -> None:
    """Write the summary of a finished run, `results.json`."""
    results = {
        **runs.provenance(config.seed),
        "validation_loss": state.best_loss,
        "outer_steps": state.step,
        "inner_gradients": state.inner_gradients,
        "seconds": round(state.seconds, 1),
    }
    files.write_json(folder / "results.json", results)
