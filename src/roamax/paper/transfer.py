"""L2E as it ships, on tasks that it was not trained on, vs. other methods, tuned to each task and with defaults."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from roamax.paper.framework.chain import Chain, Setup
from roamax.paper.framework.comparison import BETTER, Comparison, Holds, Rows, Value, exceeds, finite
from roamax.paper.framework.geometry import geometry
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.problems import Hyper, Problem, axes
from roamax.paper.framework.results import Findings
from roamax.paper.framework.search import search
from roamax.report.figures import new_figure
from roamax.samplers.registry import RECORDS

PROBLEMS = ("cifar10", "cifar10_cnn", "fashion_mnist", "mnist_mlp", "cifar10_wide", "imdb", "regression")
RIVALS = {RECORDS[name].method: name for name in ("sghmc", "cyclical", "ensemble")}
COLUMNS = ("L2E", *(f"{name}, {how}" for name in RIVALS for how in ("tuned", "default")))

CYCLICAL = "cSGMCMC, tuned"
DIVERSITY = ("KLD", "error barrier", "NLL barrier")
DIVERSE = ("L2E", CYCLICAL, "DE, tuned")
SLOW = ("imdb",)
"""Data sets for which barriers are not computed: hundreds of evaluations of the network take minutes per chain."""


def run(lab: Lab) -> Findings:
    """Compare the NLL of the averaged prediction at equal cost, and the diversity of draws."""
    setups = {key: setup for problem in lab.problems(*PROBLEMS) for key, setup in _setups(lab, problem)}
    found = dict(zip(setups, lab.look(_nll, list(setups.values())), strict=True))
    compared = {key: setup for key, setup in setups.items() if key[1] in DIVERSE and found[key]}
    diverse = dict(zip(compared, lab.look(_diversity, list(compared.values())), strict=True))
    nll: dict[tuple[str, str], dict[str, Value]] = {}
    for (label, name), values in found.items():
        row = nll.setdefault(("NLL", label), {})
        if values:
            row[name] = Value.over(values)
    diversity = averaged({key: records for key, records in diverse.items() if records and records[0]})
    tables = {
        "nll": Comparison("NLL of the averaged prediction", ("Metric", "Task"), COLUMNS, nll, better={"NLL": "min"}),
        "diversity": Comparison("Diversity of draws", ("Task", "Method"), DIVERSITY, diversity, {}, "rows", BETTER),
    }
    figures = {"nll": _figure(nll)} if nll else {}
    remarks = ["The NLL of regression is that of the mixture over draws.", *standing(nll), *more_diverse(diversity)]
    return Findings(tables, figures, {"regression_nll": "mixture"}, remarks=remarks)


def _setups(lab: Lab, problem: Problem) -> Iterator[tuple[tuple[str, str], Setup]]:
    """Yield L2E as it ships, and the others tuned and with defaults, by the problem's label and the column."""
    yield (problem.label, "L2E"), lab.setup(problem, "L2E")
    # `problems` has the results of earlier searches; what is missing there is searched for now.
    unknown = [name for name in RIVALS if name not in problem.hyper]
    searched = {name: trials[0].hyper for name, trials in search(lab, problem, unknown).items()} if unknown else {}
    for name in RIVALS:
        yield (problem.label, f"{name}, tuned"), lab.setup(problem, name, **searched.get(name, {}))
        yield (problem.label, f"{name}, default"), lab.setup(problem, name, **_default(problem, name))


def _default(problem: Problem, name: str) -> Hyper:
    """Return the hyperparameters of a method with default settings."""
    task = problem.task.build()
    rate = RECORDS[RIVALS[name]].learning_rate(task.is_regression) or 0.0
    length = rate if name == "DE" else rate / task.posterior.num_data
    return {**dict(zip(axes(name), (length, 0.1, 5e-4), strict=True)), "exploration_ratio": 0.8}


def _nll(chain: Chain) -> float:
    return chain.scores["nll"]


def _diversity(chain: Chain) -> Record:
    if chain.task.is_regression:
        return {}
    numbers = {} if chain.problem.task.data in SLOW else geometry(chain)
    return {"KLD": chain.scores["kld"], **{key: numbers[key] for key in DIVERSITY if key in numbers}}


def standing(nll: Rows) -> Iterator[str]:
    """Yield sentences on which tasks L2E is better than the best of the others, level with it, or worse."""
    better: dict[str, Holds] = {}
    for (_, label), row in nll.items():
        rivals = {name: value for name, value in finite(row).items() if name != "L2E"}
        if rivals:
            best = min(rivals, key=lambda name: rivals[name].mean)
            better[f"{label} ({best})"] = "L2E" in row and exceeds(rivals[best], row["L2E"])
    yield from _grouped("NLL of L2E, {} the best of the others", ("below", "level with", "above"), better)


def more_diverse(diversity: Rows) -> Iterator[str]:
    """Yield sentences on which tasks the draws of L2E are more diverse than those of tuned cyclical SGMCMC."""
    labels = [label for label, name in diversity if name == "L2E" and (label, CYCLICAL) in diversity]
    for key in DIVERSITY:
        above = {
            label: exceeds(diversity[label, "L2E"].get(key), diversity[label, CYCLICAL].get(key)) for label in labels
        }
        yield from _grouped(f"{key} of L2E, {{}} that of {CYCLICAL}", ("above", "level with", "below"), above)


def _grouped(sentence: str, words: tuple[str, str, str], tasks: Mapping[str, Holds]) -> Iterator[str]:
    """Yield a sentence each for the tasks where something holds, where it cannot be told, and where it does not."""
    for holds, word in zip((True, "level", False), words, strict=True):
        found = [task for task, here in tasks.items() if here == holds]
        if found:
            yield f"{sentence.format(word)}: {'; '.join(found)}."


def _figure(nll: Rows) -> Any:
    """Draw one panel per task, with L2E and the tuned methods."""
    shown = ("L2E", *(name for name in COLUMNS if name.endswith("tuned")))
    figure, axes = new_figure(4, math.ceil(len(nll) / 4), width=2.4, height=1.6)
    for axis in axes.flat[len(nll) :]:
        axis.set_visible(False)
    for axis, ((_, label), row) in zip(axes.flat, nll.items(), strict=False):
        for place, name in enumerate(shown):
            if name in finite(row):
                axis.errorbar(row[name].mean, -place, xerr=row[name].sd or 0.0, fmt="o", markersize=4, capsize=2)
        axis.set_ylim(0.5 - len(shown), 0.5)
        axis.set_yticks([-place for place in range(len(shown))], shown, fontsize=7)
        axis.set_title(label, fontsize=9)
        axis.set_xlabel("test NLL")
    return figure
