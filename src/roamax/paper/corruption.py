"""Accuracy on corrupted images by severity: CIFAR-10-C, or its corruptions computed here if that is not installed."""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from roamax import data
from roamax.data import corruptions
from roamax.evaluation import metrics
from roamax.evaluation.images import as_shape
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import Comparison, Value, printed
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.results import Findings
from roamax.report.figures import legend, new_figure

METHODS = ("DE", "cSGMCMC", "L2E")
SEVERITIES = (1, 2, 3, 4, 5)
COLUMNS = (*map(str, SEVERITIES), "Average")
IMAGES = 500
"""The number of corrupted test images at cpu scale; at paper scale, all are used."""


PAPER = printed(COLUMNS, {
    ("CIFAR-10", "DE"): (0.849, 0.824, 0.803, 0.765, 0.714, 0.791),
    ("CIFAR-10", "cSGMCMC"): (0.835, 0.807, 0.784, 0.744, 0.694, 0.773),
    ("CIFAR-10", "L2E"): (0.846, 0.806, 0.769, 0.714, 0.639, 0.755),
    ("CIFAR-10", "HMC"): (0.821, 0.764, 0.723, 0.657, 0.573, 0.708),
})  # fmt: skip


def run(lab: Lab) -> Findings:
    """Compute the mean accuracy over 15 kinds of corruption, for each severity."""
    by_severity = functools.partial(_by_severity, count=None if lab.scale == "paper" else IMAGES)
    rows = averaged(lab.measure(lab.problems("cifar10"), METHODS, by_severity))
    better = dict.fromkeys(COLUMNS, "max")
    table = Comparison("Accuracy", ("Data set", "Method"), COLUMNS, rows, PAPER, compared="rows", better=better)
    remark = f"Images are corrupted at 32x32 and then averaged to the 16x16 of the network; {IMAGES} test images."
    remarks = [] if lab.scale == "paper" else [remark]
    return Findings({"accuracy": table}, {"accuracy": _figure(rows)} if rows else {}, remarks=remarks)


def _by_severity(chain: Chain, count: int | None) -> Record:
    shape = np.shape(chain.task.test[0])[1:]
    accuracies = {}
    for severity in SEVERITIES:
        found = []
        for kind in corruptions.KINDS:
            x, y = _images(data.data_dir(), kind, severity, count)
            found.append(metrics.accuracy(chain.predict(as_shape(x, shape, "cifar10")), y))
        accuracies[str(severity)] = float(np.mean(found))
    return accuracies | {"Average": float(np.mean(list(accuracies.values())))}


@functools.cache
def _images(folder: Path, kind: str, severity: int, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    x, y = data.corrupted("cifar10", kind, severity, folder)
    # Copies, so that the other images can be freed.
    return x[:count].copy(), y[:count].copy()


def _figure(rows: dict[tuple[str, str], dict[str, Value]]) -> Any:
    figure, axes = new_figure(width=4.4)
    axis = axes[0, 0]
    for (_, name), row in rows.items():
        means, spreads = zip(*((row[str(s)].mean, row[str(s)].sd or 0) for s in SEVERITIES), strict=True)
        axis.errorbar(SEVERITIES, means, spreads, marker="o", markersize=3, label=name)
    axis.set_xlabel("severity")
    axis.set_ylabel("accuracy")
    legend(axis)
    return figure
