"""L2E as it ships, on tasks that it was not trained on, against methods tuned to each and as they come by default."""

from collections.abc import Iterable

from roamax.experiments.findings import Findings
from roamax.experiments.lab import Chain, Lab
from roamax.experiments.multimodality import geometry_numbers
from roamax.experiments.problems import Hyper, Problem
from roamax.experiments.search import search
from roamax.experiments.tables import Table, Value
from roamax.samplers.named import default_learning_rate

PROBLEMS = ("cifar10", "cifar10_cnn", "fashion_mnist", "mnist_mlp", "cifar10_wide", "imdb", "regression")
RIVALS = {"SGHMC": "sghmc", "cSGMCMC": "cyclical", "DE": "ensemble"}
COLUMNS = ("L2E", *(f"{name}, {how}" for name in RIVALS for how in ("tuned", "default")))


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
        for name in ("L2E", "cSGMCMC, tuned", "DE, tuned"):
            if name in found:
                diversity[problem.label, name] = _diversity(found[name])
    better = {"KLD": "max", "error barrier": "max", "NLL barrier": "max"}
    tables = {
        "nll": Table("NLL of the averaged prediction", ("Metric", "Task"), COLUMNS, nll, better={"NLL": "min"}),
        "diversity": Table("Diversity of draws", ("Task", "Method"), tuple(better), diversity, {}, "rows", better),
    }
    return Findings(tables, data={"verdict": _verdict(nll)})


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


def _diversity(chains: list[Chain]) -> dict[str, Value]:
    found = [{"KLD": chain.scores["kld"], **geometry_numbers(chain.space)} for chain in chains]
    return {key: _over(one[key] for one in found) for key in ("KLD", "error barrier", "NLL barrier")}


def _verdict(nll: dict[tuple[str, ...], dict[str, Value]]) -> dict[str, str]:
    """For each task whether L2E is best, within the noise of the best, or behind."""
    said = {}
    for (_, label), row in nll.items():
        rivals = {name: value for name, value in row.items() if name != "L2E"}
        if "L2E" not in row or not rivals:
            continue
        ours, name = row["L2E"], min(rivals, key=lambda name: rivals[name].mean)
        noise = (ours.sd or 0.0) + (rivals[name].sd or 0.0)
        behind = ours.mean - rivals[name].mean
        said[label] = "best" if behind < 0 else f"within the noise of {name}" if behind <= noise else f"behind {name}"
    return said
