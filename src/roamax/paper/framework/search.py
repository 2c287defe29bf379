"""The search over hyperparameters of the methods that are tuned: BMA NLL on validation data, ten draws, one seed.

It goes through the axes of a method one after the other. Short axes are tried whole. Long ones are climbed from the
default, to the better neighbour until both are worse, so that the best value is never at the end of what was tried.
Runs are kept as chains, so that an interrupted search resumes.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roamax import pretrained
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.methods import L2E_TUNED, LEARNED, ROAM_TUNED
from roamax.paper.framework.problems import Problem
from roamax.samplers.registry import RECORDS
from roamax.tasks import Task

DRAWS = 10
ADAM_RATES = 3e-3, 1e-3
"""Where the search of Adam's learning rate starts, for classification and regression."""


class Axis(NamedTuple):
    """A hyperparameter and its values, all of which are tried, or which are climbed from the default."""

    name: str
    values: tuple[float, ...]
    default: float
    climbed: bool = False

    def next_values(self, tried: Mapping[float, float], start: float) -> list[float]:
        """Return the values to try next, given the NLL of those that were tried; none if the best is found."""
        if not self.climbed:
            return [value for value in self.values if value not in tried]
        place = self.values.index(best_of(tried) if tried else start)
        return [value for value in self.values[max(0, place - 1) : place + 2] if value not in tried]


def best_of(tried: Mapping[float, float]) -> float:
    """Return the value with the lowest NLL, the smallest of several."""
    return min(tried, key=lambda value: (tried[value], value))


def _decades(*digits: int) -> tuple[float, ...]:
    return tuple(float(f"{digit}e{power}") for power in range(-9, 2) for digit in digits)


RATES, EPSILONS_SQUARED, WEIGHT_DECAYS = _decades(1, 3), _decades(1, 2, 4), _decades(1, 5)
MOMENTUM_DECAYS = (0.003, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0)

_RATE, _STEP = Axis("learning_rate", RATES, 0.1, True), Axis("epsilon_squared", EPSILONS_SQUARED, 1e-6, True)
_DECAYS = (
    Axis("momentum_decay", MOMENTUM_DECAYS, 0.1, True),
    Axis("weight_decay", WEIGHT_DECAYS, 1e-4, True),
)
_TEMPERATURE = Axis("temperature", (0.0, 0.01, 0.1, 1.0), 0.0)
_CYCLES = Axis("cycles", (1, 2, 5, 10), 1)
_SGMCMC = (_TEMPERATURE, _STEP, *_DECAYS)
AXES: dict[str, tuple[Axis, ...]] = {
    "Adam": (_RATE, _DECAYS[1]),
    "Muon": (_RATE, _DECAYS[1]),
    "Adam DE": (Axis("members", (2, 4, 10), 2), _RATE, _DECAYS[1]),
    "snapshots": (_CYCLES, _RATE, _DECAYS[1]),
    "SWAG": (_RATE, Axis("scale", (0.0, 0.5, 1.0), 0.0), _DECAYS[1]),
    "DE": (Axis("members", (1, 2, 4, 10), 1), _RATE, *_DECAYS),
    "SGHMC": _SGMCMC,
    "PX-SGHMC": _SGMCMC,
    "SMS-UBU": _SGMCMC,
    "SMILE": _SGMCMC,
    "cSGMCMC": (_CYCLES, *_SGMCMC),
    L2E_TUNED: (_STEP, *_DECAYS),
    ROAM_TUNED: (Axis("starts", (1, 2, 4, 10), 1, True), Axis("averaging", (0.0, 0.3), 0.0), _DECAYS[1]),
}
"""The methods that are tuned, each with its axes in the order of the search. A sampler of the registry with a learning
rate joins with a line of this table."""


class Trial(NamedTuple):
    """Hyperparameters and their NLL on validation data, infinite if the chain diverged."""

    hyper: dict[str, Any]
    nll: float


def is_tuned(problem: Problem, name: str) -> bool:
    """Return whether the settings of a method on a problem are those of a search over all of its axes."""
    return {axis.name for axis in AXES[name]} <= problem.hyper.get(name, {}).keys()


def search(lab: Lab, problem: Problem, names: Sequence[str]) -> dict[str, list[Trial]]:
    """Search for the settings of each method and return its trials, the best first."""
    # Divergence is expected in a search: no notes about it.
    lab = dataclasses.replace(lab, seeds=lab.seeds[:1], notes=[], settings={})
    task = problem.task.build()
    problem = problem._replace(draws=min(problem.draws, DRAWS))
    starts = {name: _start(name, task) for name in names}
    found: dict[str, list[Trial]] = {name: [] for name in names}
    while points := [(name, point) for name in names for point in next_points(AXES[name], starts[name], found[name])]:
        for name, trials in _try_all(lab, problem, points).items():
            found[name] += trials
    return {name: sorted(trials, key=lambda trial: trial.nll) for name, trials in found.items()}


def next_points(axes: Sequence[Axis], start: Mapping[str, Any], trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the settings to try next on the first axis that is not settled; none at the end of the search."""
    best = dict(start)
    for axis in axes:
        others = {**best, axis.name: None}
        tried = {t.hyper[axis.name]: t.nll for t in trials if {**t.hyper, axis.name: None} == others}
        if values := axis.next_values(tried, best[axis.name]):
            return [{**best, axis.name: value} for value in values]
        best[axis.name] = best_of(tried)
    return []


def _start(name: str, task: Task) -> dict[str, Any]:
    """Return the settings from which the search starts."""
    start = {axis.name: axis.default for axis in AXES[name]}
    if not start.keys() & {"learning_rate", "epsilon_squared"}:
        return start
    if name in LEARNED:
        card = pretrained.resolve(LEARNED[name][1], LEARNED[name][0].name).card
        start["epsilon_squared"] = _nearest(card["step_size"] ** 2, EPSILONS_SQUARED)
        return start | {"momentum_decay": _nearest(card["friction"], MOMENTUM_DECAYS)}
    records = {record.method: record for record in RECORDS.values()}
    rate = records[name].learning_rate(task.is_regression) if name in records else ADAM_RATES[task.is_regression]
    assert rate is not None
    if "learning_rate" in start:
        start["learning_rate"] = _nearest(rate, RATES)
    else:
        start["epsilon_squared"] = _nearest(rate / task.posterior.num_data, EPSILONS_SQUARED)
    return start


def _nearest(number: float, values: Sequence[float]) -> float:
    return min(values, key=lambda value: abs(math.log(value / number)))


def _try_all(lab: Lab, problem: Problem, points: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, list[Trial]]:
    """Return each point's trial, by the name of its method."""
    setups = [lab.setup(problem, name, **point) for name, point in points]
    trials: dict[str, list[Trial]] = {}
    for (name, point), found in zip(points, lab.look(Chain.validation_nll, setups), strict=True):
        nll = found[0] if found and math.isfinite(found[0]) else math.inf
        trials.setdefault(name, []).append(Trial(point, nll))
    return trials
