"""The input of `roamax evaluate` and `roamax report`: runs, other predictive distributions, records of earlier runs."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import runs
from roamax.data import archives
from roamax.errors import FileError, InputError, check, shaped, shown
from roamax.evaluation.metrics import Reliability
from roamax.host import files
from roamax.sampling.draws import Draws
from roamax.tasks import Task, TaskSpec, build

CONFIG = {"task": {"data": str, "model": str}, "sampler": dict}
"""The fields of a run's `config.json` that are needed here."""
_ANY = (float, None)
RECORD = {
    "seed": int, "run": str, "task": str, "sampler": {"name?": str}, "num_chains": int, "num_samples": int,
    "cost": {"seconds_per_step": _ANY},
    "scores": {"*": _ANY},
    "diagnostics": {
        "parameters": {"chain_rhat_share": _ANY, "chain_rhat_share_by_layer": {"*": {"*": _ANY}}},
        "functions?": {"rhat_share?": _ANY, "chain_rhat_share?": _ANY},
    },
    "ood?": {"*": {"auroc": float, "confidence": {"known": [float], "foreign": [float]}}},
    "energy?": {"step": [int], "energy": [[_ANY]], "first_draw": int, "divergent": int},
    "nll_by_draws?": {"draws": [float], "nll": [_ANY]},
    "bands?": {
        "axis": str, "x": [float], "mean": [float], "epistemic": [float], "total": [float],
        "points": {"x": [float], "y": [float]},
    },
}  # fmt: skip
"""The fields of `metrics.json` that a report shows."""
CLASSIFIED = {
    "by_draws": {"draws": [float], "acc": [_ANY], "nll": [_ANY], "ece": [_ANY]},
    "reliability": {field: [_ANY] for field in Reliability._fields},
    "traces": {"step": [int], "nll": [[_ANY]], "norm": [[_ANY]]},
    "rejection?": {"rejected": [float], "acc": [float]},
    "uncertain?": [
        {
            "row": int,
            "label": int,
            "classes": [int],
            "mean": [float],
            "sd": [float],
            "image?": ([[int]], [[[int]]]),
        }
    ],
    "space": {
        "cosine": [[float]],
        "segments?": {"t": [float], "error": [[float]], "error_barrier": [float]},
        "surface?": {"a": [float], "b": [float], "error": [[float]], "points": [[float]]},
    },
}
"""Those that it shows of classification only."""


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
    config = shaped(files.read_json(path), CONFIG, path, "`roamax sample` makes such runs.")
    try:
        task = build(_spec(config["task"], path), data_dir)
    except InputError as error:
        raise FileError(f"{path} names a task that cannot be built: {error}") from error
    like = jax.eval_shape(task.init, jax.random.key(0))
    draws = Draws.load(folder, like=like)
    check(draws.num_samples > 0, "DIR", "hold at least one draw by now", folder)
    for name, what, arrays in (("data", "training", task.train), ("test", "test", task.test)):
        # Runs of earlier versions do not know their test data.
        if name in config and config[name] != runs.fingerprint(arrays):
            raise FileError(f"the {what} data of {task.name} are not those of the run in {folder}: restore the data.")
    return Run(folder, config, task, draws, runs.seconds_taken(folder / "state"))


def _spec(fields: Mapping[str, Any], path: Path) -> TaskSpec:
    known = {field.name for field in dataclasses.fields(TaskSpec)}
    if not fields.keys() <= known:
        raise FileError(f"{path} is of another version: its task has the unknown field {min(fields.keys() - known)!r}.")
    try:
        return TaskSpec(**fields)
    except InputError as error:
        raise FileError(f"{path} is damaged: {error}") from error


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
    if isinstance(record, dict) and "num_draws" in record:  # the name in older records
        record["num_samples"] = record.pop("num_draws")
    remedy = "Remove it to measure anew."
    shaped(record, RECORD, path, remedy)
    if "by_draws" in record:
        shaped(record, CLASSIFIED, path, remedy)
    for name, curves in (_curves(record) | (_classified_curves(record) if "by_draws" in record else {})).items():
        if len(set(map(len, curves))) > 1:
            raise FileError(f"{path} is damaged: its {name} have different lengths. {remedy}")
    return record


def _curves(record: Mapping[str, Any]) -> dict[str, list[list]]:
    """Return lists of a record that must have one length, by the name of what they belong to."""
    curves = {}
    if "energy" in record:
        curves["energies"] = [record["energy"]["step"], *record["energy"]["energy"]]
    if "nll_by_draws" in record:
        curves["nll_by_draws"] = list(record["nll_by_draws"].values())
    if "bands" in record:
        bands = record["bands"]
        curves["bands"] = [bands[name] for name in ("x", "mean", "epistemic", "total")]
        curves["points of the bands"] = list(bands["points"].values())
    return curves


def _classified_curves(record: Mapping[str, Any]) -> dict[str, list[list]]:
    traces, space = record["traces"], record["space"]
    curves = {
        "by_draws": list(record["by_draws"].values()),
        "reliability": list(record["reliability"].values()),
        "traces": [traces["step"], *traces["nll"], *traces["norm"]],
        "cosines": [space["cosine"], *space["cosine"]],
    }
    if "rejection" in record:
        curves["rejection"] = list(record["rejection"].values())
    for number, one in enumerate(record.get("uncertain", ())):
        curves[f"classes of the uncertain input {number}"] = [one[name] for name in ("classes", "mean", "sd")]
        image = one.get("image", [])
        curves[f"rows of the uncertain image {number}"] = image
        colours = [pixel for row in image for pixel in row if isinstance(pixel, list)]
        curves[f"colours of the uncertain image {number}"] = [[0, 0, 0], *colours]
    if "segments" in space:
        curves["segments"] = [space["segments"]["t"], *space["segments"]["error"]]
    if "surface" in space:
        surface = space["surface"]
        curves |= {"rows of the surface": [surface["a"], *surface["error"]]}
        curves |= {"columns of the surface": [surface["b"], surface["error"]]}
        curves |= {"points of the surface": [[0, 0], *surface["points"]]}
    return curves


def names_of(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a name for each run of a comparison: its sampler, with the folder's name if several have the same."""
    records = list(records)
    samplers = [shown(record["sampler"].get("name", record["run"]), 40) for record in records]
    return [
        name if samplers.count(name) == 1 else f"{name} ({shown(record['run'], 40)})"
        for name, record in zip(samplers, records, strict=True)
    ]
