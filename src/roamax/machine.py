"""What this process may use of the machine it runs on."""

import os


def usable_cores() -> int:
    """The cores that the system lets this process run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to_core(number: int) -> None:
    """Let this process run on one of its cores only, where the system can be told."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})
