"""Where the jobs of an experiment run: in this process, in a process for each core, or on a Ray cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import jax

from roamax.errors import InputError, check, lookup
from roamax.host.machine import jax_settings, keep_to_core, take_jax_settings, usable_cores
from roamax.host.progress import progress_bar


class Workers(Protocol):
    """Runs jobs and gives their results in order."""

    count: int
    """How many jobs run at a time."""

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job."""
        ...


class Here:
    """One job after the other in this process, with all its cores or its accelerator."""

    count = 1

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job."""
        return [function(*job) for job in jobs]


class OnCores:
    """A process for each core: small networks make poor use of a second one.

    Ctrl-C reaches the jobs at work and leaves the others undone; a process whose parent was killed ends too.
    """

    def __init__(self, count: int, show: bool | None):
        self.count, self._show = count, show
        context = multiprocessing.get_context("spawn")
        cores, self._pids, self._stopped = context.SimpleQueue(), context.SimpleQueue(), context.Event()
        for number in range(count):
            # Another command's workers should not all have the same cores.
            cores.put(os.getpid() + number)
        shared = cores, self._pids, self._stopped, jax_settings()
        self._pool = ProcessPoolExecutor(count, context, _begin, shared)

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job."""
        note = f"{self.count} at a time"
        try:
            with _interrupts_held_back():
                futures = [self._pool.submit(_interruptible, function, job) for job in jobs]
            with progress_bar("chains", len(jobs), show=self._show, note=note) as report:
                for done, future in enumerate(as_completed(futures)):
                    future.result()
                    report(done + 1, note)
        except BrokenProcessPool as error:
            rule = "suit the machine; a process ended before its job did, as when memory runs out"
            raise InputError(
                f"`workers` must {rule}; got {self.count}. The same command with fewer goes on."
            ) from error
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes; jobs at work are interrupted as by Ctrl-C, and keep what they have."""
        # Jobs that the pool has handed out and nobody has begun cannot be taken back.
        self._stopped.set()
        while not self._pids.empty():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids.get(), signal.SIGINT)
        self._pool.shutdown(cancel_futures=True)
        # Python speaks of semaphores that are left over when a process ends while somebody holds them.
        del self._pool, self._pids, self._stopped


class OnRay:
    """Tasks of a Ray cluster whose machines write to the same folder of chains; each has a GPU where there are any."""

    def __init__(self, address: str | None):
        from roamax.parallel.ray_engine import import_ray

        self._ray = ray = import_ray()
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            ray.init(address=address, log_to_driver=False, logging_level="error")
        kind = "GPU" if ray.cluster_resources().get("GPU") else "CPU"
        self.count = max(1, int(ray.cluster_resources().get(kind, 1)))
        self._run = ray.remote(_with_settings).options(num_cpus=1, num_gpus=int(kind == "GPU"))

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job."""
        settings = jax_settings()
        try:
            return self._ray.get([self._run.remote(settings, function, job) for job in jobs])
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def close(self) -> None:
        """End a cluster that was started for this."""
        if self._owns_cluster:
            self._ray.shutdown()


@contextlib.contextmanager
def hired(engine: str, address: str | None, count: int | None, show: bool | None) -> Iterator[Workers]:
    """Workers of the named engine; `count` None is a process for each core, or none but this on an accelerator."""
    on_ray = lookup({"local": False, "ray": True}, engine, "engine")
    check(count is None or count >= 1, "workers", "be >= 1", count)
    check(count is None or not on_ray, "workers", "be left to the cluster with the engine ray", count)
    if not on_ray:
        on_cpu = jax.default_backend() == "cpu"
        check(on_cpu or count in (None, 1), "workers", "be 1 on an accelerator", count)
        count = count or (usable_cores() if on_cpu else 1)
        if count == 1:
            yield Here()
            return
    workers = OnRay(address) if on_ray else OnCores(count or 1, show)
    try:
        yield workers
    finally:
        workers.close()


_stopped: Any = None
"""In a worker, whether its parent wants no more jobs done."""


def _begin(cores: Any, pids: Any, stopped: Any, settings: Mapping[str, Any]) -> None:
    """Make this process a worker: one core, no Ctrl-C between jobs, an end when its parent ends."""
    global _stopped
    _stopped = stopped
    # The terminal's Ctrl-C goes to the parent alone, which hands it on, so that it counts once.
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_to_core(cores.get())
    take_jax_settings(settings)
    pids.put(os.getpid())


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C waits, here and in processes that are started within, until they have come as far as to let it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _interruptible(function: Callable[..., Any], job: tuple) -> Any:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _stopped.is_set():
            raise KeyboardInterrupt
        return function(*job)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _with_settings(settings: Mapping[str, Any], function: Callable[..., Any], job: tuple) -> Any:
    take_jax_settings(settings)
    return function(*job)
