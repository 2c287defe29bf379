"""Jobs of meta-training: one task, one key, one sign, one segment of an unroll; and what comes back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax.types import Key, MetaParams

VALIDATION = -1
"""The stage of a job that validates."""


class Job(NamedTuple):
    """One segment of one unroll: small enough to send anywhere, but for the carry of a truncated one.

    `stage` is a number or VALIDATION, `task` a place in the task distribution, `key` the data of a key. `sign` is
    that of the perturbation, 0 for none. `truncation` counts the segments before, which led to `carry`.
    """

    stage: int
    task: int
    key: np.ndarray
    sign: int = 0
    truncation: int = 0
    carry: list[Any] | None = None


class Result(NamedTuple):
    """The loss of a job, its gradient where it was backpropagated, the carry where the unroll has a next segment."""

    loss: float
    gradient: MetaParams | None = None
    carry: list[Any] | None = None
    compile_seconds: float = 0.0


@jax.jit
def split_key(job_key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a job's keys: of its perturbation, and of all else."""
    noise_key, run_key = jax.random.split(jax.random.wrap_key_data(job_key))
    return noise_key, run_key


def eligible(part: str, task_names: Sequence[str]) -> list[int]:
    """Return the places in a task distribution of the tasks whose names contain `part`."""
    return [place for place, name in enumerate(task_names) if part in name]


@jax.jit
def draw_problem(key: Key, task_group: jax.Array, pair: jax.Array, num_tasks: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw a task, the same for all pairs of one `task_group`, and the data of a key of the pair's own."""
    task_key, pair_key = jax.random.split(key)
    task = jax.random.randint(jax.random.fold_in(task_key, task_group), (), 0, num_tasks)
    return task, jax.random.key_data(jax.random.fold_in(pair_key, pair))
