"""A pool of processes on this machine, one per core."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from roamax.errors import InputError
from roamax.host.machine import jax_settings, keep_to_core, take_jax_settings
from roamax.host.progress import progress_bar


class OnCores:
    """Workers in one process per core, since small networks make poor use of a second one.

    Ctrl-C reaches the running jobs and cancels the others; a process ends if its parent is killed.
    """

    def __init__(self, count: int, show: bool | None):
        self.count, self._show = count, show
        context = multiprocessing.get_context("spawn")
        cores, self._pids, self._stopped = context.SimpleQueue(), context.SimpleQueue(), context.Event()
        for number in range(count):
            # The offset keeps the workers of different commands off the same cores.
            cores.put(os.getpid() + number)
        shared = cores, self._pids, self._stopped, jax_settings()
        self._pool = ProcessPoolExecutor(count, context, _begin, shared)

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple]) -> list[Any]:
        """Return the function's result for each job."""
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
                f"`workers` must {rule}; got {self.count}. The same command with fewer resumes."
            ) from error
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes; running jobs are interrupted as by Ctrl-C, and keep their results so far."""
        # Jobs that the pool has queued but no process has begun cannot be cancelled.
        self._stopped.set()
        while not self._pids.empty():
            # Windows has no such signal: there the process ends at once, and its run resumes from its checkpoint.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._pids.get(), signal.SIGINT)
        self._pool.shutdown(cancel_futures=True)
        # Python warns of leaked semaphores if a process ends while references to them exist.
        del self._pool, self._pids, self._stopped


_stopped: Any = None
"""In a worker, an event that is set once its parent wants no more jobs."""


def _begin(cores: Any, pids: Any, stopped: Any, settings: Mapping[str, Any]) -> None:
    """Make this process a worker: pinned to one core, without Ctrl-C between jobs, ending with its parent."""
    global _stopped
    _stopped = stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgrp"):
        # The terminal's Ctrl-C reaches the parent only, which passes it on, so that it counts once.
        os.setpgrp()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_to_core(cores.get())
    take_jax_settings(settings)
    pids.put(os.getpid())


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C in this thread, and in processes started meanwhile until they unblock it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
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
