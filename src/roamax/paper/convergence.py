"""Effective sample size per second and the share of parameters with cR-hat < 1.1, whole and by layer."""

import numpy as np

from roamax.evaluation import diagnostics
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.compare import step_timer
from roamax.paper.framework.findings import Findings
from roamax.paper.framework.lab import Lab, Record, averaged, measure, methods_as_columns
from roamax.report.geometry import rhat_by_layer
from roamax.report.tables import Table, Value

ROUNDS = 5
METHODS = ("cSGMCMC", "Meta-SGMCMC", "L2E")


def _paper(cyclical: Value, meta: Value, l2e: Value) -> dict[str, Value]:
    return {"cSGMCMC": cyclical, "Meta-SGMCMC": meta, "L2E": l2e}


PAPER = {
    ("ESS/s", "Fashion-MNIST"): _paper(Value(219.85, 6.64), Value(33.34, 8.42), Value(136.31, 0.42)),
    ("ESS/s", "CIFAR-10"): _paper(Value(56.61, 2.51), Value(17.31, 5.11), Value(82.97, 0.57)),
    ("ESS/s", "CIFAR-100"): _paper(Value(41.14, 1.51), Value(48.29, 7.43), Value(63.81, 0.00)),
    ("ESS/s", "Tiny-ImageNet"): _paper(Value(2.43, 0.01), Value(0.91, 0.19), Value(2.62, 0.00)),
    ("cR̂ < 1.1", "Fashion-MNIST"): _paper(Value(0.765), Value(0.524), Value(0.946)),
    ("cR̂ < 1.1", "CIFAR-10"): _paper(Value(0.804), Value(0.160), Value(0.968)),
    ("cR̂ < 1.1", "CIFAR-100"): _paper(Value(0.732), Value(0.750), Value(0.897)),
    ("cR̂ < 1.1", "Tiny-ImageNet"): _paper(Value(0.737), Value(0.131), Value(0.806)),
}
UNIT = 1e5
"""The paper divides the sum of effective sample sizes over all parameters by this."""


def run(lab: Lab) -> Findings:
    """Both statistics from the draws of each method; the layers from the first seed on CIFAR-10."""
    problems = lab.problems("fashion_mnist", "cifar10", "cifar100", "tiny_imagenet")
    found = measure(lab, problems, METHODS, _record)
    layers = {name: records[0] for (label, name), records in found.items() if label == "CIFAR-10"}
    better = {"ESS/s": "max", "cR̂ < 1.1": "max"}
    rows = methods_as_columns(averaged(found, tuple(better)))
    table = Table("Convergence", ("Metric", "Data set"), METHODS, rows, PAPER, better=better)
    return Findings({"convergence": table}, {"layers": rhat_by_layer(layers)} if layers else {})


def _record(chain: Chain) -> Record:
    steps = chain.draws.steps
    timer = step_timer(chain.method.sampler, chain.task)
    # Without the time of compiling, which a chain that is there already, or another seed's, is spared.
    interval = float(np.median([timer() for _ in range(ROUNDS)])) * (steps[-1] - steps[0]) / (len(steps) - 1)
    found = diagnostics.summary(chain.draws, interval)
    return {
        "ESS/s": found["ess_per_second"] / UNIT,
        "cR̂ < 1.1": found["chain_rhat_share"],
        "diagnostics": {"parameters": found},
    }
