"""What `roamax demo` runs: a small network on the digits of scikit-learn, every sampler vs. a deep ensemble."""

from collections.abc import Iterator
from pathlib import Path

import jax

from roamax import pretrained
from roamax.evaluation.compare import Method, Outcome, run_method
from roamax.samplers.cyclical import cyclical
from roamax.samplers.ensemble import ensemble
from roamax.samplers.hmc import hmc
from roamax.samplers.learned.l2e import l2e
from roamax.samplers.psgld import psgld
from roamax.samplers.sghmc import sghmc
from roamax.samplers.sgld import sgld
from roamax.schedules import from_learning_rate
from roamax.tasks import Task, TaskSpec

STEPS, DRAWS, MEMBERS = 4000, 10, 5
TASK = TaskSpec("digits", "mlp", {"hidden": [64]}, batch_size=64)


def methods(task: Task) -> list[Method]:
    """Return every method, each with `STEPS` minibatch gradients, or as many examples in gradients over all data."""
    posterior, n, size = task.posterior, task.posterior.num_data, task.batch_size
    half = {"num_samples": DRAWS, "burn_in": STEPS // 2, "thinning": STEPS // 2 // DRAWS, "batch_size": size}
    cycle = STEPS // DRAWS
    sampling_part = cycle - round(0.8 * cycle)
    leapfrog = 10
    # A trajectory takes one gradient to start from, and one per leapfrog step.
    trajectories = max(1, STEPS * size // n // (leapfrog + 1))
    exact_draws = min(DRAWS, (trajectories + 1) // 2)
    momentum = from_learning_rate(0.1, 0.1, n)
    found = [
        Method("deep ensemble", ensemble(posterior, member_steps=STEPS // MEMBERS, init=task.init), MEMBERS,
               batch_size=size),
        Method("SGLD", sgld(posterior, step_size=0.3 / n), **half),
        Method("pSGLD", psgld(posterior, step_size=1e-3 / n), **half),
        Method("SGHMC", sghmc(posterior, **momentum), **half),
        Method("cyclical SGHMC", cyclical(posterior, **from_learning_rate(0.3, 0.1, n), cycle_length=cycle), DRAWS,
               thinning=sampling_part, batch_size=size),
        Method("HMC", hmc(posterior, num_integration_steps=leapfrog, step_size=0.02, adaptation_steps=0),
               exact_draws, burn_in=trajectories - exact_draws, gradients_per_step=leapfrog + 1),
    ]  # fmt: skip
    if "l2e" in pretrained.list():
        found.append(Method("L2E", l2e(posterior), **half))
    return found


def run(seed: int, progress: bool | None = None, out: Path | None = None) -> Iterator[Outcome]:
    """Run each method in turn and yield its outcome.

    Args:
        seed: Decides all chains.
        progress: Whether to show a bar; None shows one on a terminal.
        out: A folder to keep the draws in, from which a demo that was stopped resumes.

    Yields:
        The outcome of each method.
    """
    task = TASK.build()
    for number, method in enumerate(methods(task)):
        folder = None if out is None else out / "runs" / method.name.replace(" ", "-").lower()
        yield run_method(jax.random.key(seed + 1000 * number), task, method, out=folder, progress=progress)
