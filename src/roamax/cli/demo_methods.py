"""The problem and the methods of `roamax demo`: a small network that meets digits other than it was trained on."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import data, models
from roamax.errors import CardWarning
from roamax.evaluation.compare import Method, Outcome, run_method
from roamax.samplers.ensemble import ensemble
from roamax.samplers.registry import RECORDS, Record
from roamax.sampling.named import draw_options, named_sampler
from roamax.tasks import Task, make_task

SEEDS, STEPS, DRAWS, MEMBERS = 4, 4000, 20, 8
CLASSES, POOL, TRAIN = 8, 700, 400
"""Digits below `CLASSES` are known. The first `POOL` of these are for training and validation, the rest for tests."""
CONTROL = "one network, Adam"
TRAINED = (CONTROL, RECORDS["ensemble"].label)
"""The methods that are no samplers."""
TUNED: dict[str, dict[str, Any]] = {
    CONTROL: {"optimizer": "adam", "learning_rate": 0.001},
    "ensemble": {"optimizer": "adam", "learning_rate": 0.003},
    "sgld": {"learning_rate": 0.3},
    "psgld": {"learning_rate": 0.01},
    "sghmc": {"learning_rate": 0.1},
    "hmc": {"num_integration_steps": 10, "step_size": 0.02, "adaptation_steps": 0},
}
"""Settings other than a sampler's defaults, chosen, like the weight decay and the number of members, by the NLL on
validation digits, half of them off-centre, of seeds that the demo does not use by default."""


class Problem(NamedTuple):
    """A task, and the sets of inputs to predict and their labels, by name; the network has no output for the unseen."""

    task: Task
    inputs: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]


def problem(seed: int) -> Problem:
    """Return the problem whose training examples are chosen by a seed; those for tests are always the same."""
    digits = data.load("digits")
    x, y = (np.concatenate(parts) for parts in ((digits.x_train, digits.x_test), (digits.y_train, digits.y_test)))
    known = np.flatnonzero(y < CLASSES)
    pool, test = np.random.default_rng(seed).permutation(known[:POOL]), known[POOL:]
    train, valid = pool[:TRAIN], pool[TRAIN:]
    model = models.get("mlp", hidden=[64, 64], num_classes=CLASSES)
    parts = [(x[chosen], y[chosen]) for chosen in (train, valid, test)]
    task = make_task(f"{TRAIN} digits below {CLASSES}", model, *parts, weight_decay=3e-3, batch_size=50)
    rows = {"valid": valid, "test": test, "unseen": np.flatnonzero(y >= CLASSES)}
    inputs = {name: x[chosen] for name, chosen in rows.items()}
    labels = {name: y[chosen] for name, chosen in rows.items()}
    for name in ("valid", "test"):
        moved = f"{name}, off-centre"
        inputs[moved], labels[moved] = off_centre(inputs[name]), labels[name]
    return Problem(task, inputs, labels)


def off_centre(images: np.ndarray) -> np.ndarray:
    """Return images moved to the right by one pixel."""
    return np.concatenate([np.zeros_like(images[:, :, :1]), images[:, :, :-1]], axis=2)


def methods(task: Task) -> list[Method]:
    """Return every method, each with `STEPS` minibatch gradients, or as many examples in full-batch gradients."""
    shown = [record for record in RECORDS.values() if record.in_demo]
    network = ensemble(task.posterior, member_steps=STEPS, init=task.init, **TUNED[CONTROL])
    control = Method(CONTROL, network, 1, batch_size=task.batch_size)
    # The control and the ensemble come first: the others are compared with them.
    return [control, *(_method(task, one) for one in sorted(shown, key=lambda record: record.draws != "member"))]


def _method(task: Task, record: Record) -> Method:
    size, draws = task.batch_size, MEMBERS if record.draws == "member" else DRAWS
    options = dict(TUNED.get(record.name, {}))
    rate = options.pop("learning_rate", None)
    sampler = named_sampler(
        record.name, task.posterior, num_steps=STEPS, num_samples=draws, init=task.init, batch_size=size,
        learning_rate=rate, options=options,
    )  # fmt: skip
    if not record.full_batch:
        return Method(record.label, sampler, draws, **draw_options(record.name, STEPS // 2, STEPS // 2 // DRAWS, size))
    # A trajectory takes one gradient to start from, and one per leapfrog step.
    gradients = sampler.settings["num_integration_steps"] + 1
    trajectories = max(1, STEPS * size // task.posterior.num_data // gradients)
    draws = min(DRAWS, (trajectories + 1) // 2)
    return Method(record.label, sampler, draws, burn_in=trajectories - draws, gradients_per_step=gradients)


def run(problems: Mapping[int, Problem], out: Path, progress: bool | None = None) -> Iterator[list[Outcome]]:
    """Run each method in turn on all problems and yield its outcomes.

    Args:
        problems: The problems by seed, which is also that of the chains.
        out: A folder to keep the draws in, from which an interrupted demo resumes.
        progress: Whether to show a progress bar; None shows it on a terminal only.

    Yields:
        The outcomes of each method, one per problem.
    """
    with warnings.catch_warnings():
        # Far from their cards' problems is where the demo shows what learned samplers do.
        warnings.simplefilter("ignore", CardWarning)
        made = {seed: methods(one.task) for seed, one in problems.items()}
    for number in range(min(map(len, made.values()))):
        outcomes = []
        for seed, (task, inputs, _) in problems.items():
            method = made[seed][number]
            folder = out / "runs" / f"{method.name.replace(' ', '-').lower()}-{seed}"
            key = jax.random.key(seed + 1000 * number)
            outcomes.append(run_method(key, task, method, inputs, out=folder, progress=progress))
        yield outcomes
