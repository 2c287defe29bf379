"""What this process may use of the machine it runs on."""

import os


def usable_cores() -> int:
    """The cores that the system lets this process run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
