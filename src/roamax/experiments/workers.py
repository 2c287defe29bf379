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
from roamax.machine import keep_to_core, usable_cores
from roamax.progress import progress_bar

SHARED = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
"""Settings of JAX that a new process takes from this one."""


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
    """A process for each core, which nothing else of ours runs on: small networks make poor use of a second one.

    Ctrl-C reaches the jobs at work once and leaves the others undone; a process whose parent was killed ends too.
    """

    def __init__(self, count: int, show: bool | None):
        self.count = count
        context = multiprocessing.get_context("spawn")
        cores = context.SimpleQueue()
        for number in range(count):
            cores.put(number)
        settings = {name: jax.config.values[name] for name in SHARED}
        self._show, self._pids = show, context.SimpleQueue()
        self._pool = ProcessPoolExecutor(count, context, _begin, (cores, self._pids, settings))

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job."""
        futures = [self._pool.submit(_interruptible, function, job) for job in jobs]
        note = f"{self.count} at a time"
        try:
            with progress_bar("chains", len(jobs), show=self._show, note=note) as report:
                for done, future in enumerate(as_completed(futures)):
                    future.result()
                    report(done + 1, note)
        except BrokenProcessPool as error:
            rule = "leave each process the memory it needs; one was killed. The same command with fewer goes on"
            raise InputError(f"`workers` must {rule}; got {self.count}.") from error
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes; jobs at work are interrupted as by Ctrl-C, and keep what they have."""
        while not self._pids.empty():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids.get(), signal.SIGINT)
        self._pool.shutdown(cancel_futures=True)


class OnRay:
    """Tasks of a Ray cluster, whose machines all write to the same folder of chains."""

    def __init__(self, address: str | None):
        from roamax.meta.ray_engine import import_ray

        self._ray = ray = import_ray()
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False)
        self.count = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """The function's result for each job."""
        remote = self._ray.remote(function)
        return self._ray.get([remote.remote(*job) for job in jobs])


@contextlib.contextmanager
def hired(engine: str, address: str | None, count: int | None, show: bool | None) -> Iterator[Workers]:
    """Workers of the named engine; `count` None is a process for each core, or none but this on an accelerator."""
    check(count is None or count >= 1, "workers", "be >= 1", count)
    if lookup({"local": False, "ray": True}, engine, "engine"):
        yield OnRay(address)
        return
    count = count or (usable_cores() if jax.default_backend() == "cpu" else 1)
    if count == 1:
        yield Here()
        return
    workers = OnCores(count, show)
    try:
        yield workers
    finally:
        workers.close()


def _begin(cores: Any, pids: Any, settings: Mapping[str, Any]) -> None:
    """Make this process a worker: one core, no Ctrl-C between jobs, an end when its parent ends."""
    keep_to_core(cores.get())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgrp"):
        # The terminal's Ctrl-C goes to the parent alone, which hands it on, so that it counts once.
        os.setpgrp()
    pids.put(os.getpid())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name, value in settings.items():
        jax.config.update(name, value)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _interruptible(function: Callable[..., Any], job: tuple) -> Any:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return function(*job)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
