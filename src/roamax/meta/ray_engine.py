"""Jobs on the workers of a Ray cluster (the extra `roamax[ray]`).

    ray start --head                          # on one machine
    ray start --address=HEAD:6379             # on every other
    meta.train(config, out, engine=partial(RayEngine, address="auto"))

Without an address, a cluster of this machine alone is started, and ended with the run.
"""

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from roamax.errors import InputError, check
from roamax.meta.config import TrainConfig
from roamax.meta.worker import Job, Result, Worker
from roamax.tasks import TaskDistribution
from roamax.types import MetaParams

MAX_LOSSES = 3
"""A job that so many workers died of is not given to another, nor are so many workers started that never get up."""
_FLAGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_default_matmul_precision",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)


class WorkersLost(RuntimeError):
    """Workers died again and again, of one job or before they could take one."""


class RayEngine:
    """Jobs dealt to Ray workers as they become free; a worker that dies is replaced and its job run again.

    Workers are sent meta-parameters and jobs and return scalars (backpropagation: a gradient; truncated unrolls:
    their carry). The results are those of the local engine.
    """

    def __init__(
        self,
        config: TrainConfig,
        tasks: TaskDistribution,
        *,
        address: str | None = None,
        workers: int | None = None,
        cpus_per_worker: float = 1,
        gpus_per_worker: float = 0,
    ):
        self._ray = ray = _import_ray()
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            quiet = {"include_dashboard": False} if address is None else {}
            ray.init(address=address, log_to_driver=False, logging_level="error", **quiet)
        if workers is None:
            workers = max(1, int(ray.cluster_resources().get("CPU", 1) // max(cpus_per_worker, 1)))
        check(isinstance(workers, int) and workers >= 1, "workers", "be a whole number >= 1", workers)
        flags = {name: getattr(jax.config, name) for name in _FLAGS}
        options = {"num_cpus": cpus_per_worker, "num_gpus": gpus_per_worker, "max_restarts": 0}
        self._actor = ray.remote(_Actor).options(**options)
        self._arguments = (config, ray.put(tasks), flags)
        # What is under way: a worker for each reference, and the place of its job, or None while it gets up.
        self._under_way: dict[Any, tuple[Any, int | None]] = {}
        self._idle: list[Any] = []
        self._false_starts = 0
        for _ in range(workers):
            self._start_worker()

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """The results of `jobs` at `meta_params`."""
        shared = self._ray.put(jax.tree.map(np.asarray, meta_params))
        waiting, losses = deque(range(len(jobs))), [0] * len(jobs)
        results: dict[int, Result] = {}
        while len(results) < len(jobs):
            while waiting and self._idle:
                place = waiting.popleft()
                actor = self._idle.pop()
                self._under_way[actor.run.remote(shared, _portable(jobs[place]))] = actor, place
            (done,), _ = self._ray.wait(list(self._under_way), num_returns=1)
            actor, place = self._under_way.pop(done)
            try:
                outcome = self._ray.get(done)
            except self._ray.exceptions.RayActorError as error:
                self._replace(place, losses, error)
                if place is not None:
                    waiting.appendleft(place)
                continue
            except self._ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            self._idle.append(actor)
            if place is None:
                self._false_starts = 0
            else:
                results[place] = outcome
        return [results[place] for place in range(len(jobs))]

    def worker_pids(self) -> list[int]:
        """The process numbers of the workers that are idle, to look at them from outside."""
        return self._ray.get([actor.pid.remote() for actor in self._idle])

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        for actor in [*self._idle, *(actor for actor, _ in self._under_way.values())]:
            self._ray.kill(actor)
        if self._owns_cluster:
            self._ray.shutdown()

    def _start_worker(self) -> None:
        actor = self._actor.remote(*self._arguments)
        self._under_way[actor.pid.remote()] = actor, None

    def _replace(self, place: int | None, losses: list[int], error: Exception) -> None:
        if place is None:
            self._false_starts += 1
        else:
            losses[place] += 1
        if max([self._false_starts, *losses]) >= MAX_LOSSES:
            raise WorkersLost(f"{MAX_LOSSES} Ray workers died one after another; the last: {error}") from error
        self._start_worker()


class _Actor:
    """A worker in a process of its own."""

    def __init__(self, config: TrainConfig, tasks: TaskDistribution, flags: dict[str, Any]):
        for name, value in flags.items():
            jax.config.update(name, value)
        self._worker = Worker(config, tasks)

    def run(self, meta_params: MetaParams, job: Job) -> Result:
        return _portable(self._worker.run(meta_params, job))

    def pid(self) -> int:
        return os.getpid()


def _portable(message: Any) -> Any:
    """A job or a result with its carry in host memory."""
    return message._replace(carry=jax.tree.map(np.asarray, message.carry))


def _import_ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.exceptions  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise InputError("`engine` must be local where Ray is not installed: pip install 'roamax[ray]'.") from error
    return ray
