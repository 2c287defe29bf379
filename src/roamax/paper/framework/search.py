"""The paper's search over hyperparameters: BMA NLL on validation data, with ten draws of one seed.

At paper scale it tries the whole grid; at cpu scale, one axis after the other, starting with the step size, which takes
12 runs instead of 90. Runs are kept as chains, so that an interrupted search resumes.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import Problem, axes

EPSILONS_SQUARED = (2e-7, 4e-7, 1e-6, 2e-6, 4e-6, 1e-5)
LEARNED_EPSILONS_SQUARED = (*EPSILONS_SQUARED, 2e-5, 1e-4, 2e-4)
LEARNING_RATES = (0.01, 0.03, 0.1, 0.3)
REGRESSION_EPSILONS_SQUARED = (2e-8, 4e-8, 1e-7, 2e-7, 4e-7)
REGRESSION_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""A Gaussian likelihood with little noise is steep: steps that suit classification diverge."""
MOMENTUM_DECAYS = (0.01, 0.05, 0.1, 0.3, 0.5)
WEIGHT_DECAYS = (1e-4, 5e-4, 1e-3)
DRAWS = 10
START = {"momentum_decay": 0.1, "weight_decay": 5e-4}


class Trial(NamedTuple):
    """Hyperparameters and their NLL on validation data, infinite if the chain diverged."""

    hyper: dict[str, Any]
    nll: float


def grid(name: str, is_regression: bool = False) -> dict[str, Sequence[float]]:
    """Return the values to try for each hyperparameter of a method."""
    rates, sizes = (
        (REGRESSION_RATES, REGRESSION_EPSILONS_SQUARED) if is_regression else (LEARNING_RATES, EPSILONS_SQUARED)
    )
    sizes = {"DE": rates, "L2E": LEARNED_EPSILONS_SQUARED}.get(name, sizes)
    return dict(zip(axes(name), (sizes, MOMENTUM_DECAYS, WEIGHT_DECAYS), strict=True))


def search(lab: Lab, problem: Problem, names: Sequence[str]) -> dict[str, list[Trial]]:
    """Try the grid of each method and return its trials, the best first."""
    # Divergence is expected in a search: no notes about it.
    lab = dataclasses.replace(lab, seeds=lab.seeds[:1], notes=[])
    is_regression = problem.task.build().is_regression
    grids = {name: grid(name, is_regression) for name in names}
    fixed = {name: _fixed(problem, name) for name in names}
    problem = problem._replace(draws=min(problem.draws, DRAWS), members=min(problem.members, DRAWS))
    if lab.scale == "paper":
        points = [
            (name, fixed[name] | dict(zip(tried, point, strict=True)))
            for name, tried in grids.items()
            for point in itertools.product(*tried.values())
        ]
        found = _try_all(lab, problem, points)
    else:
        found = _try_axes(lab, problem, grids, fixed)
    return {name: sorted(trials, key=lambda trial: trial.nll) for name, trials in found.items()}


def _fixed(problem: Problem, name: str) -> dict[str, Any]:
    """Return hyperparameters that are not searched over."""
    known = problem.hyper.get(name, {})
    fixed = {"exploration_ratio": known.get("exploration_ratio", 0.8)} if name == "cSGMCMC" else {}
    # The step sizes tried are for the output scale of the weights, whatever it is.
    return fixed | ({"output_scale": None} if "output_scale" in known else {})


def _try_axes(lab: Lab, problem: Problem, grids: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, list[Trial]]:
    """Try one axis after the other, the same one for all methods at a time."""
    found: dict[str, list[Trial]] = {name: [] for name in grids}
    for number in range(3):
        points = []
        for name, values in grids.items():
            axis = axes(name)[number]
            best = min(found[name], key=lambda trial: trial.nll).hyper if found[name] else {**fixed[name], **START}
            tried = [trial.hyper for trial in found[name]]
            points += [(name, point) for value in values[axis] if (point := {**best, axis: value}) not in tried]
        for name, trials in _try_all(lab, problem, points).items():
            found[name] += trials
    return found


def _try_all(lab: Lab, problem: Problem, points: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, list[Trial]]:
    """Return each point's trial, by the name of its method."""
    setups = [lab.setup(problem, name, **point) for name, point in points]
    trials: dict[str, list[Trial]] = {}
    for (name, point), found in zip(points, lab.look(Chain.validation_nll, setups), strict=True):
        nll = found[0] if found and math.isfinite(found[0]) else math.inf
        trials.setdefault(name, []).append(Trial(point, nll))
    return trials
