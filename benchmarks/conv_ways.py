"""Implementations that were tried of a 3x3 convolution and its kernel gradient on CPU inside `lax.scan`.

The input gradient is a forward convolution. (XLA's kernel gradient takes seconds: see `benchmarks.conv`.)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.conv import MARK, timed_on, xla_convolve
from benchmarks.timing import Spread, take_turns
from roamax.cli.arguments import Flag

STEPS, ROUNDS = 4, 7
NEAR = range(3)


def padded(x: jax.Array, rows: int, columns: int) -> jax.Array:
    return jnp.pad(x, ((0, 0), (rows, rows), (columns, columns), (0, 0)))


def patches(x: jax.Array) -> jax.Array:
    _, height, width, channels = x.shape
    x = padded(x, 1, 1)
    shifted = [x[:, i : i + height, j : j + width] for i in NEAR for j in NEAR]
    return jnp.concatenate(shifted, axis=3).reshape(-1, 9 * channels)


def neighbour_columns(x: jax.Array) -> jax.Array:
    width = x.shape[2]
    x = padded(x, 0, 1)
    return jnp.concatenate([x[:, :, j : j + width] for j in NEAR], axis=3)


def tall_product(x: jax.Array, g: jax.Array) -> jax.Array:
    return lax.dot_general(x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1]), (((0,), (0,)), ((), ())))


# ---- Forward: (x, kernel) -> y ----


def nine_products(x: jax.Array, kernel: jax.Array) -> jax.Array:
    _, height, width, _ = x.shape
    x = padded(x, 1, 1)
    return sum(x[:, i : i + height, j : j + width] @ kernel[i, j] for i in NEAR for j in NEAR)  # type: ignore


def patches_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return (patches(x) @ kernel.reshape(-1, kernel.shape[3])).reshape(*x.shape[:3], -1)


def rows_summed(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiply neighbouring columns by the kernels of all rows; then add the three rows of results, shifted."""
    features = kernel.shape[3]
    matrix = kernel.transpose(1, 2, 0, 3).reshape(-1, 3 * features)
    near = neighbour_columns(x)
    z = padded((near.reshape(-1, near.shape[3]) @ matrix).reshape(*x.shape[:3], -1), 1, 0)
    return sum(z[:, i : i + x.shape[1], :, i * features : (i + 1) * features] for i in NEAR)  # type: ignore


def grouped(size: int, x: jax.Array, kernel: jax.Array) -> jax.Array:
    places = [(place, size - 1 - place) for place in range(size)]
    wide = jnp.concatenate([jnp.pad(kernel, ((0, 0), place, (0, 0), (0, 0))) for place in places], axis=3)
    y = lax.conv_general_dilated(x, wide, (1, size), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y.reshape(*x.shape[:3], -1)


# ---- Kernel gradient: (x, g) -> dk ----


def patches_gradient(x: jax.Array, g: jax.Array) -> jax.Array:
    return tall_product(patches(x), g).reshape(3, 3, x.shape[3], -1)


def nine_gradients(x: jax.Array, g: jax.Array) -> jax.Array:
    _, height, width, _ = x.shape
    x = padded(x, 1, 1)
    products = [tall_product(x[:, i : i + height, j : j + width], g) for i in NEAR for j in NEAR]
    return jnp.stack(products).reshape(3, 3, x.shape[3], -1)


def neighbour_rows(g: jax.Array) -> jax.Array:
    height = g.shape[1]
    g = padded(g, 1, 0)
    return jnp.concatenate([g[:, 2 - i : 2 - i + height] for i in NEAR], axis=3)


def columns_by_rows(x: jax.Array, g: jax.Array, stack: int = 1) -> jax.Array:
    """Compute one product, or a stack of products whose results are added."""
    left, right = (images.reshape(stack, -1, images.shape[3]) for images in (neighbour_columns(x), neighbour_rows(g)))
    product = sum(lax.dot_general(left, right, (((1,), (1,)), ((0,), (0,)))))
    return product.reshape(3, x.shape[3], 3, g.shape[3]).transpose(2, 0, 1, 3)


def transposed_columns_by_rows(x: jax.Array, g: jax.Array) -> jax.Array:
    channels, width = x.shape[3], x.shape[2]
    turned = jnp.pad(lax.optimization_barrier(x.transpose(3, 0, 1, 2)), ((0, 0), (0, 0), (0, 0), (1, 1)))
    left = jnp.concatenate([turned[..., j : j + width] for j in NEAR]).reshape(3 * channels, -1)
    product = left @ neighbour_rows(g).reshape(-1, 3 * g.shape[3])
    return product.reshape(3, channels, 3, -1).transpose(2, 0, 1, 3)


def images_as_channels(x: jax.Array, g: jax.Array) -> jax.Array:
    """Compute the convolution of XLA's gradient, in the layout that suits its forward convolution."""
    left, right = lax.optimization_barrier((x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3)))
    padding = ((1, 1), (1, 1))
    product = lax.conv_general_dilated(left, right, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return product.transpose(1, 2, 0, 3)


# ---- In chunks of images, in a loop or as separate operations ----


def in_pieces(way: Callable[..., jax.Array], count: int) -> Callable[..., jax.Array]:
    def cut(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.concatenate([way(piece, kernel) for piece in jnp.split(x, count)])

    return cut


def mapped(way: Callable[..., jax.Array], size: int) -> Callable[..., jax.Array]:
    def chunked(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = lax.map(lambda chunk: way(chunk, kernel), x.reshape(-1, size, *x.shape[1:]))
        return y.reshape(-1, *y.shape[2:])

    return chunked


def summed(way: Callable[..., jax.Array], size: int) -> Callable[..., jax.Array]:
    def chunked(x: jax.Array, g: jax.Array) -> jax.Array:
        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            return total + way(*(lax.dynamic_slice_in_dim(images, index * size, size) for images in (x, g)))

        return lax.fori_loop(0, x.shape[0] // size, add, jnp.zeros((3, 3, x.shape[3], g.shape[3])))

    return chunked


FORWARD = {
    "XLA's own": xla_convolve,
    "nine shifted products, summed": nine_products,
    "patches, one product, chunks of 16": mapped(patches_product, 16),
    "columns, one product, rows summed": rows_summed,
    "columns, one product, rows summed, chunks of 8": mapped(rows_summed, 8),
    "XLA's own on groups of 2 outputs, chunks of 4": mapped(partial(grouped, 2), 4),
    "XLA's own on groups of 2 outputs": partial(grouped, 2),
    "XLA's own on groups of 4 outputs": partial(grouped, 4),
    "XLA's own, 16 pieces": in_pieces(xla_convolve, 16),
    "XLA's own on groups of 2 outputs, 8 pieces": in_pieces(partial(grouped, 2), 8),
    "XLA's own on groups of 2 outputs, 16 pieces": in_pieces(partial(grouped, 2), 16),
    "XLA's own on groups of 4 outputs, 16 pieces": in_pieces(partial(grouped, 4), 16),
}
GRADIENT = {
    "patches by g, one product": patches_gradient,
    "patches by g, chunks of 8": summed(patches_gradient, 8),
    "nine shifted products, chunks of 8": summed(nine_gradients, 8),
    "images as channels of a convolution, chunks of 16": summed(images_as_channels, 16),
    "columns of x by rows of g, one product": columns_by_rows,
    "columns of x by rows of g, chunks of 8": summed(columns_by_rows, 8),
    "columns of x by rows of g, chunks of 2": summed(columns_by_rows, 2),
    "columns of x by rows of g, chunks of 1": summed(columns_by_rows, 1),
    "columns of x by rows of g, stacks of 2, chunks of 8": summed(partial(columns_by_rows, stack=2), 8),
    "columns of x by rows of g, stacks of 2, chunks of 16": summed(partial(columns_by_rows, stack=2), 16),
    "columns of x by rows of g, stacks of 4, chunks of 16": summed(partial(columns_by_rows, stack=4), 16),
    "columns of x by rows of g, x transposed, chunks of 1": summed(transposed_columns_by_rows, 1),
}


def compiled(way: Callable[..., jax.Array], *shapes: tuple[int, ...]) -> Callable[[], Any]:
    operands = [jax.random.normal(jax.random.key(seed), shape) for seed, shape in enumerate(shapes)]

    def step(carry: Any, _: None) -> Any:
        # The next step depends on the whole result of this one, at the cost of one number.
        result = lax.optimization_barrier(way(*carry))
        return [carry[0].at[0, 0, 0, 0].add(1e-9 * result[0, 0, 0, 0]), carry[1]], None

    loop = jax.jit(lambda carry: lax.scan(step, carry, None, length=STEPS)[0]).lower(operands).compile()
    return lambda: jax.block_until_ready(loop(operands))


def compare(one_core: Flag = False) -> None:
    """Time every implementation of a convolution and its gradient that was tried.

    Prints milliseconds for 28x28 images, batch 128, at 8, 16 and 32 channels:
    the table at the top of benchmarks/conv.py.

    Example:
        python -m benchmarks conv-ways --one-core

    Args:
        one_core: Measure CPU time on one core, which other programs hardly affect.
    """
    timed = timed_on(one_core)
    for title, ways in (("forward", FORWARD), ("kernel gradient", GRADIENT)):
        columns = []
        for layer in MARK:
            images = (layer.batch, layer.size, layer.size, layer.channels)
            other = images if ways is GRADIENT else (3, 3, layer.channels, layer.features)
            found = take_turns({name: compiled(way, images, other) for name, way in ways.items()}, ROUNDS, timed)
            columns.append({name: 1e3 * Spread.of(taken).median / STEPS for name, taken in found.items()})
        for name in ways:
            print(f"{title:16} {name:52}", *(f"{column[name]:8.1f}" for column in columns), flush=True)
