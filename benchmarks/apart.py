"""Measurements in new Python processes, so that nothing that ran before affects their memory or their cores."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

CODE = """
import importlib, json, sys
module, name, arguments = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(arguments)), default=float))
"""


class Failed(RuntimeError):
    """A call in another process failed; the message is the last line that it wrote."""


def call(function: Callable[..., Any], *arguments: Any, devices: int = 1) -> Any:
    """Call a function of a module in a new process, with `devices` CPU devices, and return its result through JSON."""
    words = [sys.executable, "-c", CODE, function.__module__, function.__name__, json.dumps(arguments)]
    process = subprocess.run(words, capture_output=True, text=True, env=environment(devices))
    if process.returncode:
        raise Failed((process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    return json.loads(process.stdout.splitlines()[-1])


def environment(devices: int = 1, cache: Path | None = None) -> dict[str, str]:
    """Return the environment of such a process; its compiled programs are kept in `cache`, or where ours are."""
    # With filtered tracebacks, the last line is not the error but a remark about the filtering.
    found = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "JAX_TRACEBACK_FILTERING": "off"}
    kept = cache or jax.config.values["jax_compilation_cache_dir"]
    return found | ({"JAX_COMPILATION_CACHE_DIR": str(kept)} if kept else {})


def peak_megabytes() -> float:
    """Return the peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss includes the process that started this one.
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)
