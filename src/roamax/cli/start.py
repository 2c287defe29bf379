"""Set-up of JAX for every command that computes."""

import contextlib


def start_jax(num_chains: int = 1) -> None:
    """Cache compiled programs on disk between commands, and have a CPU device per chain, but no more than cores.

    Programs go to `JAX_COMPILATION_CACHE_DIR`, or to the user's cache folder. If JAX already runs, as in a notebook,
    the number of devices stays as it is.
    """
    import jax

    from roamax.host.machine import cache_programs, usable_cores

    cache_programs()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", max(1, min(num_chains, usable_cores())))
