"""Jobs on the workers of a Ray cluster (the extra `roamax[ray]`).

    ray start --head                          # on one machine
    ray start --address=HEAD:6379             # on every other
    meta.train(config, out, engine=partial(RayEngine, address="auto"))

Without an address, a cluster of this machine alone is started, and ended with the run.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax.errors import InputError, check
from roamax.host.machine import jax_settings, take_jax_settings
from roamax.meta.config import TrainConfig
from roamax.meta.worker import Job, Result, Worker
from roamax.tasks import TaskDistribution
from roamax.types import MetaParams

MAX_LOSSES = 3
"""A job that so many workers were lost with is given up, and so is a run whose workers fail so often to get up."""


class WorkersLost(RuntimeError):
    """Workers died or hung again and again, with one job or before they could take one."""


class _Work(NamedTuple):
    """What a worker is at: the place of its job, or None while it gets up, and since when."""

    actor: Any
    place: int | None
    begun: float


class RayEngine:
    """Jobs dealt to Ray workers as they become free.

    Workers are sent meta-parameters and jobs and return scalars (backpropagation: a gradient; truncated unrolls:
    their carry). The results are those of the local engine, also when workers fail: one that dies, or takes longer
    than `job_seconds` for a job, is replaced and its job run again; a result that is not finite is believed when
    another worker, where there is one, finds the same.
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
        job_seconds: float = 3600.0,
    ):
        check(job_seconds > 0, "job_seconds", "be > 0", job_seconds)
        self._ray = ray = import_ray()
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            quiet = {"include_dashboard": False} if address is None else {}
            ray.init(address=address, log_to_driver=False, logging_level="error", **quiet)
        if workers is None:
            workers = max(1, int(ray.cluster_resources().get("CPU", 1) // max(cpus_per_worker, 1)))
        check(isinstance(workers, int) and workers >= 1, "workers", "be a whole number >= 1", workers)
        options = {"num_cpus": cpus_per_worker, "num_gpus": gpus_per_worker, "max_restarts": 0}
        self._actor = ray.remote(_Actor).options(**options)
        self._arguments = (config, ray.put(tasks), jax_settings())
        self._workers, self._job_seconds = workers, job_seconds
        self._under_way: dict[Any, _Work] = {}
        self._idle: list[Any] = []
        self._false_starts = 0
        for _ in range(workers):
            self._start_worker()

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """The results of `jobs` at `meta_params`."""
        shared = self._ray.put(jax.tree.map(np.asarray, meta_params))
        waiting, losses = list(range(len(jobs))), [0] * len(jobs)
        results: dict[int, Result] = {}
        doubted: dict[int, Any] = {}
        while len(results) < len(jobs):
            while match := self._match(waiting, doubted):
                place, actor = match
                waiting.remove(place)
                self._idle.remove(actor)
                reference = actor.run.remote(shared, _portable(jobs[place]))
                self._under_way[reference] = _Work(actor, place, time.monotonic())
            for work, outcome in self._outcomes():
                place = work.place
                if isinstance(outcome, Exception):
                    self._replace(place, losses, outcome)
                    waiting[:0] = [] if place is None else [place]
                    continue
                self._idle.append(work.actor)
                if place is None:
                    self._false_starts = 0
                elif _is_finite(outcome) or place in doubted:
                    results[place] = outcome
                else:
                    doubted[place] = work.actor
                    waiting.append(place)
        return [results[place] for place in range(len(jobs))]

    def _match(self, waiting: Sequence[int], doubted: Mapping[int, Any]) -> tuple[int, Any] | None:
        """A job that waits and an idle worker for it: not the one whose result is in doubt, if there are others."""
        for place in waiting:
            for actor in reversed(self._idle):
                if actor is not doubted.get(place) or self._workers == 1:
                    return place, actor
        return None

    def _outcomes(self) -> list[tuple[_Work, Any]]:
        """Wait for something to happen: work that is over, each with what came of it, or the error that ended it."""
        jobs_begun = [work.begun for work in self._under_way.values() if work.place is not None]
        patience = max(0.0, min(jobs_begun) + self._job_seconds - time.monotonic()) if jobs_begun else None
        done, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=patience)
        if not done:
            return self._overdue()
        work = self._under_way.pop(done[0])
        try:
            return [(work, self._ray.get(done[0]))]
        except self._ray.exceptions.RayActorError as error:
            return [(work, error)]
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None

    def _overdue(self) -> list[tuple[_Work, Any]]:
        """End the workers that have been at their jobs for too long."""
        late = time.monotonic() - self._job_seconds
        over = [ref for ref, work in self._under_way.items() if work.place is not None and work.begun <= late]
        works = [self._under_way.pop(reference) for reference in over]
        for work in works:
            self._ray.kill(work.actor)
        return [(work, TimeoutError(f"a job took more than {self._job_seconds} s")) for work in works]

    def worker_pids(self) -> list[int]:
        """The process numbers of the workers that are idle, to look at them from outside."""
        return self._ray.get([actor.pid.remote() for actor in self._idle])

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        for actor in [*self._idle, *(work.actor for work in self._under_way.values())]:
            self._ray.kill(actor)
        if self._owns_cluster:
            self._ray.shutdown()

    def _start_worker(self) -> None:
        actor = self._actor.remote(*self._arguments)
        self._under_way[actor.pid.remote()] = _Work(actor, None, time.monotonic())

    def _replace(self, place: int | None, losses: list[int], error: Exception) -> None:
        if place is None:
            self._false_starts += 1
        else:
            losses[place] += 1
        if max([self._false_starts, *losses]) >= MAX_LOSSES:
            raise WorkersLost(f"{MAX_LOSSES} Ray workers were lost one after another; the last: {error}") from error
        self._start_worker()


class _Actor:
    """A worker in a process of its own."""

    def __init__(self, config: TrainConfig, tasks: TaskDistribution, settings: dict[str, Any]):
        take_jax_settings(settings)
        self._worker = Worker(config, tasks)

    def run(self, meta_params: MetaParams, job: Job) -> Result:
        return _portable(self._worker.run(meta_params, job))

    def pid(self) -> int:
        return os.getpid()


def _portable(message: Any) -> Any:
    """A job or a result with its carry in host memory."""
    return message._replace(carry=jax.tree.map(np.asarray, message.carry))


def _is_finite(result: Result) -> bool:
    leaves = jax.tree.leaves(result.gradient)
    return math.isfinite(result.loss) and all(bool(np.all(np.isfinite(leaf))) for leaf in leaves)


def import_ray() -> Any:
    """The module, or an `InputError` that says how to install it."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.exceptions  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise InputError("`engine` must be local where Ray is not installed: pip install 'roamax[ray]'.") from error
    return ray
