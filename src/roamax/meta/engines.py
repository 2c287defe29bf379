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
    """A runner of jobs; the results do not depend on which engine it is."""

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """Run `jobs` at `meta_params` and return their results in order."""
        ...

    def close(self) -> None:
        """Release what the engine holds."""
        ...


class LocalEngine:
    """An engine that assigns jobs in turn to devices of this machine, with one thread per device.

    There are no collectives between devices: members of a pair take different times, and on CPU an all-reduce that
    waits too long ends the process.

    Args:
        config: The run's config.
        tasks: The tasks.
        devices: The devices; None for all local ones.
    """

    def __init__(self, config: TrainConfig, tasks: TaskDistribution, devices: Sequence[Any] | None = None):
        self._worker = Worker(config, tasks)
        self._devices = list(devices or jax.local_devices())
        self._threads = ThreadPoolExecutor(len(self._devices), thread_name_prefix="roamax-meta")

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """Run `jobs` at `meta_params` and return their results in order."""
        count = min(len(self._devices), len(jobs))

        def lane(number: int) -> list[Result]:
            return [self._worker.run(meta_params, job, self._devices[number]) for job in jobs[number::count]]

        lanes = list(self._threads.map(lane, range(count)))
        return [lanes[i % count][i // count] for i in range(len(jobs))]

    def close(self) -> None:
        """End the threads, each after its current job, without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RayEngine:
    """An engine that assigns jobs to Ray workers as they become free.

    Workers receive meta-parameters and jobs and return scalars (backpropagation: a gradient; truncated unrolls: their
    carry). The results are those of the local engine even if workers fail: one that dies or hangs is replaced and its
    job run again; a non-finite result is accepted once a second worker, if there is one, confirms it.

    Args:
        config: The run's config.
        tasks: The tasks.
        address: The cluster's address; None for a cluster of this machine alone, which ends with the run.
        workers: The number of workers; None for one per `cpus_per_worker` of the cluster.
        cpus_per_worker: CPUs per worker.
        gpus_per_worker: GPUs per worker.
        job_seconds: The time limit of a job.
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
        """Run `jobs` at `meta_params` and return their results in order."""
        return self._actors.run(jax.tree.map(np.asarray, meta_params), [_portable(job) for job in jobs])

    def worker_pids(self) -> list[int]:
        """Return the process ids of the idle workers."""
        return self._actors.idle_pids()

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        self._actors.close()
        self._cluster.close()


class _RemoteWorker:
    """A worker in its own process."""

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
    """Make the CPU appear as several devices, so that as many jobs run in parallel.

    Args:
        count: The number of devices.

    Raises:
        InputError: JAX has already computed something in this process.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise InputError(
            f"`count` must be set before JAX computes anything; got {count}, too late in this process."
        ) from error
