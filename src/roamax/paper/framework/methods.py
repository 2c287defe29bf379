"""The methods that experiments compare, by their names in the paper's tables, within the budget of a problem."""

import dataclasses
import math
from typing import Any

from roamax import pretrained
from roamax.errors import InputError, lookup
from roamax.evaluation.compare import Method
from roamax.paper.framework.problems import Hyper, Problem
from roamax.samplers.ensemble import ensemble
from roamax.samplers.learned.l2e import DEFAULTS
from roamax.samplers.registry import RECORDS, Record, Terms
from roamax.tasks import Task, TaskSpec
from roamax.types import Sampler

LEARNED: dict[str, tuple[Record, str]] = {
    **{
        record.method: (record, name.replace("_", "-"))
        for name, record in RECORDS.items()
        if record.family and record.draws == "step"
    },
    "CE L2E": (RECORDS["l2e"], "l2e-ce"),
    "Small L2E": (RECORDS["l2e"], "l2e-small"),
}
"""Learned samplers, each with its weights."""


def task_of(problem: Problem, hyper: Hyper) -> TaskSpec:
    """Return the problem's task with the prior that was tuned for a method."""
    return dataclasses.replace(problem.task, weight_decay=hyper.get("weight_decay", problem.task.weight_decay))


def method(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    """Return the method of that name on a problem, with hyperparameters in the terms of `problems`."""
    records = {r.method: r for r in RECORDS.values() if r.learning_rates is not None or r.draws == "cycle"}
    record = lookup({**records, **{label: learned for label, (learned, _) in LEARNED.items()}}, name, "method")
    if record.draws == "cycle":
        return _in_cycles(name, problem, task, hyper, record)
    if record.family is not None:
        return _learned(name, problem, task, hyper)
    if record.draws == "step":
        settings = {**record.settings(_terms(hyper)), "temperature": hyper.get("temperature", 1.0)}
        return _in_turn(name, problem, task, record.load()(task.posterior, **settings))
    return _ensemble(name, problem, task, hyper)


def _ensemble(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    epoch = task.posterior.num_data // task.batch_size
    steps = hyper["epochs"] * epoch if "epochs" in hyper else problem.steps // problem.members
    sampler = ensemble(
        task.posterior,
        member_steps=steps,
        init=task.init,
        learning_rate=hyper["learning_rate"],
        momentum=1 - hyper["momentum_decay"],
    )
    return Method(name, sampler, problem.members, batch_size=task.batch_size)


def _in_cycles(name: str, problem: Problem, task: Task, hyper: Hyper, record: Record) -> Method:
    settings: dict[str, Any] = {"temperature": hyper.get("temperature", 1.0)}
    if record.learning_rates is None:
        settings |= record.cycles(problem.steps, problem.draws)
    else:
        # All steps are a whole number of cycles, the last of which give one draw each.
        cycle = max(length for length in range(1, problem.thinning + 1) if problem.steps % length == 0)
        settings |= record.settings(_terms(hyper))
        settings |= {"cycle_length": cycle, "exploration_ratio": hyper["exploration_ratio"]}
    sampler = record.load()(task.posterior, **settings)
    drawing = problem.draws // settings.get("draws_per_cycle", 1) * settings["cycle_length"]
    return Method(name, sampler, problem.draws, problem.steps - drawing, batch_size=task.batch_size)


def _learned(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    record, weights = LEARNED[name]
    if "weights" not in hyper and weights not in pretrained.names():
        raise InputError(f"`weights` must be given for {name}, for this version ships none.")
    weights = pretrained.resolve(hyper.get("weights", weights), record.name)
    options: dict[str, Any] = {"temperature": hyper.get("temperature", 1.0)}
    # Step sizes for one output scale do not apply to weights of another, which have theirs on their card.
    if hyper.get("output_scale") in (None, weights.card.get("output_scale", DEFAULTS["output_scale"])):
        options |= {"step_size": math.sqrt(hyper["epsilon_squared"])} if "epsilon_squared" in hyper else {}
        options |= {"friction": hyper["momentum_decay"]} if "momentum_decay" in hyper else {}
    sampler = record.load()(task.posterior, weights, **options)
    return _in_turn(name, problem, task, sampler, hyper)


def _in_turn(name: str, problem: Problem, task: Task, sampler: Sampler, hyper: Hyper | None = None) -> Method:
    epochs = (hyper or {}).get("thinning_epochs")
    thinning = epochs * (task.posterior.num_data // task.batch_size) if epochs else problem.thinning
    return Method(name, sampler, problem.draws, problem.burn_in, thinning, task.batch_size)


def _terms(hyper: Hyper) -> Terms:
    """Return the terms for one example, in which a learning rate is epsilon squared."""
    return Terms(hyper["epsilon_squared"], hyper["momentum_decay"], num_data=1)
