"""Predictions for people to look at: the most uncertain inputs of a classifier, the bands of a regression."""

from typing import Any

import numpy as np

from roamax.evaluation import diagnostics, metrics
from roamax.sampling.draws import Draws
from roamax.tasks import Task

INPUTS, CLASSES = 8, 3
"""The inputs that are shown, and how many of the most probable classes of each."""
GRID, POINTS, INTERVALS = 120, 200, 60
"""Inputs of a curve, data points beside it, and test examples whose intervals are shown where inputs are no number."""
LARGEST = 96
"""The largest height and width of an image that a record holds."""


def uncertain_inputs(x: Any, log_probs: np.ndarray, labels: np.ndarray, count: int = INPUTS) -> list[dict[str, Any]]:
    """Describe the inputs whose averaged prediction has the highest entropy, ready for JSON.

    Args:
        x: The inputs.
        log_probs: Each draw's log-probabilities, (draws, n, classes).
        labels: The labels, (n,).
        count: How many to describe.

    Returns:
        Most uncertain first: the row, its label, the most probable classes with the mean and the standard deviation of
        their probability over draws, and the image, if it is one.
    """
    order = np.argsort(-np.asarray(metrics.entropy(metrics.average(log_probs))), kind="stable")
    return [describe_input(x, log_probs, labels, int(row)) for row in order[:count]]


def describe_input(x: Any, log_probs: np.ndarray, labels: np.ndarray, row: int) -> dict[str, Any]:
    """Describe the prediction for one input, as `uncertain_inputs` does."""
    probs = np.exp(np.asarray(log_probs)[:, row])
    mean = probs.mean(axis=0)
    top = np.argsort(-mean, kind="stable")[:CLASSES]
    found = {"row": row, "label": int(labels[row]), "classes": top.tolist(), "mean": mean[top].tolist(),
             "sd": probs.std(axis=0)[top].tolist()}  # fmt: skip
    image = as_image(np.asarray(x[row]))
    return found if image is None else found | {"image": image.tolist()}


def as_image(pixels: np.ndarray) -> np.ndarray | None:
    """Return pixels from 0 to 255, (height, width) if grey or (height, width, 3); None unless they are an image."""
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or max(pixels.shape) > LARGEST:
        return None
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = np.rint((pixels - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return pixels[..., 0] if pixels.shape[2] == 1 else pixels


def bands(task: Task, draws: Draws) -> dict[str, Any]:
    """Describe the predictions of a regression and their uncertainty, ready for JSON.

    A single input is laid out on a grid that reaches beyond the training data, next to those data; other inputs are
    test examples in the order of their predicted mean, next to their targets. Of several targets, the first is shown.

    Returns:
        `x`, the `mean`, the standard deviations of the means over draws (`epistemic`) and of the whole prediction
        (`total`), the data as `points`, and what x is, `axis`.
    """
    x_train, y_train = (np.asarray(array) for array in task.train)
    is_curve = x_train.ndim == 1 or (x_train.ndim == 2 and x_train.shape[1] == 1)
    if is_curve:
        low, high = float(x_train.min()), float(x_train.max())
        margin = 0.15 * (high - low)
        places = np.linspace(low - margin, high + margin, GRID)
        inputs = places.reshape(-1, *x_train.shape[1:]).astype(x_train.dtype)
        points = (x_train.reshape(-1)[:POINTS], y_train[:POINTS])
    else:
        inputs, targets = (np.asarray(array)[:INTERVALS] for array in task.test)
        places, points = np.arange(len(inputs)), (np.arange(len(inputs)), targets)
    outputs = diagnostics.function_space(task.apply, draws, inputs)
    means, scales = (_first_target(np.broadcast_to(part, outputs[0].shape), 2) for part in outputs)
    mean = means.mean(axis=(0, 1))
    epistemic = means.var(axis=(0, 1))
    total = epistemic + np.square(scales).mean(axis=(0, 1))
    order = np.arange(len(places)) if is_curve else np.argsort(mean)
    targets = _first_target(points[1], 0)
    return {
        "axis": "input" if is_curve else "test example, by predicted mean",
        "x": places.tolist(),
        "mean": mean[order].tolist(),
        "epistemic": np.sqrt(epistemic)[order].tolist(),
        "total": np.sqrt(total)[order].tolist(),
        "points": {"x": points[0].tolist(), "y": (targets if is_curve else targets[order]).tolist()},
    }


def energies(draws: Draws) -> dict[str, Any] | None:
    """Return the energy of each chain during burn-in and at the draws, ready for JSON; None if it was not kept."""
    before, told = draws.burn_in_statistics, draws.statistics
    if told is None:
        return None
    parts = [told] if before is None else [before, told]
    return {
        "step": np.concatenate([part.steps for part in parts]).tolist(),
        "energy": np.concatenate([part.energy for part in parts], axis=1).tolist(),
        "first_draw": int(told.steps[0]),
        "divergent": int(np.sum(told.divergent)),
    }


def _first_target(array: np.ndarray, axis: int) -> np.ndarray:
    """Return the first of several targets, whose axis comes after `axis` others and the examples."""
    return array if array.ndim == axis + 1 else array[..., 0]
