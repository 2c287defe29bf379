"""Where jobs run: on the devices of this machine, or (`ray_engine`) on a cluster."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax

from roamax.errors import InputError
from roamax.meta.config import TrainConfig
from roamax.meta.worker import Job, Result, Worker
from roamax.tasks import TaskDistribution
from roamax.types import MetaParams


class Engine(Protocol):
    """Runs jobs and gives their results in order; the results do not depend on the engine."""

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """The results of `jobs` at `meta_params`."""
        ...

    def close(self) -> None:
        """Let go of what the engine holds."""
        ...


class LocalEngine:
    """Jobs dealt in turn to devices of this machine (all of them unless given), one thread and one call a device.

    There is nothing between the devices, no collective: members of a pair take unequal time, and on CPU an
    all-reduce that waits too long ends the process.
    """

    def __init__(self, config: TrainConfig, tasks: TaskDistribution, devices: Sequence[Any] | None = None):
        self._worker = Worker(config, tasks)
        self._devices = list(devices or jax.local_devices())
        self._threads = ThreadPoolExecutor(len(self._devices), thread_name_prefix="roamax-meta")

    def run(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        """The results of `jobs` at `meta_params`."""
        count = min(len(self._devices), len(jobs))

        def lane(number: int) -> list[Result]:
            return [self._worker.run(meta_params, job, self._devices[number]) for job in jobs[number::count]]

        lanes = list(self._threads.map(lane, range(count)))
        return [lanes[i % count][i // count] for i in range(len(jobs))]

    def close(self) -> None:
        """End the threads, those that are at work once their job is done; after Ctrl-C nobody waits for that."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def use_cpu_devices(count: int) -> None:
    """Make the CPU look like `count` devices, so that as many jobs run side by side. Call it before JAX computes."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise InputError(
            f"`count` must be set before JAX computes anything; got {count}, too late in this process."
        ) from error
