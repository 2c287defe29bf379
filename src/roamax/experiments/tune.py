"""Hyperparameters for every method by the paper's search, on validation data alone."""

from roamax.experiments.findings import Findings
from roamax.experiments.lab import Lab
from roamax.experiments.problems import SCALES
from roamax.experiments.search import search
from roamax.experiments.tables import Table, Value

METHODS = ("DE", "SGHMC", "cSGMCMC", "L2E")
COLUMNS = ("step size", "momentum decay", "weight decay", "validation NLL")


def run(lab: Lab) -> Findings:
    """The best of each search, on the first seed; of L2E too, though elsewhere it takes what its card says."""
    rows, trials = {}, {}
    for problem in lab.problems(*(lab.only or ["fashion_mnist"] if lab.scale == "cpu" else SCALES[lab.scale])):
        for name in METHODS:
            found = search(lab, problem, name)
            trials[f"{problem.label}, {name}"] = [trial._asdict() for trial in found]
            best = found[0].hyper
            rows[problem.label, name] = {
                "step size": Value(best["step_size"]),
                "momentum decay": Value(best["momentum_decay"]),
                "weight decay": Value(best["weight_decay"]),
                "validation NLL": Value(found[0].nll),
            }
    table = Table("Best on validation data", ("Data set", "Method"), COLUMNS, rows, digits=7)
    return Findings({"tuned": table}, data={"trials": trials}, seeds=1)
