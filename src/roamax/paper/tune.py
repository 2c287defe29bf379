"""Hyperparameters of every method by the paper's search, on validation data only."""

from roamax.paper.framework.comparison import LENGTH, Comparison, Value, exceeds
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import PAPER, SCALES, Hyper, axes
from roamax.paper.framework.results import Findings
from roamax.paper.framework.search import search

METHODS = ("DE", "SGHMC", "cSGMCMC", "L2E")
NLL = "validation NLL"
COLUMNS = (LENGTH, "momentum decay", "weight decay", NLL)
REMARK = "The paper's epsilon² for L2E is for weights whose outputs have another scale than those that ship."


def run(lab: Lab) -> Findings:
    """Search with the first seed; L2E is searched too, though elsewhere it has the settings of its card."""
    rows, trials = {}, {}
    problems = lab.problems(*(lab.only or ["fashion_mnist"] if lab.scale == "cpu" else SCALES[lab.scale]))
    for problem in problems:
        for name, found in search(lab, problem, METHODS).items():
            trials[f"{problem.label}, {name}"] = [trial._asdict() for trial in found]
            rows[problem.label, name] = _row(name, found[0].hyper) | {NLL: Value(found[0].nll)}
    labels = [problem.label for problem in problems]
    paper = {
        (problem.label, name): _row(name, hyper)
        for problem in PAPER.values()
        for name, hyper in problem.hyper.items()
        if problem.label in labels and name in METHODS
    }
    claims = {
        f"On {label}, L2E at its best has a lower NLL than {rival} at its best": exceeds(
            rows[label, rival][NLL], rows[label, "L2E"][NLL]
        )
        for label in labels
        for rival in METHODS[:-1]
    }
    table = Comparison("Best on validation data", ("Data set", "Method"), COLUMNS, rows, paper, "rows", {NLL: "min"}, 7)
    return Findings({"tuned": table}, {}, {"trials": trials}, claims, [REMARK] if paper else [], seeds=1)


def _row(name: str, hyper: Hyper) -> dict[str, Value]:
    return {column: Value(hyper[axis]) for column, axis in zip(COLUMNS, axes(name), strict=False)}
