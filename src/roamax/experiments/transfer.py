"""L2E as it ships, on tasks that it was not trained on, against methods tuned to each and as they come by default."""

from collections.abc import Iterable, Iterator

from roamax.experiments.findings import Findings
from roamax.experiments.lab import Chain, Lab
from roamax.experiments.multimodality import geometry_numbers
from roamax.experiments.problems import Hyper, Problem
from roamax.experiments.search import search
from roamax.experiments.tables import Rows, Table, Value, are_level, exceeds, finite
from roamax.samplers.named import default_learning_rate

PROBLEMS = ("cifar10", "cifar10_cnn", "fashion_mnist", "mnist_mlp", "cifar10_wide", "imdb", "regression")
RIVALS = {"SGHMC": "sghmc", "cSGMCMC": "cyclical", "DE": "ensemble"}
COLUMNS = ("L2E", *(f"{name}, {how}" for name in RIVALS for how in ("tuned", "default")))

CYCLICAL = "cSGMCMC, tuned"
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
                diversity[problem.label, name] = _diversity(found[name])
    tables = {
        "nll": Table("NLL of the averaged prediction", ("Metric", "Task"), COLUMNS, nll, better={"NLL": "min"}),
        "diversity": Table("Diversity of draws", ("Task", "Method"), tuple(BETTER), diversity, {}, "rows", BETTER),
    }
    return Findings(tables, remarks=[*standing(nll), *more_diverse(diversity)])


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
    return {key: _over(one[key] for one in found) for key in BETTER}


def standing(nll: Rows) -> Iterator[str]:
    """On which tasks L2E is ahead of the best of the others, level with it, or behind."""
    groups: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
    for (_, label), row in nll.items():
        rivals = {name: value for name, value in finite(row).items() if name != "L2E"}
        if "L2E" not in row or not rivals:
            continue
        best = min(rivals, key=lambda name: rivals[name].mean)
        ahead = row["L2E"].mean < rivals[best].mean
        standing = "level with" if are_level(row["L2E"], rivals[best]) else "ahead of" if ahead else "behind"
        groups[standing].append(f"{label} ({best})")
    for standing, tasks in groups.items():
        if tasks:
            yield f"NLL of L2E, {standing} the best of the others: {', '.join(tasks)}."


def more_diverse(diversity: Rows) -> Iterator[str]:
    """On which tasks the draws of L2E are more diverse than those of tuned cyclical SGMCMC."""
    labels = [label for label, name in diversity if name == "L2E" and (label, CYCLICAL) in diversity]
    for key in BETTER if labels else ():
        more = [label for label in labels if exceeds(diversity[label, "L2E"][key], diversity[label, CYCLICAL][key])]
        where = f"on {len(more)} of {len(labels)}: {', '.join(more) or 'none'}"
        yield f"{key} of L2E above that of {CYCLICAL}, {where}."
