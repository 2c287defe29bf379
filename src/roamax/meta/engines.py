"""Engines that run jobs: on the devices of this machine, or on the workers of a Ray cluster.

ray start --head                          # on one machine
ray start --address=HEAD:6379             # on every other
meta.train(config, out, engine=partial(meta.RayEngine, address="auto"))
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax
import numpy as np

from roamax.errors import InputError
from roamax.meta.config import TrainConfig
from roamax.meta.jobs import Job, Result
from roamax.meta.worker import Worker
from roamax.parallel.cluster import Actors, Cluster
from roamax.tasks import TaskDistribution
from roamax.types import MetaParams


class Engine(Protocol):
    """Runs jobs and returns their results in order; the results do not depend on the engine."""

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """Return the results of `jobs` at `meta_params`."""
        ...

    def close(self) -> None:
        """Let go of what the engine holds."""
        ...


class LocalEngine:
    """Jobs dealt in turn to devices of this machine (all of them unless given), one thread and one call per device.

    There is nothing between the devices, no collective: members of a pair take unequal time, and on CPU an
    all-reduce that waits too long ends the process.
    """

    def __init__(self, config: TrainConfig, tasks: TaskDistribution, devices: Sequence[Any] | None = None):
        self._worker = Worker(config, tasks)
        self._devices = list(devices or jax.local_devices())
        self._threads = ThreadPoolExecutor(len(self._devices), thread_name_prefix="roamax-meta")

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """Return the results of `jobs` at `meta_params`."""
        count = min(len(self._devices), len(jobs))

        def lane(number: int) -> list[Result]:
            return [self._worker.run(meta_params, job, self._devices[number]) for job in jobs[number::count]]

        lanes = list(self._threads.map(lane, range(count)))
        return [lanes[i % count][i // count] for i in range(len(jobs))]

    def close(self) -> None:
        """End the threads, those that are at work once their job is done; after Ctrl-C nobody waits for that."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RayEngine:
    """Jobs dealt to Ray workers as they become free.

    Workers are sent meta-parameters and jobs and return scalars (backpropagation: a gradient; truncated unrolls:
    their carry). The results are those of the local engine, also when workers fail: one that dies or hangs is replaced
    and its job run again; a result that is not finite is believed when another worker, where there is one, finds the
    same.

    Args:
        config: The run's config.
        tasks: Its tasks.
        address: The cluster's address; None for one of this machine alone, which ends with the run.
        workers: The number of workers; None for one per `cpus_per_worker` of the cluster.
        cpus_per_worker: CPUs that each worker has.
        gpus_per_worker: GPUs that each worker has.
        job_seconds: How long a job may take.
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
        self._cluster = Cluster(address)
        self._actors = Actors(
            self._cluster,
            _RemoteWorker,
            (config, tasks),
            count=workers,
            cpus=cpus_per_worker,
            gpus=gpus_per_worker,
            job_seconds=job_seconds,
            in_doubt=lambda result: not _is_finite(result),
        )

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """Return the results of `jobs` at `meta_params`."""
        return self._actors.run(jax.tree.map(np.asarray, meta_params), [_portable(job) for job in jobs])

    def worker_pids(self) -> list[int]:
        """Return the process numbers of the idle workers."""
        return self._actors.idle_pids()

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        self._actors.close()
        self._cluster.close()


class _RemoteWorker:
    """A worker in a process of its own."""

    def __init__(self, config: TrainConfig, tasks: TaskDistribution):
        self._worker = Worker(config, tasks)

    def run(self, meta_params: MetaParams, job: Job) -> Result:
        return _portable(self._worker.run(meta_params, job))


def _portable(message: Any) -> Any:
    """Return a job or a result with its carry in host memory."""
    return message._replace(carry=jax.tree.map(np.asarray, message.carry))


def _is_finite(result: Result) -> bool:
    leaves = jax.tree.leaves(result.gradient)
    return math.isfinite(result.loss) and all(bool(np.all(np.isfinite(leaf))) for leaf in leaves)


def use_cpu_devices(count: int) -> None:
    """Make the CPU look like `count` devices, so that as many jobs run side by side. Call it before JAX computes."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise InputError(
            f"`count` must be set before JAX computes anything; got {count}, too late in this process."
        ) from error
