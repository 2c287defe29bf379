"""Workers for independent jobs: in this process, in one process per core, or on a Ray cluster."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax

from roamax.errors import check, lookup, whole
from roamax.host.machine import jax_settings, take_jax_settings, usable_cores
from roamax.parallel.cluster import Cluster
from roamax.parallel.processes import OnCores


class Workers(Protocol):
    """A runner of independent jobs."""

    count: int
    """The number of jobs that run at a time."""

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """Return the function's result for each job, in order."""
        ...


class Here:
    """Workers that run one job after the other in this process, on all its cores or its accelerator."""

    count = 1

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """Return the function's result for each job."""
        return [function(*job) for job in jobs]


class OnRay:
    """Workers on a Ray cluster whose machines share the folder of chains; each has a GPU if there are any."""

    def __init__(self, address: str | None):
        self._cluster = Cluster(address)
        gpus = self._cluster.count("GPU")
        self.count = gpus or max(1, self._cluster.count("CPU"))
        self._run = self._cluster.ray.remote(_with_settings).options(num_cpus=1, num_gpus=int(gpus > 0))

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """Return the function's result for each job."""
        settings, ray = jax_settings(), self._cluster.ray
        try:
            return ray.get([self._run.remote(settings, function, job) for job in jobs])
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def close(self) -> None:
        """Close the connection, and end the cluster if it was started here."""
        self._cluster.close()


@contextlib.contextmanager
def hired(engine: str, address: str | None, count: int | None, show: bool | None) -> Iterator[Workers]:
    """Provide workers, and end them afterwards.

    Args:
        engine: "local" or "ray".
        address: The Ray cluster's address; None for one of this machine alone.
        count: Local processes; None for one per core, or for this process alone on an accelerator.
        show: Whether to show a progress bar; None shows it on a terminal only.

    Yields:
        The workers.
    """
    on_ray = lookup({"local": False, "ray": True}, engine, "engine")
    count = None if count is None else whole(count, "workers")
    check(count is None or not on_ray, "workers", "be left to the cluster with the engine ray", count)
    if not on_ray:
        on_cpu = jax.default_backend() == "cpu"
        check(on_cpu or count in (None, 1), "workers", "be 1 on an accelerator", count)
        count = count or (usable_cores() if on_cpu else 1)
        if count == 1:
            yield Here()
            return
    with contextlib.closing(OnRay(address) if on_ray else OnCores(count or 1, show)) as workers:
        yield workers


def _with_settings(settings: Mapping[str, Any], function: Callable[..., Any], job: tuple) -> Any:
    take_jax_settings(settings)
    return function(*job)
