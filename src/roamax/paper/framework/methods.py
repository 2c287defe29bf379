"""The methods that experiments compare, by the names of the paper's tables, at the cost that a problem allows."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from roamax import pretrained
from roamax.errors import InputError, lookup
from roamax.evaluation.compare import Method
from roamax.paper.framework.problems import Hyper, Problem
from roamax.samplers.cyclical import cyclical
from roamax.samplers.ensemble import ensemble
from roamax.samplers.learned.kinetic_l2e import kinetic_l2e
from roamax.samplers.learned.l2e import DEFAULTS, l2e
from roamax.samplers.learned.meta_sgmcmc import meta_sgmcmc
from roamax.samplers.learned.precond_l2e import precond_l2e
from roamax.samplers.sghmc import sghmc
from roamax.tasks import Task, TaskSpec
from roamax.types import Sampler

LEARNED: dict[str, tuple[Callable[..., Sampler], str]] = {
    "L2E": (l2e, "l2e"),
    "CE L2E": (l2e, "l2e-ce"),
    "Small L2E": (l2e, "l2e-small"),
    "Kinetic L2E": (kinetic_l2e, "kinetic-l2e"),
    "Precond L2E": (precond_l2e, "precond-l2e"),
    "Meta-SGMCMC": (meta_sgmcmc, "meta-sgmcmc"),
}
"""Learned samplers, and the weights that each takes."""


def task_of(problem: Problem, hyper: Hyper) -> TaskSpec:
    """The problem's task with the prior that a method was tuned to."""
    return dataclasses.replace(problem.task, weight_decay=hyper.get("weight_decay", problem.task.weight_decay))


def method(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    """The method of that name on a problem, with hyperparameters in the terms of `problems`."""
    known = {"DE": _ensemble, "cSGMCMC": _cyclical, "SGHMC": _sghmc, **dict.fromkeys(LEARNED, _learned)}
    return lookup(known, name, "method")(name, problem, task, hyper)


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


def _sghmc(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    sampler = sghmc(task.posterior, **_momentum(hyper), temperature=hyper.get("temperature", 1.0))
    return _in_turn(name, problem, task, sampler)


def _cyclical(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    # A whole number of cycles has to take all the steps, and one draw comes from each of the last ones.
    cycle = max(length for length in range(1, problem.thinning + 1) if problem.steps % length == 0)
    sampler = cyclical(
        task.posterior,
        **_momentum(hyper),
        cycle_length=cycle,
        exploration_ratio=hyper["exploration_ratio"],
        temperature=hyper.get("temperature", 1.0),
    )
    sampling_part = cycle - round(hyper["exploration_ratio"] * cycle)
    return Method(name, sampler, problem.draws, problem.steps - problem.draws * cycle, sampling_part, task.batch_size)


def _learned(name: str, problem: Problem, task: Task, hyper: Hyper) -> Method:
    build, weights = LEARNED[name]
    if "weights" not in hyper and weights not in pretrained.list():
        raise InputError(f"`weights` must be given for {name}, for this version ships none.")
    weights = hyper.get("weights", weights)
    options: dict[str, Any] = {"temperature": hyper.get("temperature", 1.0)}
    card = pretrained.resolve(weights, build.__name__).card
    # Step sizes that go with one output scale mean nothing to weights of another, which have theirs on their card.
    if hyper.get("output_scale") in (None, card.get("output_scale", DEFAULTS["output_scale"])):
        options |= {"step_size": math.sqrt(hyper["epsilon_squared"])} if "epsilon_squared" in hyper else {}
        options |= {"friction": hyper["momentum_decay"]} if "momentum_decay" in hyper else {}
    sampler = build(task.posterior, weights, **options)
    return _in_turn(name, problem, task, sampler, hyper)


def _in_turn(name: str, problem: Problem, task: Task, sampler: Sampler, hyper: Hyper | None = None) -> Method:
    epochs = (hyper or {}).get("thinning_epochs")
    thinning = epochs * (task.posterior.num_data // task.batch_size) if epochs else problem.thinning
    return Method(name, sampler, problem.draws, problem.burn_in, thinning, task.batch_size)


def _momentum(hyper: Hyper) -> dict[str, Any]:
    epsilon = math.sqrt(hyper["epsilon_squared"])
    return {"step_size": epsilon, "friction": hyper["momentum_decay"] / epsilon}
