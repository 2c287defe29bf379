"""Scores of draws on a task, for classification and regression."""

from collections.abc import Iterable

import numpy as np

from roamax.evaluation import metrics
from roamax.evaluation.predict import MixtureNLL, predict, predict_draws
from roamax.sampling.draws import Draws
from roamax.tasks import Task
from roamax.types import Params

ROUND_NUMBERS = (12, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)


def score(task: Task, draws: Draws | Iterable[Params]) -> dict[str, float]:
    """Compute the metrics of the averaged prediction on the task's test set.

    Returns:
        `metrics.summary` for classification. For regression `metrics.regression_summary`, whose `gaussian_nll` is that
        of the Gaussian with the mixture's mean and variance, and `nll`, that of the mixture over draws itself.
    """
    x, y = task.test
    if task.is_regression:
        mixture = MixtureNLL(task.apply, x, y)
        mean, std = predict(task.apply, mixture.watch(draws), x)
        return {"nll": mixture.value, **metrics.regression_summary(mean, std, y)}
    return metrics.summary(predict_draws(task.apply, draws, x), y)


def by_draws(log_probs: np.ndarray, labels: np.ndarray) -> dict[str, list[float]]:
    """Compute scores of the average over the first 1, 2, ..., 10 draws, then over larger round numbers, and over all.

    Args:
        log_probs: Each draw's log-probabilities, (draws, n, classes).
        labels: The labels, (n,).

    Returns:
        The numbers of draws, and the scores `acc`, `nll` and `ece` for each, as in the paper's main figure.
    """
    counts = _counts(len(log_probs))
    averages = [metrics.average(log_probs[:k]) for k in counts]
    curves: dict[str, list[float]] = {"draws": [float(k) for k in counts]}
    for name, metric in (("acc", metrics.accuracy), ("nll", metrics.nll), ("ece", metrics.ece)):
        curves[name] = [metric(average, labels) for average in averages]
    return curves


def nll_by_draws(task: Task, draws: Draws) -> dict[str, list[float]]:
    """Compute the NLL of a regression's mixture over the first draws, for the numbers of draws of `by_draws`."""
    mixture, counts = MixtureNLL(task.apply, *task.test), _counts(len(draws))
    values = [mixture.value for count, _ in enumerate(mixture.watch(draws), start=1) if count in counts]
    return {"draws": [float(count) for count in counts], "nll": values}


def _counts(most: int) -> list[int]:
    return sorted({*range(1, min(most, 10) + 1), *(k for k in ROUND_NUMBERS if k < most), most})
