"""The cores that this process may use, and the settings of JAX that it shares with processes it starts."""

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
    """Return the number of cores that the system lets this process run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to_core(number: int) -> None:
    """Let this process run on one of its cores only, where the system can be told."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def jax_settings() -> dict[str, Any]:
    """Return what JAX is told in another process, so that it computes the same and compiles nothing twice."""
    return {name: jax.config.values[name] for name in _SETTINGS}


def take_jax_settings(settings: Mapping[str, Any]) -> None:
    """Set JAX up as in the process that `jax_settings` was called in."""
    for name, value in settings.items():
        jax.config.update(name, value)
    ignore_half_programs()


def ignore_half_programs() -> None:
    """Silence the warning about half-written programs on disk, left by killed processes; JAX compiles them anew."""
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
