"""The processor, and the process: its cores, the JAX settings of its subprocesses, and whether it was forked."""

import os
import platform
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from roamax.errors import InputError

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_default_matmul_precision",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)


_is_crippled = False
"""Whether this process was forked from one in which JAX had started its threads, which are not in this one."""


def _note_fork() -> None:
    global _is_crippled
    backends = sys.modules.get("jax._src.xla_bridge")
    _is_crippled |= bool(backends is not None and backends.backends_are_initialized())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def check_not_forked() -> None:
    """Raise an `InputError` where JAX would wait forever, in a process that was forked after JAX had started."""
    if _is_crippled:
        raise InputError(
            "`fork` must not be how a process that computes is started, since JAX waits in it forever; got such a one. "
            "Use multiprocessing.set_start_method('spawn'), or joblib."
        )


def processor() -> str:
    """Return the name of this machine's processor, or its kind where the system does not tell."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to_core(number: int) -> None:
    """Pin this process to one of its cores, if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def jax_settings() -> dict[str, Any]:
    """Return the JAX settings for subprocesses, so that they compute the same results and share compiled programs."""
    return {name: jax.config.values[name] for name in _SETTINGS}


def take_jax_settings(settings: Mapping[str, Any]) -> None:
    """Apply the result of `jax_settings` from another process."""
    for name, value in settings.items():
        jax.config.update(name, value)
    ignore_half_programs()


def cache_programs() -> None:
    """Cache compiled programs on disk between processes, in the user's cache folder, unless JAX was told where.

    JAX is told by `JAX_COMPILATION_CACHE_DIR`, and not to cache at all by `JAX_ENABLE_COMPILATION_CACHE=0`.
    """
    import platformdirs

    if not jax.config.values["jax_compilation_cache_dir"]:
        cache = Path(platformdirs.user_cache_dir("roamax")) / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    ignore_half_programs()


def ignore_half_programs() -> None:
    """Silence the warning about partial cache entries from killed processes; JAX recompiles them."""
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
