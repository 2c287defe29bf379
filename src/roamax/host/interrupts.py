"""Ctrl-C that waits for a safe point."""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, as Python's own handler does, but not where Python would swallow it.

    An exception in a callback of the garbage collector (JAX has one) or in a finaliser is printed and forgotten: there,
    the signal is sent again a moment later.
    """
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            threading.Timer(0.01, _interrupt_main_thread, [number]).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _interrupt_main_thread(number: int) -> None:
    # A signal that another thread raises does not wake the main thread from a system call such as a sleep.
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


OURS = (signal.default_int_handler, interrupt)
"""Handlers that raise `KeyboardInterrupt`, and may be replaced."""


def heed_interrupts() -> None:
    """Let no Ctrl-C be swallowed, unless it is ignored or has a custom handler."""
    if _may_replace():
        signal.signal(signal.SIGINT, interrupt)


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Only note the first Ctrl-C; the yielded function tells whether there was one. A second one stops at once.

    Does nothing outside the main thread, or if Ctrl-C is ignored or has a custom handler.
    """
    if not _may_replace():
        yield lambda: False
        return
    noted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            interrupt(number, frame)
        noted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)


def _may_replace() -> bool:
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) in OURS
