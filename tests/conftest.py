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
