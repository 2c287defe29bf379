"""Weights of a learned sampler as a file, and the card beside it that says how they came about."""

import datetime
import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np

from roamax.host import files
from roamax.meta.checkpoint import TrainState
from roamax.meta.config import TrainConfig
from roamax.meta.families import settings
from roamax.meta.jobs import eligible
from roamax.numerics import trees
from roamax.tasks import TaskDistribution


def write_weights(folder: Path, config: TrainConfig, tasks: TaskDistribution, state: TrainState) -> None:
    """Write the best weights so far, `weights.safetensors`, with their card, `weights.json`."""
    tensors = {name.replace("/", "."): np.asarray(leaf) for name, leaf in trees.named_leaves(state.best).items()}
    files.write_bytes(folder / "weights.safetensors", files.pack_tensors(tensors))
    files.write_json(folder / "weights.json", card(config, tasks, state))


def card(config: TrainConfig, tasks: TaskDistribution, state: TrainState) -> dict[str, Any]:
    """What a user of the weights needs to know: settings first, then their history."""
    begun = [stage for number, stage in enumerate(config.stages) if _begin(config, number) < max(state.step, 1)]
    seen = {tasks.names()[place] for stage in begun for place in eligible(stage.only, tasks.names())}
    names = [name.split("/", 1) if "/" in name else ["own", name] for name in seen]
    return {
        "sampler": config.sampler,
        **settings(config),
        "objective": config.objective,
        "tasks": config.tasks,
        "data": sorted({data for data, _ in names}),
        "architectures": sorted({model for _, model in names}),
        "estimator": [stage.estimator for stage in begun],
        "inner_steps": [stage.inner_steps for stage in begun],
        "outer_steps": state.step,
        "started_from": config.weights,
        "seed": config.seed,
        "meta_loss": state.best_loss,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("roamax"),
    }


def _begin(config: TrainConfig, number: int) -> int:
    return sum(stage.outer_steps for stage in config.stages[:number])
