"""The paper's search over hyperparameters: BMA NLL on validation data, with ten draws of one seed.

At paper scale it takes the whole grid. At cpu scale it goes along one axis after the other, step size first, which
costs 12 runs instead of 90. Runs are kept as chains, so that a search that was broken off goes on.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamax.experiments.lab import Lab
from roamax.experiments.problems import Problem

STEP_SIZES = (2e-7, 4e-7, 1e-6, 2e-6, 4e-6, 1e-5)
LEARNED_STEP_SIZES = (*STEP_SIZES, 2e-5, 1e-4, 2e-4)
LEARNING_RATES = (0.01, 0.03, 0.1, 0.3)
REGRESSION_STEP_SIZES = (2e-8, 4e-8, 1e-7, 2e-7, 4e-7)
REGRESSION_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""A Gaussian likelihood with little noise is steep: what suits classification diverges on it."""
MOMENTUM_DECAYS = (0.01, 0.05, 0.1, 0.3, 0.5)
WEIGHT_DECAYS = (1e-4, 5e-4, 1e-3)
DRAWS = 10
START = {"momentum_decay": 0.1, "weight_decay": 5e-4}


class Trial(NamedTuple):
    """Hyperparameters and what they gave on validation data; infinite where the chain diverged."""

    hyper: dict[str, Any]
    nll: float


def axes(name: str, is_regression: bool = False) -> dict[str, Sequence[float]]:
    """What is searched over for a method."""
    rates, sizes = (REGRESSION_RATES, REGRESSION_STEP_SIZES) if is_regression else (LEARNING_RATES, STEP_SIZES)
    sizes = {"DE": rates, "L2E": LEARNED_STEP_SIZES}.get(name, sizes)
    return {"step_size": sizes, "momentum_decay": MOMENTUM_DECAYS, "weight_decay": WEIGHT_DECAYS}


def search(lab: Lab, problem: Problem, name: str) -> list[Trial]:
    """All trials, the best first."""
    known = problem.hyper.get(name, {})
    fixed = {"exploration_ratio": known.get("exploration_ratio", 0.8)} if name == "cSGMCMC" else {}
    grid = axes(name, lab.task(problem.task).is_regression)
    problem = problem._replace(draws=min(problem.draws, DRAWS), members=min(problem.members, DRAWS))
    if lab.scale == "paper":
        # The step sizes tried are for whatever scale the weights' outputs have.
        fixed |= {"output_scale": None} if "output_scale" in known else {}
        found = try_all(lab, problem, name, [fixed | dict(zip(grid, point, strict=True)) for point in
                                             itertools.product(*grid.values())])  # fmt: skip
    else:
        found = []
        for axis, values in grid.items():
            best = min(found, key=lambda trial: trial.nll).hyper if found else {**fixed, **START}
            points = [{**best, axis: value} for value in values]
            tried = [trial.hyper for trial in found]
            found += try_all(lab, problem, name, [point for point in points if point not in tried])
    return sorted(found, key=lambda trial: trial.nll)


def try_all(lab: Lab, problem: Problem, name: str, points: Iterable[dict[str, Any]]) -> list[Trial]:
    """Each point's validation NLL, here or as Ray tasks."""
    jobs = [(lab.scale, str(lab.runs), lab.seeds[0], dict(lab.weights), problem, name, point) for point in points]
    found = lab.map(validation_nll, jobs)
    for _, before in found:
        lab.seconds_before = {**before, **lab.seconds_before}
    return [Trial(job[-1], nll) for job, (nll, _) in zip(jobs, found, strict=True)]


def validation_nll(
    scale: str, runs: str, seed: int, weights: Any, problem: Problem, name: str, hyper: dict[str, Any]
) -> tuple[float, dict[Path, float]]:
    """The validation NLL of one chain: a job that can be sent anywhere where `runs` can be written.

    With it what the chain had taken before, as `Lab.seconds_before` has it.
    """
    lab = Lab(scale, Path(runs), (seed,), weights, progress=False)
    chains = lab.chains(problem, name, **hyper)
    value = chains[0].validation_nll() if chains else math.inf
    return value if math.isfinite(value) else math.inf, lab.seconds_before
