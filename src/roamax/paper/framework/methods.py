"""The methods that experiments compare, by their names in the paper's tables, within the budget of a problem.

Besides the samplers of the registry, these are ways to use an optimizer: `Adam` and `Muon`, one network; `Adam DE`, an
ensemble of networks, which divide the steps; `snapshots`, positions along one run, each at the end of a cosine cycle
or, of a single cycle, in its last part; and `SWAG`.
"""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from roamax import pretrained, priors
from roamax.errors import InputError, lookup
from roamax.evaluation.compare import Method
from roamax.paper.framework.problems import Hyper, Problem
from roamax.paper.framework.swag import swag
from roamax.posterior import Posterior
from roamax.samplers.ensemble import ensemble
from roamax.samplers.registry import RECORDS, Record, Terms
from roamax.sampling.draws import Draws
from roamax.sampling.named import run_of
from roamax.sampling.shared import Kind, shared
from roamax.schedules import CosineToConstant
from roamax.tasks import Task, TaskSpec
from roamax.types import Key, Sampler

L2E_TUNED = "L2E, tuned"
"""L2E with the weights that ship and the settings of a search, as the paper has them for each data set."""
KINETIC_AS_PRINTED = "Kinetic L2E, as printed"
"""Kinetic L2E in the form that the paper prints, with weights that were trained in it."""
LEARNED: dict[str, tuple[Record, str]] = {
    **{
        record.method: (record, name.replace("_", "-"))
        for name, record in RECORDS.items()
        if record.family and record.draws == "step"
    },
    L2E_TUNED: (RECORDS["l2e"], "l2e"),
    KINETIC_AS_PRINTED: (RECORDS["kinetic_l2e"], "kinetic-l2e-paper"),
    "CE L2E": (RECORDS["l2e"], "l2e-ce"),
    "Small L2E": (RECORDS["l2e"], "l2e-small"),
}
"""Learned samplers, each with its weights."""
NUMBERS = ("step_size", "friction", "learning_rate")
"""Settings of samplers that do not shape their programs."""
EXPLORATION_RATIO = 0.8
MUON_MOMENTUM = 0.95
TAIL = 0.3
"""The part of a run of Adam from which several positions are taken."""
ROAM_TUNED = "roam, tuned"
"""roam with its prior tuned, as that of other methods is, its number of starts, and whether it averages positions."""
SWAG_SNAPSHOTS, SWAG_RATE = 20, 0.2
"""The number of positions in the tail, and its constant rate, as a fraction of the first."""


def task_of(problem: Problem, hyper: Hyper) -> TaskSpec:
    """Return the problem's task with the prior that was tuned for a method."""
    return dataclasses.replace(problem.task, weight_decay=hyper.get("weight_decay", problem.task.weight_decay))


def method(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    """Return the method of that name on a problem, with hyperparameters in the terms of `problems`."""
    record = lookup(_records(), name, "method")
    if record is None:
        return OPTIMIZED[name](name, problem, task, hyper)
    if record.draws == "cycle":
        return _in_cycles(name, problem, task, hyper, record)
    if record.family is not None:
        return _learned(name, problem, task, hyper)
    if record.draws == "step":
        settings = {**record.settings(_terms(hyper)), "temperature": hyper.get("temperature", 1.0)}
        if "adaptation_steps" in inspect.signature(record.load()).parameters:
            settings["adaptation_steps"] = problem.burn_in
        return _in_turn(name, problem, task, _sampler(record.load(), problem, task, hyper, settings))
    return _members(name, problem, task, hyper)


def names() -> list[str]:
    """Return the names of all methods."""
    return list(_records())


def _records() -> dict[str, Record | None]:
    """Return the record of each method's sampler; None for those by an optimizer."""
    records = {r.method: r for r in RECORDS.values() if r.learning_rates is not None or r.draws == "cycle"}
    learned = {label: record for label, (record, _) in LEARNED.items()}
    return {**records, **learned, ROAM_TUNED: RECORDS["roam"], **dict.fromkeys(OPTIMIZED)}


def finished(name: str, key: Key, problem: Problem, hyper: Hyper, draws: Draws) -> Draws:
    """Return the draws of a method, given the positions that its sampler collected."""
    if name != "SWAG":
        return draws
    return swag(key, draws, num_samples=problem.draws, scale=hyper["scale"])


def _sampler(
    make: Callable[..., Sampler], problem: Problem, task: Task, hyper: Hyper, settings: Mapping[str, Any]
) -> Sampler:
    """Return the sampler with these settings; those that differ in their numbers or their prior share a program."""
    sampler = make(task.posterior, **settings)
    numbers = {name: value for name, value in settings.items() if name in NUMBERS and isinstance(value, float)}
    fixed = tuple((name, value) for name, value in settings.items() if name not in numbers)
    num_data = task.posterior.num_data
    variance = 1 / (num_data * task_of(problem, hyper).weight_decay)
    kind = Kind(make, task.posterior.log_likelihood, priors.gaussian, num_data, fixed)
    return shared(sampler, kind, numbers, {"variance": variance})


def _members(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    """Return an ensemble by SGD; with `members`, its size, and without `momentum_decay`, by Adam."""
    epoch = task.posterior.num_data // task.batch_size
    members = hyper.get("members", problem.members)
    steps = hyper["epochs"] * epoch if "epochs" in hyper else problem.steps // members
    settings = {"member_steps": steps, "init": task.init, **_optimizer(hyper)}
    sampler = _sampler(ensemble, problem, task, hyper, settings)
    return Method(name, sampler, members, batch_size=task.batch_size)


def _one(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    return _members(name, problem, task, {**hyper, "members": 1})


def _muon(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    settings = {"member_steps": problem.steps, "optimizer": "muon", "momentum": MUON_MOMENTUM}
    sampler = _sampler(ensemble, problem, task, hyper, {**settings, "learning_rate": hyper["learning_rate"]})
    return Method(name, sampler, 1, batch_size=task.batch_size)


def _snapshots(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    cycles = hyper["cycles"]
    settings = {"member_steps": problem.steps // cycles, **_optimizer(hyper)}
    sampler = _sampler(ensemble, problem, task, hyper, settings)
    if cycles == 1:
        return _in_tail(name, problem, task, sampler, problem.draws)
    kept = _kept_cycles(problem, cycles)
    return Method(name, sampler, kept, (cycles - kept) * (problem.steps // cycles), batch_size=task.batch_size)


def _swag(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    settings = {"member_steps": problem.steps, "learning_rate": hyper["learning_rate"]}
    sampler = _sampler(_adam_for_swag, problem, task, hyper, settings)
    return _in_tail(name, problem, task, sampler, SWAG_SNAPSHOTS)


def _adam_for_swag(posterior: Posterior, *, member_steps: int, learning_rate: float) -> Sampler:
    rate = CosineToConstant(learning_rate, SWAG_RATE * learning_rate, round((1 - TAIL) * member_steps))
    return ensemble(posterior, member_steps=member_steps, optimizer="adam", learning_rate=rate)


OPTIMIZED = {"Adam": _one, "Muon": _muon, "Adam DE": _members, "snapshots": _snapshots, "SWAG": _swag}


def _optimizer(hyper: Hyper) -> dict[str, Any]:
    """Return SGD where a momentum decay is tuned, otherwise Adam."""
    if "momentum_decay" in hyper:
        return {"learning_rate": hyper["learning_rate"], "momentum": 1 - hyper["momentum_decay"]}
    return {"learning_rate": hyper["learning_rate"], "optimizer": "adam"}


def _in_tail(name: str, problem: Problem, task: Task, sampler: Sampler, draws: int) -> Method:
    """Return positions in equal distances over the last part of a run."""
    thinning = max(1, int(TAIL * problem.steps) // draws)
    anywhere = sampler._replace(collect=None)
    return Method(name, anywhere, draws, problem.steps - draws * thinning, thinning, task.batch_size)


def _kept_cycles(problem: Problem, cycles: int) -> int:
    """Return the number of cycles that end after the burn-in."""
    return cycles - problem.burn_in // (problem.steps // cycles)


def _in_cycles(name: str, problem: Problem, task: Task, hyper: Hyper, record: Record) -> Method:
    settings: dict[str, Any] = {"temperature": hyper.get("temperature", 1.0)}
    make = record.load() if record.family is None else _with_weights(record, "pretrained")
    if record.learning_rates is None:
        cycles, draws = _cycles_of(record, problem, task, hyper.get("starts"))
        settings |= cycles
        settings |= {"averaging": hyper["averaging"]} if "averaging" in hyper else {}
        kept = draws // settings.get("draws_per_cycle", 1)
    else:
        ratio = hyper.get("exploration_ratio", EXPLORATION_RATIO)
        settings |= record.settings(_terms(hyper)) | {"exploration_ratio": ratio}
        if "cycles" in hyper:
            kept = _kept_cycles(problem, hyper["cycles"])
            per_cycle = max(1, problem.draws // kept)
            settings |= {"cycle_length": problem.steps // hyper["cycles"], "draws_per_cycle": per_cycle}
            draws = kept * per_cycle
        else:
            # All steps are a whole number of cycles, the last of which give one draw each.
            lengths = range(1, problem.thinning + 1)
            settings["cycle_length"] = max(length for length in lengths if problem.steps % length == 0)
            draws = kept = problem.draws
    sampler = _sampler(make, problem, task, hyper, settings)
    burn_in = problem.steps - kept * settings["cycle_length"]
    return Method(name, sampler, draws, burn_in, batch_size=task.batch_size)


def _cycles_of(record: Record, problem: Problem, task: Task, starts: int | None) -> tuple[dict[str, int], int]:
    """Return the settings of a run with so many starts, or with those of the sampler by name, and its draws."""
    facts = task.posterior, task.init, task.batch_size, task.is_regression
    if starts is None:
        return record.cycles(run_of(problem.steps, problem.draws, *facts)), problem.draws
    draws = max(1, problem.draws // starts)
    settings = record._replace(start_steps=None).cycles(run_of(problem.steps // starts, draws, *facts))
    return settings | {"cycles_per_start": draws // settings.get("draws_per_cycle", 1)}, draws * starts


def _learned(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    record, weights = LEARNED[name]
    if "weights" not in hyper and weights not in pretrained.names():
        raise InputError(f"`weights` must be given for {name}, for this version ships none.")
    source = hyper.get("weights", weights)
    options: dict[str, Any] = {"temperature": hyper.get("temperature", 1.0)}
    options |= {"step_size": math.sqrt(hyper["epsilon_squared"])} if "epsilon_squared" in hyper else {}
    options |= {"friction": hyper["momentum_decay"]} if "momentum_decay" in hyper else {}
    # A file may change, weights that ship do not.
    make = (_with_weights if source in pretrained.names() else _with_weights.__wrapped__)(record, source)
    sampler = _sampler(make, problem, task, hyper, options)
    return _in_turn(name, problem, task, sampler, hyper)


@functools.cache
def _with_weights(record: Record, source: str) -> Callable[..., Sampler]:
    """Return the function of a learned sampler with its weights."""
    return functools.partial(record.load(), meta_params=pretrained.resolve(source, record.name))


def _in_turn(name: str, problem: Problem, task: Task, sampler: Sampler, hyper: Hyper | None = None) -> Method:
    epochs = (hyper or {}).get("thinning_epochs")
    thinning = epochs * (task.posterior.num_data // task.batch_size) if epochs else problem.thinning
    return Method(name, sampler, problem.draws, problem.burn_in, thinning, task.batch_size)


def _terms(hyper: Hyper) -> Terms:
    """Return the terms for one example, in which a learning rate is epsilon squared."""
    return Terms(hyper["epsilon_squared"], hyper["momentum_decay"], num_data=1)
