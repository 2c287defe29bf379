"""The methods of `roamax demo`: a small network on the digits of scikit-learn, every sampler vs. a trained network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from roamax.evaluation.compare import Method, Outcome, run_method
from roamax.samplers.ensemble import ensemble
from roamax.samplers.registry import RECORDS, Record
from roamax.sampling.named import draw_options, named_sampler
from roamax.tasks import Task, TaskSpec

STEPS, DRAWS, MEMBERS = 4000, 10, 2
TASK = TaskSpec("digits", "mlp", {"hidden": [64]}, batch_size=64)
TUNED: dict[str, dict[str, Any]] = {
    "ensemble": {"learning_rate": 0.3},
    "sgld": {"learning_rate": 0.3},
    "sghmc": {"learning_rate": 0.1},
    "cyclical": {"learning_rate": 0.3},
    "hmc": {"num_integration_steps": 10, "step_size": 0.02, "adaptation_steps": 0},
}
"""Settings that suit the digits better than a sampler's defaults, by validation data. Of 2, 4 and 10 members that
share the steps, two are best (and one network alone is better)."""
ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.01}
"""The control: one network, trained as usual; of .001, .003, .01, .03 and .1 the best on validation data."""


def methods(task: Task) -> list[Method]:
    """Return every method, each with `STEPS` minibatch gradients, or as many examples in full-batch gradients."""
    shown = [record for record in RECORDS.values() if record.in_demo]
    network = ensemble(task.posterior, member_steps=STEPS, init=task.init, **ADAM)
    control = Method("one network, Adam", network, 1, batch_size=task.batch_size)
    # The control and the ensemble come first: the others are compared with them.
    return [control, *(_method(task, one) for one in sorted(shown, key=lambda record: record.draws != "member"))]


def _method(task: Task, record: Record) -> Method:
    size, draws = task.batch_size, MEMBERS if record.draws == "member" else DRAWS
    options = dict(TUNED.get(record.name, {}))
    rate = options.pop("learning_rate", None)
    sampler = named_sampler(
        record.name, task.posterior, num_steps=STEPS, num_samples=draws, init=task.init, learning_rate=rate,
        options=options,
    )  # fmt: skip
    if not record.full_batch:
        return Method(record.label, sampler, draws, **draw_options(record.name, STEPS // 2, STEPS // 2 // DRAWS, size))
    # A trajectory takes one gradient to start from, and one per leapfrog step.
    gradients = sampler.settings["num_integration_steps"] + 1
    trajectories = max(1, STEPS * size // task.posterior.num_data // gradients)
    draws = min(DRAWS, (trajectories + 1) // 2)
    return Method(record.label, sampler, draws, burn_in=trajectories - draws, gradients_per_step=gradients)


def run(seed: int, progress: bool | None = None, out: Path | None = None) -> Iterator[Outcome]:
    """Run each method in turn and yield its outcome.

    Args:
        seed: The seed of all chains.
        progress: Whether to show a progress bar; None shows it on a terminal only.
        out: A folder to keep the draws in, from which an interrupted demo resumes.

    Yields:
        The outcome of each method.
    """
    task = TASK.build()
    for number, method in enumerate(methods(task)):
        folder = None if out is None else out / "runs" / method.name.replace(" ", "-").lower()
        yield run_method(jax.random.key(seed + 1000 * number), task, method, out=folder, progress=progress)
