"""Steps of matrices that move all directions at the same speed, by the iteration of Muon."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from roamax.host.native import has_function
from roamax.samplers.learned._groups import SHRINK
from roamax.samplers.learned._kernel import SOURCE
from roamax.types import Params

FUNCTION = "roamax_flatten"
LARGEST_BLOCK = 64
"""The rows or columns of a block that the function in C++ takes."""
STEPS = (6.752, -18.351, 13.263), (2.538, -1.875, 0.441)
"""The coefficients of both steps of the iteration, as in _native.cc. Each step has the polynomial that is nearest to 1:
the first for singular values from .05 to 1, the second for what the first makes of these (as in Polar Express, Amsel et
al., 2025). Muon's own polynomial, made for five steps, lifts small singular values less in two."""
TINY = 1e-30
"""Added to a divisor that may be 0."""


def flattened(moves: Params, longest_side: int) -> Params:
    """Return steps whose matrices have nearly equal singular values, and the norms that they had; others as they are.

    A matrix is cut into blocks of at most `longest_side` rows or columns, along its shorter side. On a CPU, a function
    in C++ does that where there is a compiler: for a tiny network, fifty small products take longer.
    """
    leaves, treedef = jax.tree.flatten(moves)
    found = [i for i, leaf in enumerate(leaves) if leaf.ndim >= 2 and leaf.size > 0]
    flat = _flat([leaves[i].reshape(-1, leaves[i].shape[-1]) for i in found], longest_side)
    for i, matrix in zip(found, flat, strict=True):
        leaves[i] = matrix.reshape(leaves[i].shape)
    return treedef.unflatten(leaves)


def rms(x: jax.Array) -> jax.Array:
    """Return the root mean square, without overflow up to 1e20."""
    return jnp.sqrt(jnp.sum(jnp.square(SHRINK * x)) / max(1, x.size)) / SHRINK


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _flat(matrices: list[jax.Array], longest_side: int) -> list[jax.Array]:
    fits = longest_side <= LARGEST_BLOCK and all(matrix.dtype == jnp.float32 for matrix in matrices)
    if not matrices or jax.default_backend() != "cpu" or not fits or not has_function(FUNCTION, SOURCE):
        return _with_products(matrices, longest_side)
    results = [jax.ShapeDtypeStruct(matrix.shape, matrix.dtype) for matrix in matrices]
    call = jax.ffi.ffi_call(FUNCTION, results, vmap_method="broadcast_all")
    return list(call(*matrices, longest_side=np.int64(longest_side)))


@_flat.defjvp
def _(longest_side, primals, tangents):
    return jax.jvp(functools.partial(_with_products, longest_side=longest_side), primals, tangents)


def _with_products(matrices: list[jax.Array], longest_side: int) -> list[jax.Array]:
    return [_flat_by_products(matrix, math.ceil(min(matrix.shape) / longest_side)) for matrix in matrices]


def _flat_by_products(matrix: jax.Array, blocks: int) -> jax.Array:
    size = rms(matrix)
    matrix = matrix / (size + TINY)
    shorter = int(matrix.shape[0] > matrix.shape[1])
    parts = jnp.array_split(matrix, blocks, axis=shorter)
    flat = jnp.concatenate([_orthogonalised(part, shorter) for part in parts], axis=shorter)
    return flat * (size / (rms(flat) + TINY))


def _orthogonalised(matrix: jax.Array, side: int) -> jax.Array:
    """Return a matrix with the same singular vectors, and singular values from .8 to 1.2 but for the smallest."""
    products = matrix.T @ matrix if side else matrix @ matrix.T
    products = products / (jnp.linalg.norm(products) + TINY)
    first = _polynomial(products, STEPS[0])
    factor = _polynomial(first @ products @ first, STEPS[1]) @ first
    return matrix @ factor if side else factor @ matrix


def _polynomial(products: jax.Array, coefficients: tuple[float, float, float]) -> jax.Array:
    """Return the factor that brings singular values nearer to 1, given the products of rows or columns."""
    one, two, three = coefficients
    return one * jnp.eye(len(products), dtype=products.dtype) + two * products + three * products @ products
