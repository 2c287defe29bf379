"""What this process may use of the machine it runs on, and what it shares with processes that it starts."""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import jax

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_default_matmul_precision",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)


def usable_cores() -> int:
    """The cores that the system lets this process run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to_core(number: int) -> None:
    """Let this process run on one of its cores only, where the system can be told."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def jax_settings() -> dict[str, Any]:
    """What JAX has to be told in another process, so that it computes the same and compiles nothing twice."""
    return {name: jax.config.values[name] for name in _SETTINGS}


def take_jax_settings(settings: Mapping[str, Any]) -> None:
    """Set JAX up as in the process that `jax_settings` was called in."""
    for name, value in settings.items():
        jax.config.update(name, value)
    ignore_half_programs()


def ignore_half_programs() -> None:
    """Keep still about programs on disk that are not whole, as a process leaves them that is killed while it writes.

    JAX compiles them anew, and nothing is lost.
    """
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
