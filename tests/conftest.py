"""Strict numerics for every test: silent promotion of ranks or dtypes is an error."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def float64():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def plain_jax():
    """JAX as it comes, for code that is written as users write; compiled in less time, to run slower."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
    jax.config.update("jax_disable_most_optimizations", before)
