"""The start of every command that computes."""

import contextlib
from pathlib import Path


def start_jax(num_cpu_devices: int = 1) -> None:
    """Keep compiled programs on disk between commands, and show as many CPU devices as are asked for.

    Programs go where `JAX_COMPILATION_CACHE_DIR` says, or to the user's cache folder. Where JAX runs already, as in a
    notebook, the devices are as many as they are.
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
