"""A worker that runs jobs.

It has the config and the tasks, and caches what is slow to make (tasks, compiled functions, data on a device), but
results depend on none of it: any worker returns the same result for the same job.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from roamax import tasks as task_sets
from roamax.meta import estimators, inner, objectives
from roamax.meta.config import Stage, TrainConfig
from roamax.meta.families import make_family
from roamax.meta.jobs import VALIDATION, Job, Result, split_key
from roamax.tasks import Task, TaskDistribution
from roamax.types import LearnedSampler, MetaParams


class Worker:
    """A runner of the jobs of one meta-training run."""

    def __init__(self, config: TrainConfig, tasks: TaskDistribution):
        self.config = config
        self.tasks = tasks
        self._built: dict[int, Task] = {}
        self._families: dict[float, LearnedSampler] = {}
        self._placed: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def run(self, meta_params: MetaParams, job: Job, device: Any = None) -> Result:
        """Run a job on a device.

        Args:
            meta_params: The meta-parameters, before the job's perturbation.
            job: The job.
            device: Where to compute; None for the first local device.

        Returns:
            Its result.
        """
        device = device or jax.local_devices()[0]
        stage = self._stage(job.stage)
        estimator = estimators.get(stage.estimator)
        with self._lock:
            task = self._task(job.task)
            unroll = self._unroll(task, job.stage)
            data = jax.tree.map(lambda array: self._place(array, device), (task.train, task.valid))
        with _compile_seconds() as spent, jax.default_device(device):
            _, run_key = split_key(job.key)
            phi = estimator.perturbed(jax.device_put(meta_params, device), stage, job)
            if job.carry is None:
                carry = inner.start(unroll, phi, run_key, data)
            else:
                carry = _structure(unroll, phi, run_key, data).unflatten(jax.device_put(job.carry, device))
            carry, loss, gradient = estimator.advance(unroll, phi, run_key, data, carry)
            loss, gradient = float(loss), jax.tree.map(np.asarray, gradient)
        is_last = job.truncation + 1 == stage.truncations
        return Result(loss, gradient, None if is_last else jax.tree.leaves(carry), sum(spent))

    def _stage(self, number: int) -> Stage:
        return self.config.validation if number == VALIDATION else self.config.stages[number]

    def _task(self, number: int) -> Task:
        if number not in self._built:
            self._built[number] = task_sets.build(self.tasks[number])
        return self._built[number]

    def _family(self, step_size: float) -> LearnedSampler:
        if step_size not in self._families:
            self._families[step_size] = make_family(self.config, step_size)
        return self._families[step_size]

    def _unroll(self, task: Task, number: int) -> inner.Unroll:
        config, stage = self.config, self._stage(number)
        if stage.truncation is None:
            burn_in = stage.inner_steps - stage.num_samples * stage.thinning
            segment = inner.Segment(burn_in, stage.num_samples, stage.thinning)
        else:
            segment = inner.Segment(0, stage.truncation // stage.thinning, stage.thinning)
        # Validation scores the model average of one chain, in the original coordinates.
        trains = number != VALIDATION
        problem = inner.problem(
            self._family(stage.step_size or config.step_size),
            task,
            _objective(config) if trains else objectives.bma(),
            memory=stage.num_samples,
            held_out=config.held_out,
            chains=config.chains if trains else 1,
            rescale=config.rescale if trains else 1.0,
        )
        return inner.unroll(problem, segment, rematerialise=estimators.ESTIMATORS[stage.estimator].backpropagates)

    def _place(self, array: Any, device: Any) -> Any:
        """Return an array on a device, where it is put once for all tasks that share it."""
        if (id(array), device) not in self._placed:
            # The array itself is kept too, so that its id is not reused.
            self._placed[id(array), device] = array, jax.device_put(array, device)
        return self._placed[id(array), device][1]


def _structure(unroll: inner.Unroll, meta_params: MetaParams, key: jax.Array, data: inner.Data) -> Any:
    """Return the structure of the unroll's carry, which jobs hold as a plain list."""
    if unroll not in _structures:
        _structures[unroll] = jax.tree.structure(jax.eval_shape(unroll.start, meta_params, key, data))
    return _structures[unroll]


_structures: dict[inner.Unroll, Any] = {}


def _objective(config: TrainConfig) -> objectives.Objective:
    if config.objective == "kl":
        return objectives.kl(config.bandwidth)
    return objectives.bma() if config.objective == "bma" else objectives.cross_entropy()


@contextmanager
def _compile_seconds() -> Iterator[list[float]]:
    """Collect the seconds that this thread spends compiling, one entry per function."""
    spent: list[float] = []
    thread = threading.get_ident()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration") and threading.get_ident() == thread:
            spent.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield spent
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
