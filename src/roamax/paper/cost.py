"""Seconds per epoch of each method, and the ratio to cyclical SGMCMC, measured in the same rounds."""

from typing import Any

import numpy as np

from roamax.evaluation.compare import step_timer
from roamax.paper.framework.comparison import Comparison, Value, printed
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import IMAGES
from roamax.paper.framework.results import Findings

METHODS = ("cSGMCMC", "Meta-SGMCMC", "L2E")
ROUNDS = 5
PAPER = printed(METHODS, {
    ("seconds per epoch", "Fashion-MNIST"): (0.20, 0.32, 0.32),
    ("seconds per epoch", "CIFAR-10"): (1.79, 2.44, 2.64),
    ("seconds per epoch", "CIFAR-100"): (1.81, 2.45, 2.66),
    ("seconds per epoch", "Tiny-ImageNet"): (41.12, 47.22, 48.43),
})  # fmt: skip


def run(lab: Lab) -> Findings:
    """Measure the time per epoch, in rounds in which every method takes a turn; the spread is over rounds."""
    rows: dict[tuple[str, ...], dict[str, Value]] = {}
    for problem in lab.problems(*IMAGES):
        timers = {method.name: step_timer(method.sampler, task) for method, task, _ in lab.methods(problem, METHODS)}
        epoch = problem.task.build().posterior.num_data / problem.task.batch_size
        rounds = [{name: epoch * timer() for name, timer in timers.items()} for _ in range(ROUNDS)]
        seconds = {name: [one[name] for one in rounds] for name in timers}
        rows["seconds per epoch", problem.label] = {name: _middle(values) for name, values in seconds.items()}
        if "cSGMCMC" in seconds:
            base = np.asarray(seconds["cSGMCMC"])
            ratios = {name: _middle(np.asarray(values) / base) for name, values in seconds.items()}
            rows["ratio to cSGMCMC", problem.label] = ratios
    paper = dict(PAPER)
    for (_, label), row in PAPER.items():
        base = row["cSGMCMC"].mean
        paper["ratio to cSGMCMC", label] = {name: Value(value.mean / base) for name, value in row.items()}
    better = {"seconds per epoch": "min", "ratio to cSGMCMC": "min"}
    table = Comparison("Cost", ("Metric", "Data set"), METHODS, rows, paper, better=better, digits=2)
    return Findings({"cost": table}, seeds=0)


def _middle(values: Any) -> Value:
    return Value(float(np.median(values)), float(np.std(values)))
