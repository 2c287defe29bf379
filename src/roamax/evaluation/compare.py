"""Several methods on one task: their predictions, and their cost in gradients and in time."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import runs
from roamax.evaluation.predict import predict_draws
from roamax.sampling.loop import unroll
from roamax.sampling.runner import plan_draws, sample
from roamax.tasks import Task
from roamax.types import Key, Sampler


class Method(NamedTuple):
    """A sampler and how its draws are taken. `batch_size` None means all data."""

    name: str
    sampler: Sampler
    num_samples: int
    burn_in: int = 0
    thinning: int = 1
    batch_size: int | None = None
    gradients_per_step: int = 1

    @property
    def num_steps(self) -> int:
        """The length of a chain, up to its last draw."""
        return plan_draws(self.sampler, self.num_samples, self.burn_in, self.thinning)[-1]

    def gradient_evaluations(self, task: Task) -> float:
        """Return the number of minibatch gradients, where a full-batch gradient counts by its number of examples."""
        size = task.posterior.num_data if self.batch_size is None else self.batch_size
        return self.num_steps * self.gradients_per_step * size / task.batch_size


class Outcome(NamedTuple):
    """Each draw's log-probabilities on several sets of inputs, by the name of the set, and the cost of the draws."""

    name: str
    log_probs: Mapping[str, np.ndarray]
    gradient_evaluations: float
    seconds: float


def run_method(
    key: Key, task: Task, method: Method, inputs: Mapping[str, Any], *, out: Path, progress: bool | None = None
) -> Outcome:
    """Run one method on a task and predict several sets of inputs.

    Args:
        key: The key of the chain.
        task: A classification task.
        method: The sampler, and how its draws are taken.
        inputs: The sets of inputs by name.
        out: A run folder to keep the draws in, from which an interrupted run resumes.
        progress: Whether to show a progress bar; None shows it on a terminal only.

    Returns:
        The outcome. Its time is that of the steps, without compilation.
    """
    draws = sample(
        key,
        method.sampler,
        task.init,
        task.train,
        batch_size=method.batch_size,
        burn_in=method.burn_in,
        num_samples=method.num_samples,
        thinning=method.thinning,
        out=out,
        progress=progress,
    )
    log_probs = {name: predict_draws(task.apply, draws, x) for name, x in inputs.items()}
    seconds = runs.seconds_taken(out / "state") or 0.0
    return Outcome(method.name, log_probs, method.gradient_evaluations(task), seconds)


def step_timer(sampler: Sampler, task: Task, steps: int = 10) -> Callable[[], float]:
    """Return a compiled function that runs `steps` steps on one batch and returns the seconds per step."""
    batch = jax.tree.map(lambda array: jnp.asarray(array[: task.batch_size]), task.train)
    key = jax.random.key(0)
    state = sampler.init(key, task.init(key))

    @jax.jit
    def run(state: Any) -> Any:
        return unroll(sampler, key, state, lambda step: batch, steps)[0]

    jax.block_until_ready(run(state))

    def seconds() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(run(state))
        return (time.perf_counter() - begun) / steps

    return seconds
