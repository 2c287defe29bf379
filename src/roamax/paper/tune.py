"""The settings of every tuned method, searched for on validation data only.

`tuned` in the data of its results are the winners, in the form of the file `tuned.json` of problems.
"""

from roamax.paper.framework.comparison import LENGTH, Comparison, Value
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import PAPER, SCALES, Hyper
from roamax.paper.framework.results import Findings
from roamax.paper.framework.search import AXES, search

PROBLEMS = ("mnist_mlp", "fashion_mnist")
"""The problems at cpu scale, unless others are named."""
NLL = "validation NLL"
AXIS_LABELS = {
    "learning_rate": LENGTH,
    "epsilon_squared": LENGTH,
    "momentum_decay": "momentum decay",
    "weight_decay": "weight decay",
    "temperature": "T",
    "members": "members",
    "cycles": "cycles",
    "scale": "scale",
}
COLUMNS = (*dict.fromkeys(AXIS_LABELS.values()), "trials", NLL)


def run(lab: Lab) -> Findings:
    """Search with the first seed."""
    rows, trials, winners = {}, {}, {}
    names = PROBLEMS if lab.scale == "cpu" else tuple(SCALES[lab.scale])
    problems = lab.problems(*dict.fromkeys((*names, *lab.only)))
    methods = lab.methods_of(AXES)
    for problem in problems:
        for name, found in search(lab, problem, methods).items():
            trials[f"{problem.label}, {name}"] = [trial._asdict() for trial in found]
            winners.setdefault(problem.tuned_as, {}).setdefault(str(problem.steps), {})[name] = found[0].hyper
            rows[problem.label, name] = _row(found[0].hyper) | {"trials": Value(len(found)), NLL: Value(found[0].nll)}
    labels = [problem.label for problem in problems]
    paper = {
        (problem.label, name): _row(hyper)
        for problem in PAPER.values()
        for name, hyper in problem.hyper.items()
        if problem.label in labels and name in AXES
    }
    title = "Best on validation data"
    table = Comparison(title, ("Task", "Method"), COLUMNS, rows, paper, "rows", {NLL: "min"}, 4, "g")
    return Findings({"tuned": table}, {}, {"trials": trials, "tuned": winners}, seeds=1)


def _row(hyper: Hyper) -> dict[str, Value]:
    return {label: Value(hyper[axis]) for axis, label in AXIS_LABELS.items() if axis in hyper}
