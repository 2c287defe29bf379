"""Ray (the extra `roamax[ray]`): the connection to a cluster, and a pool of actors that survives their faults."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from roamax.errors import InputError, finite, whole
from roamax.host.machine import jax_settings, take_jax_settings

MAX_LOSSES = 3
"""The number of lost workers after which a job is given up, and of failed starts after which a pool is."""


class WorkersLost(RuntimeError):
    """Workers died or hung repeatedly, on one job or while starting."""


class Cluster:
    """A connection to the cluster at an address; without one, to a cluster of this machine alone.

    If this process is already connected, that connection is used, and `close` leaves it open.
    """

    def __init__(self, address: str | None):
        self.ray = _import_ray()
        self._is_ours = not self.ray.is_initialized()
        if self._is_ours:
            quiet = {"include_dashboard": False} if address is None else {}
            self.ray.init(address=address, log_to_driver=False, logging_level="error", **quiet)

    def count(self, resource: str) -> int:
        """Return the number of CPUs or GPUs, whichever `resource` names, in the cluster."""
        return int(self.ray.cluster_resources().get(resource, 0))

    def close(self) -> None:
        """End the connection, and the cluster if it was started for it."""
        if self._is_ours:
            self.ray.shutdown()


class _Work(NamedTuple):
    """The work of an actor: the index of its job, or None while it starts, and when it began."""

    actor: Any
    place: int | None
    begun: float


class Actors:
    """Processes of a cluster, each with its own object, that take jobs as they become free.

    Results do not depend on faults: an actor that dies, or takes longer than `job_seconds` for a job, is replaced and
    its job run again; a result in doubt is computed a second time, by another actor if there is one.

    Args:
        cluster: The connection, which the caller closes.
        make: A function, called in each process with `arguments`, that returns an object with `run(shared, job)`.
        arguments: The arguments of `make`, sent to each process once.
        count: The number of processes; None for one per `cpus` of the cluster.
        cpus: CPUs per process.
        gpus: GPUs per process.
        job_seconds: The time limit of a job.
        in_doubt: A function that returns whether a result should be computed once more.
    """

    def __init__(
        self,
        cluster: Cluster,
        make: Callable[..., Any],
        arguments: Sequence[Any],
        *,
        count: int | None = None,
        cpus: float = 1,
        gpus: float = 0,
        job_seconds: float = 3600.0,
        in_doubt: Callable[[Any], bool] = lambda result: False,
    ):
        self._ray = ray = cluster.ray
        if count is None:
            count = max(1, int(cluster.count("CPU") // max(cpus, 1)))
        count, job_seconds = whole(count, "workers"), finite(job_seconds, "job_seconds", above=0)
        self._actor = ray.remote(_Actor).options(num_cpus=cpus, num_gpus=gpus, max_restarts=0)
        self._arguments = (jax_settings(), make, *map(ray.put, arguments))
        self._count, self._job_seconds, self._in_doubt = count, job_seconds, in_doubt
        self._under_way: dict[Any, _Work] = {}
        self._idle: list[Any] = []
        self._false_starts = 0
        for _ in range(count):
            self._start_one()

    def run(self, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        """Run jobs.

        Args:
            shared: An argument that all jobs share; sent to each machine once.
            jobs: One argument per job.

        Returns:
            The results, in the order of the jobs.
        """
        shared = self._ray.put(shared)
        waiting, losses = list(range(len(jobs))), [0] * len(jobs)
        results: dict[int, Any] = {}
        doubted: dict[int, Any] = {}
        while len(results) < len(jobs):
            while match := self._match(waiting, doubted):
                place, actor = match
                waiting.remove(place)
                self._idle.remove(actor)
                self._under_way[actor.run.remote(shared, jobs[place])] = _Work(actor, place, time.monotonic())
            for work, outcome in self._outcomes():
                place = work.place
                if isinstance(outcome, Exception):
                    self._replace(place, losses, outcome)
                    waiting[:0] = [] if place is None else [place]
                    continue
                self._idle.append(work.actor)
                if place is None:
                    self._false_starts = 0
                elif place in doubted or not self._in_doubt(outcome):
                    results[place] = outcome
                else:
                    doubted[place] = work.actor
                    waiting.append(place)
        return [results[place] for place in range(len(jobs))]

    def idle_pids(self) -> list[int]:
        """Return the process ids of the idle actors."""
        return self._ray.get([actor.pid.remote() for actor in self._idle])

    def close(self) -> None:
        """End the processes."""
        for actor in [*self._idle, *(work.actor for work in self._under_way.values())]:
            self._ray.kill(actor)

    def _match(self, waiting: Sequence[int], doubted: Mapping[int, Any]) -> tuple[int, Any] | None:
        """Return a waiting job and an idle actor, not the one whose result is in doubt if there are others."""
        for place in waiting:
            for actor in reversed(self._idle):
                if actor is not doubted.get(place) or self._count == 1:
                    return place, actor
        return None

    def _outcomes(self) -> list[tuple[_Work, Any]]:
        """Wait for work to end; return it with its result, or with the error that ended it."""
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
        """End the actors whose jobs have exceeded the time limit."""
        late = time.monotonic() - self._job_seconds
        over = [ref for ref, work in self._under_way.items() if work.place is not None and work.begun <= late]
        works = [self._under_way.pop(reference) for reference in over]
        for work in works:
            self._ray.kill(work.actor)
        return [(work, TimeoutError(f"a job took more than {self._job_seconds} s")) for work in works]

    def _start_one(self) -> None:
        actor = self._actor.remote(*self._arguments)
        self._under_way[actor.pid.remote()] = _Work(actor, None, time.monotonic())

    def _replace(self, place: int | None, losses: list[int], error: Exception) -> None:
        if place is None:
            self._false_starts += 1
        else:
            losses[place] += 1
        if max([self._false_starts, *losses]) >= MAX_LOSSES:
            raise WorkersLost(f"{MAX_LOSSES} Ray workers were lost one after another; the last: {error}") from error
        self._start_one()


class _Actor:
    def __init__(self, settings: Mapping[str, Any], make: Callable[..., Any], *arguments: Any):
        take_jax_settings(settings)
        self._made = make(*arguments)

    def run(self, shared: Any, job: Any) -> Any:
        return self._made.run(shared, job)

    def pid(self) -> int:
        return os.getpid()


def _import_ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.exceptions  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise InputError("`engine` must be local where Ray is not installed: pip install 'roamax[ray]'.") from error
    return ray
