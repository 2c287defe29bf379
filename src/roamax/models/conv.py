"""A convolution that is fast on CPUs inside `lax.scan`, as are its derivatives of any order and mode.

XLA:CPU computes the kernel gradient of a convolution as a convolution whose window is the whole image, which inside a
loop is up to a hundred times slower than necessary. With y = x * k, the three products

    y  = convolve(x, k)          y[a, b]  = sum_ij x[sa + i, sb + j] k[i, j]
    dx = input_gradient(g, k)    the transpose of convolve in x
    dk = kernel_gradient(x, g)   the transpose of convolve in k

are bilinear, and the transpose of each is another of the three. So they are three JAX primitives, each with an
implementation for CPUs, and JAX derives the rest: reverse over reverse, forward over reverse, and so on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from roamax.errors import check
from roamax.host.machine import usable_cores

LAYOUT = ("NHWC", "HWIO", "NHWC")
# The images of a chunk, with their shifted copies, should fit in the caches.
CHUNK_BYTES_ONE_CORE, CHUNK_BYTES = 640 * 1024, 5 * 1024 * 1024
# XLA:CPU uses one core per eight operations that are ready.
PIECES_PER_CORE, MOST_PIECES = 8, 64
# Up to this many channels and features, XLA:CPU runs a convolution on all cores; beyond, on one, but efficiently.
NARROW = 16
# Up to this many channels (those of images), there is too little work to share.
IMAGE_CHANNELS = 4


class Geometry(NamedTuple):
    """The static parameters of the three products."""

    image: tuple[int, int]
    window: tuple[int, int]
    stride: int

    @property
    def padding(self) -> list[tuple[int, int]]:
        return [(low, high) for low, high in lax.padtype_to_pads(self.image, self.window, (self.stride,) * 2, "SAME")]

    @property
    def output(self) -> tuple[int, int]:
        height, width = self.image
        return -(-height // self.stride), -(-width // self.stride)


def conv2d(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """Convolve images (..., H, W, C) with a kernel (odd, odd, C, O), padding "SAME", to (..., H/stride, W/stride, O).

    On accelerators this is XLA's own convolution.
    """
    x, kernel = jnp.asarray(x), jnp.asarray(kernel)
    check(x.ndim >= 3, "x", "have axes (..., height, width, channels)", f"shape {x.shape}")
    check(kernel.ndim == 4, "kernel", "have axes (height, width, channels, features)", f"shape {kernel.shape}")
    check(kernel.shape[0] % 2 == kernel.shape[1] % 2 == 1, "kernel", "be odd in height and width", kernel.shape[:2])
    check(x.shape[-1] == kernel.shape[2], "kernel", f"take {x.shape[-1]} channels", kernel.shape[2])
    check(x.dtype == kernel.dtype, "kernel", f"be of dtype {x.dtype}", kernel.dtype)
    check(stride in (1, 2), "stride", "be 1 or 2", stride)
    images = x.reshape(-1, *x.shape[-3:])
    if jax.default_backend() == "cpu":
        geometry = Geometry((images.shape[1], images.shape[2]), (kernel.shape[0], kernel.shape[1]), stride)
        y = convolve_p.bind(images, kernel, geometry=geometry)
    else:
        y = lax.conv_general_dilated(images, kernel, (stride, stride), "SAME", dimension_numbers=LAYOUT)
    return y.reshape(*x.shape[:-3], *y.shape[1:])


def max_pool2x2(x: jax.Array) -> jax.Array:
    """Return the maximum of each 2x2 block of x (..., H, W, C); an odd last row or column is dropped.

    Tied maxima share the gradient. (The gradient of XLA's own pooling is a scatter, which is slow on CPUs.)
    """
    check(x.ndim >= 3, "x", "have axes (..., height, width, channels)", f"shape {x.shape}")
    height, width = x.shape[-3] // 2 * 2, x.shape[-2] // 2 * 2
    above, below = (jnp.maximum(x[..., r:height:2, 0:width:2, :], x[..., r:height:2, 1:width:2, :]) for r in (0, 1))
    return jnp.maximum(above, below)


class Conv(nn.Module):
    """`conv2d` as a layer, with the parameters `kernel` and `bias` of `flax.linen.Conv`."""

    features: int
    kernel_size: tuple[int, int] = (3, 3)
    strides: int = 1
    kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (*self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        x, kernel, bias = promote_dtype(x, kernel, bias, dtype=None)
        y = conv2d(x, kernel, self.strides)
        return y + jnp.broadcast_to(bias, y.shape)


# ---- How each product is computed on a CPU ----


def _cores() -> int:
    """Return the number of cores per device."""
    return max(1, usable_cores() // jax.local_device_count())


def _convolve(x: jax.Array, kernel: jax.Array, *, geometry: Geometry) -> jax.Array:
    """Apply XLA's convolution, computing `group` neighbouring outputs as one with `group` times the features.

    The window of a group covers the windows of its outputs: each kernel is shifted to its place and padded with zeros,
    and the stride is that of a whole group. (Since 0 times infinity is NaN, a non-finite value spreads over its group.)
    """
    stride, (height, width) = geometry.stride, geometry.output
    channels, features = kernel.shape[2:]
    if geometry.window == (1, 1):
        return _pointwise(x[:, ::stride, ::stride], kernel[0, 0])
    group = _group(channels, features, width)
    places = [(stride * place, stride * (group - 1 - place)) for place in range(group)]
    wide = jnp.concatenate([jnp.pad(kernel, ((0, 0), place, (0, 0), (0, 0))) for place in places], axis=3)
    strides = (stride, stride * group)
    return _xla_convolve(x, wide, strides, geometry.padding).reshape(-1, height, width, features)


def _group(channels: int, features: int, width: int) -> int:
    """Return how many outputs to compute as one: on one core enough to leave the narrow case, on several to fill it.

    Beyond the narrow case, XLA:CPU is slow at exactly 32 features of an odd number of channels, and kernels that are
    mostly zeros cost more than they gain if channels and features are many.
    """
    groups = [group for group in (1, 2, 4, 7, 8) if width % group == 0]
    narrow = max((group for group in groups if group * features <= NARROW), default=1)
    if max(channels, features) > NARROW or (_cores() > 1 and channels > IMAGE_CHANNELS):
        return 1 if channels > NARROW else narrow
    for group in groups:
        total = group * features
        falters = total == 2 * NARROW and channels % 2 == 1 < channels
        if total > NARROW and not falters and (total <= 2 * NARROW or channels <= IMAGE_CHANNELS):
            return group
    return narrow


def _xla_convolve(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: Any, spread: tuple[int, int] = (1, 1)
) -> jax.Array:
    """Apply XLA's convolution, splitting the batch if it would use only one of several cores."""

    def convolve(images: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(images, kernel, strides, padding, spread, dimension_numbers=LAYOUT)

    size = max(2, -(-len(x) // min(PIECES_PER_CORE * _cores(), MOST_PIECES)))
    few = x.shape[3] <= IMAGE_CHANNELS or max(kernel.shape[2:]) <= NARROW
    if _cores() == 1 or few or len(x) % size:
        return convolve(x)
    return jnp.concatenate([convolve(x[start : start + size]) for start in range(0, len(x), size)])


def _pointwise(x: jax.Array, matrix: jax.Array) -> jax.Array:
    # As one tall matrix, since XLA:CPU is slow at products of more than two axes.
    return (x.reshape(-1, x.shape[-1]) @ matrix).reshape(*x.shape[:-1], matrix.shape[1])


def _input_gradient(g: jax.Array, kernel: jax.Array, *, geometry: Geometry) -> jax.Array:
    """Convolve g, dilated by the stride, with the flipped kernel."""
    stride = geometry.stride
    adjoint = kernel[::-1, ::-1].swapaxes(2, 3)
    if stride == 1:
        return _convolve(g, adjoint, geometry=geometry)
    padding = []
    for size, output, window, (low, _) in zip(
        geometry.image, geometry.output, geometry.window, geometry.padding, strict=True
    ):
        padding.append((window - 1 - low, size + low - stride * (output - 1) - 1))
    if geometry.window == (1, 1):
        spread = [(0, 0, 0), *((low, high, stride - 1) for low, high in padding), (0, 0, 0)]
        return lax.pad(_pointwise(g, adjoint[0, 0]), jnp.zeros((), g.dtype), spread)
    return _xla_convolve(g, adjoint, (1, 1), padding, spread=(stride, stride))


def _kernel_gradient(x: jax.Array, g: jax.Array, *, geometry: Geometry) -> jax.Array:
    """Sum over chunks of images that fit in the caches together with their shifted copies."""
    count, height, width, channels = x.shape
    per_image = height * width * (geometry.window[1] * channels + geometry.window[0] * g.shape[3]) * x.dtype.itemsize
    fit = max(1, min(count, (CHUNK_BYTES_ONE_CORE if _cores() == 1 else CHUNK_BYTES) // per_image))
    size = max(divisor for divisor in range(1, fit + 1) if count % divisor == 0)

    def add_chunk(index: jax.Array, total: jax.Array) -> jax.Array:
        x_chunk, g_chunk = (lax.dynamic_slice_in_dim(images, index * size, size) for images in (x, g))
        return total + _kernel_gradient_chunk(x_chunk, g_chunk, geometry)

    zero = jnp.zeros((*geometry.window, channels, g.shape[3]), x.dtype)
    return lax.fori_loop(0, count // size, add_chunk, zero)


def _kernel_gradient_chunk(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """Compute one matrix product of concatenated, shifted copies of x and (shifted copies of) g.

    dk[i, j] = sum_ab x[a, b + j] g[a - i, b]. With columns shifted in x and rows in g, a 3x3 window needs three copies
    of each, where patches of x would need nine, and the product is nearly square, (3C, pixels) by (pixels, 3O), which
    is twice as fast as (9C, pixels) by (pixels, O).
    """
    (rows, columns), stride = geometry.window, geometry.stride
    (top, bottom), (left, right) = geometry.padding
    height, width = geometry.output
    channels, features = x.shape[3], g.shape[3]
    column_slices = [slice(j, j + stride * (width - 1) + 1, stride) for j in range(columns)]
    if stride == 1 and channels > 1:
        x = jnp.pad(x, ((0, 0), (0, 0), (left, right), (0, 0)))
        x = jnp.concatenate([x[:, :, across] for across in column_slices], axis=3)
        g = jnp.pad(g, ((0, 0), (bottom, top), (0, 0), (0, 0)))
        g = jnp.concatenate([g[:, i : i + height] for i in reversed(range(rows))], axis=3)
        return _tall_product(x, g).reshape(columns, channels, rows, features).transpose(2, 0, 1, 3)
    # All shifts in x, because it has one channel, or because with a stride the rows of x and g are not aligned.
    row_slices = [slice(i, i + stride * (height - 1) + 1, stride) for i in range(rows)]
    x = jnp.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    x = jnp.concatenate([x[:, down, across] for down in row_slices for across in column_slices], axis=3)
    return _tall_product(x, g).reshape(rows, columns, channels, features)


def _tall_product(x: jax.Array, g: jax.Array) -> jax.Array:
    """Sum over all pixels: (images, H, W, A), (images, H, W, B) -> (A, B)."""
    # XLA:CPU parallelises a stack of products well, but not a single product with a long sum.
    stack = 1 if _cores() == 1 or len(x) % 2 else 2
    x, g = (images.reshape(stack, -1, images.shape[3]) for images in (x, g))
    return lax.dot_general(x, g, (((1,), (1,)), ((0,), (0,)))).sum(0)


# ---- The three products as primitives: each other's transposes, and rules for vmap ----


def _bilinear(name: str, compute: Callable[..., jax.Array], shape: Callable[..., tuple[int, ...]]) -> Primitive:
    primitive = Primitive(name)

    def abstract(left: Any, right: Any, *, geometry: Geometry) -> ShapedArray:
        return ShapedArray(shape(left.shape, right.shape, geometry), left.dtype)

    primitive.def_abstract_eval(abstract)
    primitive.def_impl(jax.jit(primitive.bind, static_argnames="geometry"))
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    return primitive


convolve_p = _bilinear("convolve", _convolve, lambda x, k, geometry: (x[0], *geometry.output, k[3]))
input_gradient_p = _bilinear("input_gradient", _input_gradient, lambda g, k, geometry: (g[0], *geometry.image, k[2]))
kernel_gradient_p = _bilinear(
    "kernel_gradient", _kernel_gradient, lambda x, g, geometry: (*geometry.window, x[3], g[3])
)

ad.defbilinear(
    convolve_p,
    lambda ct, x, k, geometry: input_gradient_p.bind(ct, k, geometry=geometry),
    lambda ct, x, k, geometry: kernel_gradient_p.bind(x, ct, geometry=geometry),
)
ad.defbilinear(
    input_gradient_p,
    lambda ct, g, k, geometry: convolve_p.bind(ct, k, geometry=geometry),
    lambda ct, g, k, geometry: kernel_gradient_p.bind(ct, g, geometry=geometry),
)
ad.defbilinear(
    kernel_gradient_p,
    lambda ct, x, g, geometry: input_gradient_p.bind(g, ct, geometry=geometry),
    lambda ct, x, g, geometry: convolve_p.bind(x, ct, geometry=geometry),
)


def _register_vmap(primitive: Primitive, left: tuple[int, int], right: tuple[int, int]) -> None:
    """Batch one operand by folding the new axis into (an axis of the operand, the axis it becomes in the result).

    If both operands have the new axis, loop instead: each product uses all cores by itself, and XLA:CPU has no fast
    implementation of the grouped convolution that folding would give.
    """

    def rule(operands: Any, axes: Any, *, geometry: Geometry) -> tuple[jax.Array, int]:
        if None not in axes:
            stacked = [jnp.moveaxis(a, axis, 0) for a, axis in zip(operands, axes, strict=True)]
            return lax.map(lambda pair: primitive.bind(*pair, geometry=geometry), tuple(stacked)), 0
        index, (source, target) = (0, left) if axes[0] is not None else (1, right)
        folded = list(operands)
        members = operands[index].shape[axes[index]]
        moved = jnp.moveaxis(operands[index], axes[index], source)
        folded[index] = moved.reshape(*moved.shape[:source], -1, *moved.shape[source + 2 :])
        result = primitive.bind(*folded, geometry=geometry)
        return result.reshape(*result.shape[:target], members, -1, *result.shape[target + 1 :]), target

    batching.primitive_batchers[primitive] = rule


_register_vmap(convolve_p, left=(0, 0), right=(3, 3))
_register_vmap(input_gradient_p, left=(0, 0), right=(2, 3))
_register_vmap(kernel_gradient_p, left=(3, 2), right=(3, 3))
