"""Strict numerics for every test, and compiled programs that are kept between files, processes and runs.

Silent promotion of ranks or dtypes is an error. Most of the time of a first run is compilation: programs go to a
folder that both workers, the commands that tests start, and the next run share. `make test` also compiles without
optimisations, in a third of the time, except what tests that are marked `optimized` compile.
"""

import ctypes
import gc
import os
import sys
from pathlib import Path

import jax
import pytest

COMPILED = {
    "jax_compilation_cache_dir": str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
for name, value in COMPILED.items():
    if name.upper() not in os.environ:
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)


def pytest_collection_finish():
    # Tracing makes many objects that live long: looking for garbage among them takes a twentieth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


LARGEST = 1.2e9
"""The bytes that a process may hold after a test before it lets go of compiled programs."""


def _free_memory():
    """Let go of compiled programs, which are read from disk when they are needed again."""
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        # What was freed in small pieces stays with the process otherwise.
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def _free_memory_after_a_file():
    yield
    _free_memory()


@pytest.fixture(autouse=True)
def _free_memory_when_there_is_much():
    yield
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if pages * os.sysconf("SC_PAGE_SIZE") > LARGEST:
            _free_memory()


@pytest.fixture(autouse=True)
def _optimize_long_runs(request):
    unoptimized = jax.config.read("jax_disable_most_optimizations")
    if request.node.get_closest_marker("optimized"):
        jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", unoptimized)


@pytest.fixture
def float64():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def plain_jax():
    """Promote ranks and dtypes as JAX does by default, for code that is written as users write."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
