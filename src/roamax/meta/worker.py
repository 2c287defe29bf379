"""A worker runs jobs: one task, one key, one sign, one segment of an unroll.

A worker knows the config and the tasks, and keeps what costs time to make (tasks, compiled functions, data on a
device) but nothing that a result depends on: any worker gives the same result for the same job.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import tasks as task_sets
from roamax.meta import es, inner, objectives, tbptt
from roamax.meta.config import TrainConfig
from roamax.meta.families import make_family
from roamax.tasks import Task, TaskDistribution
from roamax.types import LearnedSampler, MetaParams

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
    """The loss of a job, its gradient where it was backpropagated, the carry where the unroll may go on."""

    loss: float
    gradient: MetaParams | None = None
    carry: list[Any] | None = None
    compile_seconds: float = 0.0


@jax.jit
def split_key(job_key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A job's keys: of its perturbation, and of all else."""
    noise_key, run_key = jax.random.split(jax.random.wrap_key_data(job_key))
    return noise_key, run_key


class Worker:
    """Runs jobs of one meta-training run."""

    def __init__(self, config: TrainConfig, tasks: TaskDistribution):
        self.config = config
        self.tasks = tasks
        self._built: dict[int, Task] = {}
        self._families: dict[float, LearnedSampler] = {}
        self._placed: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def run(self, meta_params: MetaParams, job: Job, device: Any = None) -> Result:
        """The result of a job, computed on `device`."""
        device = device or jax.local_devices()[0]
        with self._lock:
            task = self._task(job.task)
            unroll = self._unroll(task, job.stage)
            data = jax.tree.map(lambda array: self._place(array, device), (task.train, task.valid))
        with _compile_seconds() as spent, jax.default_device(device):
            noise_key, run_key = split_key(job.key)
            phi = self._perturb(jax.device_put(meta_params, device), noise_key, job)
            if job.carry is None:
                carry = inner.start(unroll, phi, run_key, data)
            else:
                carry = _structure(unroll, phi, run_key, data).unflatten(jax.device_put(job.carry, device))
            if self._backpropagates(job.stage):
                carry, loss, gradient = tbptt.advance(unroll, phi, run_key, data, carry)
                gradient = jax.tree.map(np.asarray, gradient)
            else:
                (carry, loss), gradient = inner.advance(unroll, phi, run_key, data, carry), None
            loss = float(loss)
        return Result(loss, gradient, self._rest(job, carry), sum(spent))

    def _perturb(self, meta_params: MetaParams, key: jax.Array, job: Job) -> MetaParams:
        if job.sign == 0:
            return meta_params
        stage = self.config.stages[job.stage]
        number = jnp.asarray(es.noise_number(stage.estimator, job.truncation), jnp.int32)
        return es.perturbed(meta_params, key, jnp.asarray(job.sign * stage.sigma, float), number, stage.layers)

    def _rest(self, job: Job, carry: Any) -> list[Any] | None:
        """What the next truncation needs, unless this was the last."""
        if job.stage == VALIDATION or job.truncation + 1 == self.config.stages[job.stage].truncations:
            return None
        return jax.tree.leaves(carry)

    def _backpropagates(self, stage: int) -> bool:
        return stage != VALIDATION and self.config.stages[stage].estimator == "tbptt"

    def _task(self, number: int) -> Task:
        if number not in self._built:
            self._built[number] = task_sets.build(self.tasks[number])
        return self._built[number]

    def _family(self, step_size: float) -> LearnedSampler:
        if step_size not in self._families:
            self._families[step_size] = make_family(self.config, step_size)
        return self._families[step_size]

    def _unroll(self, task: Task, number: int) -> inner.Unroll:
        config = self.config
        if number == VALIDATION:
            segment = _whole(config.valid_steps, config.valid_draws, config.valid_thinning)
            family, objective, chains = self._family(config.step_size), objectives.bma(), 1
            memory, rescale = config.valid_draws, 1.0
        else:
            stage = config.stages[number]
            if stage.truncation is None:
                segment = _whole(stage.inner_steps, stage.num_draws, stage.thinning)
            else:
                segment = inner.Segment(0, stage.truncation // stage.thinning, stage.thinning)
            family = self._family(stage.step_size or config.step_size)
            objective, chains = _objective(config), config.chains
            memory, rescale = stage.num_draws, config.rescale
        problem = inner.problem(
            family, task, objective, memory=memory, held_out=config.held_out, chains=chains, rescale=rescale
        )
        return inner.unroll(problem, segment, self._backpropagates(number))

    def _place(self, array: Any, device: Any) -> Any:
        """An array on a device, put there once for all tasks that share it."""
        if (id(array), device) not in self._placed:
            # The array itself is kept too, so that its id stays its own.
            self._placed[id(array), device] = array, jax.device_put(array, device)
        return self._placed[id(array), device][1]


def _structure(unroll: inner.Unroll, meta_params: MetaParams, key: jax.Array, data: inner.Data) -> Any:
    """The structure of the unroll's carry, which jobs hold as a plain list."""
    if unroll not in _structures:
        _structures[unroll] = jax.tree.structure(jax.eval_shape(unroll.start, meta_params, key, data))
    return _structures[unroll]


_structures: dict[inner.Unroll, Any] = {}


def _whole(steps: int, draws: int, thinning: int) -> inner.Segment:
    return inner.Segment(steps - draws * thinning, draws, thinning)


def _objective(config: TrainConfig) -> objectives.Objective:
    if config.objective == "kl":
        return objectives.kl(config.bandwidth)
    return objectives.bma() if config.objective == "bma" else objectives.cross_entropy()


@contextmanager
def _compile_seconds() -> Iterator[list[float]]:
    """The seconds that this thread spends compiling, one entry for each function."""
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
