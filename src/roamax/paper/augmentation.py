"""Random crops and flips, with the temperature of the samplers tuned on validation data, 10 draws."""

import dataclasses

from roamax.paper.framework.chain import Chain, Setup, scores
from roamax.paper.framework.comparison import BETTER, SCORES, Comparison, printed
from roamax.paper.framework.lab import Lab, averaged
from roamax.paper.framework.results import Findings

TEMPERATURES = {"DE": (0.0,), "cSGMCMC": (1.0, 0.01, 1e-4), "L2E": (1.0, 0.01, 1e-4)}
PAPER = printed(SCORES, {
    ("CIFAR-10", "DE"): ((0.931, 0.002), (0.209, 0.003), (0.017, 0.001), (0.293, 0.002)),
    ("CIFAR-10", "cSGMCMC"): ((0.923, 0.003), (0.234, 0.007), (0.031, 0.005), (0.142, 0.019)),
    ("CIFAR-10", "L2E"): ((0.926, 0.001), (0.235, 0.002), (0.037, 0.001), (0.391, 0.005)),
    ("CIFAR-100", "DE"): ((0.708, 0.001), (1.048, 0.001), (0.092, 0.001), (0.765, 0.003)),
    ("CIFAR-100", "cSGMCMC"): ((0.683, 0.001), (1.114, 0.005), (0.013, 0.001), (0.319, 0.008)),
    ("CIFAR-100", "L2E"): ((0.705, 0.003), (1.066, 0.001), (0.095, 0.003), (0.996, 0.017)),
})  # fmt: skip


def run(lab: Lab) -> Findings:
    """Score each method at the temperature that is best on validation data with the first seed."""
    first = dataclasses.replace(lab, seeds=lab.seeds[:1])
    problems = [
        problem._replace(draws=min(problem.draws, 10), members=min(problem.members, 10))
        for problem in lab.problems("cifar10", "cifar100")
    ]
    tries = [
        lab.setup(problem, name, augment=True, temperature=temperature)
        for problem in problems
        for name, temperatures in TEMPERATURES.items()
        for temperature in temperatures
    ]
    tried: dict[tuple[str, str], list[tuple[float, Setup]]] = {}
    for setup, found in zip(tries, first.look(Chain.validation_nll, tries), strict=True):
        tried.setdefault((setup.problem.label, setup.name), []).extend((nll, setup) for nll in found)
    best = {key: min(found, key=lambda one: one[0])[1] for key, found in tried.items() if found}
    rows = averaged({key: found for key, found in zip(best, lab.look(scores, [*best.values()]), strict=True) if found})
    chosen = {
        ", ".join(key): {
            "temperature": setup.hyper["temperature"],
            "validation_nll": {other.hyper["temperature"]: nll for nll, other in tried[key]},
        }
        for key, setup in best.items()
    }
    table = Comparison("Augmentation", ("Data set", "Method"), SCORES, rows, PAPER, compared="rows", better=BETTER)
    return Findings({"augmentation": table}, data={"temperatures": chosen})
