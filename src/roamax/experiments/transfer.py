"""L2E as it ships, on tasks that it was not trained on, against methods tuned to each and as they come by default."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from roamax.experiments.findings import Findings
from roamax.experiments.lab import Chain, Lab
from roamax.experiments.multimodality import geometry_numbers
from roamax.experiments.problems import Hyper, Problem
from roamax.experiments.search import search
from roamax.experiments.tables import Holds, Rows, Table, Value, exceeds, finite
from roamax.report.figures import new_figure
from roamax.samplers.named import default_learning_rate

PROBLEMS = ("cifar10", "cifar10_cnn", "fashion_mnist", "mnist_mlp", "cifar10_wide", "imdb", "regression")
RIVALS = {"SGHMC": "sghmc", "cSGMCMC": "cyclical", "DE": "ensemble"}
COLUMNS = ("L2E", *(f"{name}, {how}" for name in RIVALS for how in ("tuned", "default")))

CYCLICAL = "cSGMCMC, tuned"
SLOW = ("imdb",)
"""Data without barriers: hundreds of evaluations of their network take minutes for each chain."""
BETTER = {"KLD": "max", "error barrier": "max", "NLL barrier": "max"}


def run(lab: Lab) -> Findings:
    """NLL of the averaged prediction at equal cost, and how diverse its draws are."""
    nll: dict[tuple[str, ...], dict[str, Value]] = {}
    diversity: dict[tuple[str, ...], dict[str, Value]] = {}
    for problem in lab.problems(*PROBLEMS):
        chains = {"L2E": lab.chains(problem, "L2E")}
        for name in RIVALS:
            chains[f"{name}, tuned"] = lab.chains(problem, name, **_tuned(lab, problem, name))
            chains[f"{name}, default"] = lab.chains(problem, name, **_default(lab, problem, name))
        found = {name: entries for name, entries in chains.items() if entries}
        nll["NLL", problem.label] = {
            name: _over(entry.scores["nll"] for entry in entries) for name, entries in found.items()
        }
        if lab.task(problem.task).is_regression:
            continue
        for name in ("L2E", CYCLICAL, "DE, tuned"):
            if name in found:
                diversity[problem.label, name] = _diversity(found[name], problem.task.data not in SLOW)
    tables = {
        "nll": Table("NLL of the averaged prediction", ("Metric", "Task"), COLUMNS, nll, better={"NLL": "min"}),
        "diversity": Table("Diversity of draws", ("Task", "Method"), tuple(BETTER), diversity, {}, "rows", BETTER),
    }
    figures = {"nll": _figure(nll)} if nll else {}
    return Findings(tables, figures, remarks=[*standing(nll), *more_diverse(diversity)])


def _tuned(lab: Lab, problem: Problem, name: str) -> Hyper:
    """What an earlier search found, which the table of problems has; a search where it has nothing."""
    return problem.hyper.get(name) or search(lab, problem, name)[0].hyper


def _default(lab: Lab, problem: Problem, name: str) -> Hyper:
    """What a person gets who names the method and nothing else."""
    task = lab.task(problem.task)
    rate = default_learning_rate(RIVALS[name], task.is_regression) or 0.0
    size = rate if name == "DE" else rate / task.posterior.num_data
    return {"step_size": size, "momentum_decay": 0.1, "weight_decay": 5e-4, "exploration_ratio": 0.8}


def _over(numbers: Iterable[float]) -> Value:
    return Value.over(list(numbers))


def _diversity(chains: list[Chain], barriers: bool) -> dict[str, Value]:
    found = [{"KLD": chain.scores["kld"], **(geometry_numbers(chain.space) if barriers else {})} for chain in chains]
    return {key: _over(one[key] for one in found) for key in BETTER if key in found[0]}


def standing(nll: Rows) -> Iterator[str]:
    """On which tasks L2E is better than the best of the others, level with it, or worse."""
    better: dict[str, Holds] = {}
    for (_, label), row in nll.items():
        rivals = {name: value for name, value in finite(row).items() if name != "L2E"}
        if rivals:
            best = min(rivals, key=lambda name: rivals[name].mean)
            better[f"{label} ({best})"] = "L2E" in row and exceeds(rivals[best], row["L2E"])
    yield from _grouped("NLL of L2E, {} the best of the others", ("below", "level with", "above"), better)


def more_diverse(diversity: Rows) -> Iterator[str]:
    """On which tasks the draws of L2E are more diverse than those of tuned cyclical SGMCMC."""
    labels = [label for label, name in diversity if name == "L2E" and (label, CYCLICAL) in diversity]
    for key in BETTER:
        above = {
            label: exceeds(diversity[label, "L2E"].get(key), diversity[label, CYCLICAL].get(key)) for label in labels
        }
        yield from _grouped(f"{key} of L2E, {{}} that of {CYCLICAL}", ("above", "level with", "below"), above)


def _grouped(sentence: str, words: tuple[str, str, str], tasks: Mapping[str, Holds]) -> Iterator[str]:
    """A sentence for the tasks where something holds, where it cannot be told, and where it does not."""
    for holds, word in zip((True, "level", False), words, strict=True):
        found = [task for task, here in tasks.items() if here == holds]
        if found:
            yield f"{sentence.format(word)}: {'; '.join(found)}."


def _figure(nll: Rows) -> Any:
    """A panel for each task, with L2E and the tuned methods."""
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
        axis.set_xlabel("test NLL", fontsize=8)
    return figure
