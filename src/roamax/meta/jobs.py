"""Jobs of meta-training (one task, one key, one sign, one segment of an unroll) and their results."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax.types import Key, MetaParams

VALIDATION = -1
"""The stage number of validation jobs."""


class Job(NamedTuple):
    """One segment of one unroll; a small message, except for the carry of a truncated unroll.

    `stage` is a number or VALIDATION, `task` an index into the task distribution, `key` the data of a key. `sign` is
    that of the perturbation, 0 for none. `truncation` counts the earlier segments, which led to `carry`.
    """

    stage: int
    task: int
    key: np.ndarray
    sign: int = 0
    truncation: int = 0
    carry: list[Any] | None = None


class Result(NamedTuple):
    """The loss of a job, its gradient if it was backpropagated, and the carry if the unroll has another segment."""

    loss: float
    gradient: MetaParams | None = None
    carry: list[Any] | None = None
    compile_seconds: float = 0.0


@jax.jit
def split_key(job_key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a job's keys: one for its perturbation, and one for all else."""
    noise_key, run_key = jax.random.split(jax.random.wrap_key_data(job_key))
    return noise_key, run_key


def eligible(part: str, task_names: Sequence[str]) -> list[int]:
    """Return the indices of the tasks whose names contain `part`."""
    return [place for place, name in enumerate(task_names) if part in name]


@jax.jit
def draw_problem(key: Key, task_group: jax.Array, pair: jax.Array, num_tasks: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw a task, the same for all pairs of a `task_group`, and the data of the pair's own key."""
    task_key, pair_key = jax.random.split(key)
    task = jax.random.randint(jax.random.fold_in(task_key, task_group), (), 0, num_tasks)
    return task, jax.random.key_data(jax.random.fold_in(pair_key, pair))
