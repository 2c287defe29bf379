"""Set-up of JAX for every command that computes."""

import contextlib
from pathlib import Path


def start_jax(num_cpu_devices: int = 1) -> None:
    """Cache compiled programs on disk between commands, and set the number of CPU devices.

    Programs go to `JAX_COMPILATION_CACHE_DIR`, or to the user's cache folder. If JAX already runs, as in a notebook,
    the number of devices stays as it is.
    """
    import jax
    import platformdirs

    from roamax.host.machine import ignore_half_programs

    if not jax.config.values["jax_compilation_cache_dir"]:
        cache = Path(platformdirs.user_cache_dir("roamax")) / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    ignore_half_programs()
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", num_cpu_devices)
