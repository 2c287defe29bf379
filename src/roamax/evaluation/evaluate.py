"""Everything measured about a run: scores, calibration, out-of-distribution and corrupted inputs, mixing, geometry.

A record is plain JSON: `metrics.json` holds it, and a report can be made from it without the draws.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from roamax import data, runs
from roamax.data import corruptions
from roamax.errors import InputError, check, whole
from roamax.evaluation import diagnostics, landscape, metrics
from roamax.evaluation.images import as_shape
from roamax.evaluation.predict import predict, predict_draws
from roamax.evaluation.run import Run, read_predictive
from roamax.evaluation.score import by_draws, nll_by_draws, score
from roamax.evaluation.showcase import bands, energies, uncertain_inputs
from roamax.host.progress import progress_bar
from roamax.numerics import trees
from roamax.sampling.draws import Draws
from roamax.tasks import Task

PROBE = 64
"""Inputs on which mixing in function space is measured."""
SURFACE_IMAGES = 1000
"""Test examples for error surfaces and paths: hundreds of networks are evaluated on them."""
BINS = 20


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
    """Measure everything about a run.

    Args:
        run: The run.
        ood: Names of out-of-distribution data sets, to be detected by the confidence of predictions.
        corrupt: Whether to measure accuracy on corrupted images.
        reference: An npz file with another predictive distribution to compare with.
        draws: Use only the first so many draws per chain; None means all.
        data_dir: The folder of the data sets.
        progress: Whether to show a progress bar; None shows it on a terminal only.

    Returns:
        A record, ready for JSON.
    """
    for argument, value in (("ood", ood), ("corruptions", corrupt), ("reference", reference)):
        rule = "not be given for a regression, which has no classes to be confident of"
        check(not (run.task.is_regression and value), argument, rule, value)
    positions = run.draws if draws is None else _first(run.draws, draws)
    # Files that may be missing are opened before anything slow.
    shape = np.shape(run.task.test[0])[1:]
    outside = {name: as_shape(data.load(name, data_dir).x_test, shape, name) for name in ood}
    predictive = None if reference is None else read_predictive(Path(reference))
    corrupted = list(itertools.product(corruptions.KINDS, range(1, 6))) if corrupt else []
    if corrupt and run.config["task"].get("halve"):
        raise InputError("`corruptions` must be measured on images of full size; got a run with `halve`.")
    with progress_bar("evaluating", 3 + len(outside) + len(corrupted), show=progress) as show:
        done = itertools.count(1)

        def report(note: str) -> None:
            show(next(done), note)

        record = _about(run, positions)
        if run.task.is_regression:
            record |= {"nll_by_draws": nll_by_draws(run.task, positions), "bands": bands(run.task, positions)}
            return record | {"scores": score(run.task, positions)}
        report("predictions")
        log_probs = predict_draws(run.task.apply, positions, run.task.test[0])
        average = metrics.average(log_probs)
        report("landscape")
        record |= _of_predictions(run.task, positions, log_probs, average)
        report("out-of-distribution images")
        for name, images in outside.items():
            others = predict(run.task.apply, positions, images)
            record.setdefault("ood", {})[name] = out_of_distribution(average, others)
            report(name)
        if corrupted:
            record["corruptions"] = _corrupted(run, positions, corrupted, data_dir, report)
        if predictive is not None:
            record["reference"] = {
                "agreement": metrics.agreement(average, predictive),
                "total_variation": metrics.total_variation(average, predictive),
            }
        return record


def space(task: Task, draws: Draws, *, batch_size: int = landscape.BATCH_SIZE) -> dict[str, Any]:
    """Measure the geometry of up to ten draws of the first chain, ready for JSON."""
    chosen = Draws.from_positions(trees.at(draws.positions, np.s_[:1, :10]))
    count = chosen.num_samples
    few = tuple(array[:SURFACE_IMAGES] for array in task.test)
    options: dict[str, Any] = {"resolution": 11, "batch_size": batch_size}
    record: dict[str, Any] = {"cosine": landscape.cosine_similarity(chosen).tolist()}
    if count >= 2:
        record["segments"] = _as_lists(landscape.error_segments(task.apply, chosen, few, **options))
    if count >= 3:
        plane = landscape.plane(*(chosen[0, draw] for draw in (0, (count - 1) // 2, count - 1)))
        record["surface"] = _as_lists(landscape.error_surface(task.apply, plane, few, **options))
    return record


def out_of_distribution(average: Any, others: np.ndarray) -> dict[str, Any]:
    """Measure how well confidence separates test data from out-of-distribution data.

    Args:
        average: The averaged log-probabilities on test data, (n, classes).
        others: The averaged probabilities on out-of-distribution data, (m, classes).

    Returns:
        The area under the ROC curve and histograms of confidence, ready for JSON.
    """
    histograms = {
        kind: np.histogram(probs.max(axis=1), BINS, (0.0, 1.0), density=True)[0].tolist()
        for kind, probs in (("known", np.exp(average)), ("foreign", others))
    }
    return {"auroc": metrics.ood_auroc(average, others), "confidence": histograms}


def _first(draws: Draws, count: int) -> Draws:
    count = whole(count, "draws", 1, draws.num_samples)
    return draws[:, :count]


def _about(run: Run, draws: Draws) -> dict[str, Any]:
    """Return the run's provenance, its cost, and how well it mixed."""
    steps, interval = draws.steps, None
    if run.seconds_per_step is not None and len(steps) > 1:
        interval = run.seconds_per_step * (steps[-1] - steps[0]) / (len(steps) - 1)
    outputs = diagnostics.function_space(run.task.apply, draws, run.task.test[0][:PROBE])
    told = energies(draws)
    return {
        **runs.provenance(run.config["task"].get("seed", 0)),
        "run": run.folder.name,
        "task": run.task.name,
        "sampler": dict(run.config["sampler"]),
        "num_chains": draws.num_chains,
        "num_samples": draws.num_samples,
        "cost": {"seconds_per_step": run.seconds_per_step},
        **({} if told is None else {"energy": told}),
        "diagnostics": {
            "parameters": diagnostics.summary(draws, interval),
            "functions": diagnostics.summary(outputs, interval),
        },
    }


def _of_predictions(task: Task, draws: Draws, log_probs: np.ndarray, average: Any) -> dict[str, Any]:
    labels = np.asarray(task.test[1])
    scores = metrics.summary(log_probs, labels) | {"entropy": float(metrics.entropy(average).mean())}
    if len(log_probs) > 1:
        scores["mutual_information"] = float(metrics.mutual_information(log_probs).mean())
    return {
        "scores": scores,
        "by_draws": by_draws(log_probs, labels),
        "uncertain": uncertain_inputs(task.test[0], log_probs, labels),
        "rejection": metrics.rejection_curve(average, labels),
        "reliability": _as_lists(metrics.reliability(average, labels)),
        "traces": _traces(draws, log_probs, labels),
        "space": space(task, draws),
    }


def _traces(draws: Draws, log_probs: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return the NLL of each chain's single draws, and the norm of its positions."""
    shape = (draws.num_samples, draws.num_chains)
    single = np.asarray([metrics.nll(one, labels) for one in log_probs]).reshape(shape)
    norms = np.asarray([float(jnp.sqrt(trees.squared_norm(position))) for position in draws]).reshape(shape)
    return {"step": list(draws.steps), "nll": single.T.tolist(), "norm": norms.T.tolist()}


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


def _as_lists(arrays: Any) -> Mapping[str, Any]:
    """Return the fields of a named tuple of arrays, ready for JSON."""
    return {name: np.asarray(values).tolist() for name, values in arrays._asdict().items()}
