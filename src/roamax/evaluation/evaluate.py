"""All that can be said of a run: scores, calibration, foreign and corrupted inputs, mixing, and the shape of the space.

A record is plain JSON, so that `metrics.json` holds it and a report can be made from it without the draws.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import data, runs
from roamax.data import archives, corruptions
from roamax.errors import FileError, InputError, check
from roamax.evaluation import diagnostics, landscape, metrics
from roamax.evaluation.predict import predict, predict_draws
from roamax.host import files
from roamax.host.progress import progress_bar
from roamax.numerics import trees
from roamax.sampling.draws import Draws
from roamax.tasks import Task, TaskSpec, build
from roamax.types import Params

PROBE = 64
"""Inputs on which mixing in function space is measured."""
SURFACE_IMAGES = 1000
"""Test examples for error surfaces and paths: hundreds of networks are evaluated on them."""
BINS = 20


class Run(NamedTuple):
    """A run folder read back: what made it, its task and its draws so far."""

    folder: Path
    config: Mapping[str, Any]
    task: Task
    draws: Draws
    seconds: float | None


def open_run(folder: str | Path, data_dir: str | Path | None = None) -> Run:
    """The run in a folder that `roamax sample` made, finished or still running."""
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
    return Run(folder, config, task, draws, runs.seconds_taken(folder / "state"))


def evaluate(
    run: Run,
    *,
    ood: Sequence[str] = (),
    corrupt: bool = False,
    reference: str | Path | None = None,
    draws: int | None = None,
    data_dir: str | Path | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Everything about a run, as JSON holds it. `draws` limits how many of each chain are used.

    `progress=None` shows a bar where standard error is a terminal.
    """
    positions = run.draws if draws is None else _first(run.draws, draws)
    # What can be missing is looked for before anything that takes long.
    foreign = {name: _foreign_images(run, name, data_dir) for name in ood}
    other = None if reference is None else read_predictive(Path(reference))
    corrupted = list(itertools.product(corruptions.KINDS, range(1, 6))) if corrupt else []
    if corrupt and run.config["task"].get("halve"):
        raise InputError("`corruptions` must be measured on images of full size; got a run with `halve`.")
    with progress_bar("evaluating", 3 + len(foreign) + len(corrupted), show=progress) as report:
        done = itertools.count(1)
        return _measure(run, positions, foreign, other, corrupted, data_dir, lambda note: report(next(done), note))


def _measure(
    run: Run,
    positions: Draws,
    foreign: Mapping[str, np.ndarray],
    reference: np.ndarray | None,
    corrupted: Sequence[tuple[str, int]],
    data_dir: str | Path | None,
    report: Callable[[str], None],
) -> dict[str, Any]:
    steps = positions.steps
    record: dict[str, Any] = {
        **runs.provenance(run.config["task"].get("seed", 0)),
        "run": run.folder.name,
        "task": run.task.name,
        "sampler": dict(run.config["sampler"]),
        "num_chains": positions.num_chains,
        "num_samples": positions.num_samples,
        "cost": {"seconds_per_step": None if run.seconds is None else run.seconds / run.draws.steps[-1]},
        "diagnostics": _diagnostics(run, positions, steps),
    }
    x, y = run.task.test
    if run.task.is_regression:
        return record | _regression(run.task, positions)
    report("predictions")
    log_probs = predict_draws(run.task.apply, positions, x)
    average = metrics.average(log_probs)
    report("landscape")
    record |= {
        "scores": metrics.summary(log_probs, y) | {"entropy": float(metrics.entropy(average).mean())},
        "by_draws": by_draws(log_probs, np.asarray(y)),
        "reliability": {name: values.tolist() for name, values in metrics.reliability(average, y)._asdict().items()},
        "traces": _traces(positions, log_probs, np.asarray(y)),
        "space": space(run.task, positions),
    }
    if len(log_probs) > 1:
        record["scores"]["mutual_information"] = float(metrics.mutual_information(log_probs).mean())
    report("foreign images")
    for name, images in foreign.items():
        record.setdefault("ood", {})[name] = _foreign(run, positions, average, images)
        report(name)
    if corrupted:
        record["corruptions"] = _corrupted(run, positions, corrupted, data_dir, report)
    if reference is not None:
        record["reference"] = {
            "agreement": metrics.agreement(average, reference),
            "total_variation": metrics.total_variation(average, reference),
        }
    return record


def by_draws(log_probs: np.ndarray, labels: np.ndarray) -> dict[str, list[float]]:
    """Scores of the average over the first 1, 2, 5, 10, ... draws: the paper's main figure."""
    counts = _round_numbers(len(log_probs))
    averages = [metrics.average(log_probs[:k]) for k in counts]
    curves: dict[str, list[float]] = {"draws": [float(k) for k in counts]}
    for name, metric in (("acc", metrics.accuracy), ("nll", metrics.nll), ("ece", metrics.ece)):
        curves[name] = [metric(average, labels) for average in averages]
    return curves


def _round_numbers(most: int) -> list[int]:
    """1 to 10, then steps that grow with the number, and the last."""
    numbers = {*range(1, min(most, 10) + 1), most}
    return sorted(numbers | {k for k in (12, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000) if k < most})


def _first(draws: Draws, count: int) -> Draws:
    check(1 <= count <= draws.num_samples, "draws", f"be from 1 to the {draws.num_samples} of each chain", count)
    return Draws.from_positions(jax.tree.map(lambda leaf: leaf[:, :count], draws.positions))


def _diagnostics(run: Run, draws: Draws, steps: Sequence[int]) -> dict[str, Any]:
    x, _ = run.task.test
    interval = None
    if run.seconds is not None and len(steps) > 1:
        interval = run.seconds / run.draws.steps[-1] * (steps[-1] - steps[0]) / (len(steps) - 1)
    outputs = diagnostics.function_space(run.task.apply, draws, x[:PROBE])
    return {
        "parameters": diagnostics.summary(draws, interval),
        "functions": diagnostics.summary(outputs, interval),
    }


def _regression(task: Task, draws: Draws) -> dict[str, Any]:
    x, y = task.test
    mean, std = predict(task.apply, draws, x)
    scores = {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.gaussian_nll(mean, std, y),
        "coverage": metrics.coverage(mean, std, y),
    }
    return {"scores": scores}


def _traces(draws: Draws, log_probs: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """How each chain went: the NLL of its single draws, and the norm of its positions."""
    shape = (draws.num_samples, draws.num_chains)
    single = np.asarray([metrics.nll(one, labels) for one in log_probs]).reshape(shape)
    norms = np.asarray([float(jnp.sqrt(trees.squared_norm(position))) for position in draws]).reshape(shape)
    return {"step": list(draws.steps), "nll": single.T.tolist(), "norm": norms.T.tolist()}


def space(task: Task, draws: Draws, *, batch_size: int = landscape.BATCH_SIZE) -> dict[str, Any]:
    """The geometry of up to ten draws of the first chain."""
    chosen = Draws.from_positions(jax.tree.map(lambda leaf: leaf[:1, :10], draws.positions))
    record: dict[str, Any] = {"cosine": landscape.cosine_similarity(chosen).tolist()}
    few = tuple(array[:SURFACE_IMAGES] for array in task.test)
    if chosen.num_samples >= 2:
        pairs = list(itertools.pairwise(range(chosen.num_samples)))
        segments = landscape.error_segments(task.apply, chosen, few, pairs=pairs, resolution=11, batch_size=batch_size)
        record["segments"] = {name: np.asarray(values).tolist() for name, values in segments._asdict().items()}
    if chosen.num_samples >= 3:
        first, second, third = (_as_arrays(chosen[0, d]) for d in _spread(chosen.num_samples))
        plane = landscape.plane(first, second, third)
        surface = landscape.error_surface(task.apply, plane, few, resolution=11, batch_size=batch_size)
        record["surface"] = {name: np.asarray(values).tolist() for name, values in surface._asdict().items()}
    return record


def _spread(count: int) -> tuple[int, int, int]:
    return 0, (count - 1) // 2, count - 1


def _as_arrays(position: Params) -> Params:
    return jax.tree.map(jnp.asarray, position)


def _foreign_images(run: Run, name: str, data_dir: str | Path | None) -> np.ndarray:
    return as_shape(data.load(name, data_dir).x_test, np.shape(run.task.test[0])[1:], name)


def _foreign(run: Run, draws: Draws, average: Any, images: np.ndarray) -> dict[str, Any]:
    foreign = predict(run.task.apply, draws, images)
    histograms = {
        kind: np.histogram(probs.max(axis=1), BINS, (0.0, 1.0), density=True)[0].tolist()
        for kind, probs in (("known", np.exp(average)), ("foreign", foreign))
    }
    return {"auroc": metrics.ood_auroc(average, foreign), "confidence": histograms}


def as_shape(x: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Images brought to the height, width and channels that a network takes: averaged down, or grey made RGB."""
    if x.ndim != 4 or len(shape) != 3:
        if x.shape[1:] == shape:
            return x
        raise InputError(f"`ood` must name data of shape {shape}; got {name!r} of shape {x.shape[1:]}.")
    height, width, channels = shape
    if x.shape[1] == 2 * height and x.shape[2] == 2 * width:
        blocks = x.reshape(len(x), height, 2, width, 2, x.shape[3]).mean(axis=(2, 4))
        x = np.rint(blocks).astype(np.uint8)
    if x.shape[1:3] != (height, width):
        import skimage.transform

        resized = [np.asarray(skimage.transform.resize(image, (height, width), anti_aliasing=True)) for image in x]
        x = np.rint(np.stack(resized) * 255).astype(np.uint8)
    if x.shape[3] != channels:
        x = np.repeat(x, channels, axis=3) if channels == 3 else np.rint(x.mean(axis=3, keepdims=True)).astype(np.uint8)
    return x


def _corrupted(
    run: Run,
    draws: Draws,
    kinds: Iterable[tuple[str, int]],
    data_dir: str | Path | None,
    report: Callable[[str], None],
) -> dict[str, Any]:
    predictions, labels = {}, np.zeros(0)
    for kind, severity in kinds:
        x, labels = data.corrupted(run.config["task"]["data"], kind, severity, data_dir)
        predictions[kind, severity] = predict(run.task.apply, draws, x)
        report(f"{kind} {severity}")
    return {
        kind: {str(severity): value for severity, value in row.items()}
        for kind, row in metrics.by_corruption(predictions, labels).items()
    }


def read_predictive(path: Path) -> np.ndarray:
    """The array `probs` (inputs, classes) of an npz file."""
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
    if "num_draws" in record:  # as records of before call it
        record["num_samples"] = record.pop("num_draws")
    return record


def names_of(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """A name for each run of a comparison: its sampler, with the folder's name where samplers repeat."""
    records = list(records)
    samplers = [str(record["sampler"].get("name", record["run"])) for record in records]
    return [
        name if samplers.count(name) == 1 else f"{name} ({record['run']})"
        for name, record in zip(samplers, records, strict=True)
    ]
