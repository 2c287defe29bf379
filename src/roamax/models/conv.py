"""A convolution that is fast on CPU inside `lax.scan`, in value and in derivatives of any order and mode.

XLA:CPU computes the kernel gradient of a convolution as a convolution whose window is the whole image, and
inside a loop that is up to a hundred times slower than it need be. With y = x * k the three products

    y  = convolve(x, k)          y[a, b]  = sum_ij x[sa + i, sb + j] k[i, j]
    dx = input_gradient(g, k)    the transpose of convolve in x
    dk = kernel_gradient(x, g)   the transpose of convolve in k

are bilinear, and transposing any of them gives another of them. So they are three JAX primitives, each with a
formula that suits a CPU, and JAX derives the rest: reverse over reverse, forward over reverse, and so on.
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

LAYOUT = ("NHWC", "HWIO", "NHWC")
# What one chunk of images may occupy, so that it is still in a core's own cache for the next operation.
CHUNK_BYTES = 1 << 19


class Geometry(NamedTuple):
    """What the three products share besides their operands."""

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
    """Convolve images x (..., H, W, C) with a kernel (odd, odd, C, O), padded as "SAME": (..., H/stride, W/stride, O).

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
    """The largest of each 2x2 block of x (..., H, W, C); an odd last row or column is left out.

    Equal largest values share the gradient. (The gradient of XLA's own pooling is a scatter, which is slow on CPU.)
    """
    check(x.ndim >= 3, "x", "have axes (..., height, width, channels)", f"shape {x.shape}")
    *lead, height, width, channels = x.shape
    cropped = x[..., : height // 2 * 2, : width // 2 * 2, :]
    return cropped.reshape(*lead, height // 2, 2, width // 2, 2, channels).max(axis=(-4, -2))


class Conv(nn.Module):
    """`conv2d` as a layer, with the parameters `kernel` and `bias` of `flax.linen.Conv`."""

    features: int
    kernel_size: tuple[int, int] = (3, 3)
    strides: int = 1
    use_bias: bool = True
    kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (*self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype) if self.use_bias else None
        x, kernel, bias = promote_dtype(x, kernel, bias, dtype=None)
        y = conv2d(x, kernel, self.strides)
        return y if bias is None else y + jnp.broadcast_to(bias, y.shape)


# ---- How each product is computed on a CPU ----


def _convolve(x: jax.Array, kernel: jax.Array, *, geometry: Geometry) -> jax.Array:
    if geometry.window == (1, 1):
        return _pointwise(x[:, :: geometry.stride, :: geometry.stride], kernel[0, 0])
    channels, features = kernel.shape[2:]
    # XLA's product wants 32 columns to fill its registers; two pixels of 16 features make 32.
    pairs = geometry.stride == 1 and geometry.window[1] == 3 and geometry.image[1] % 2 == 0 and features <= 16
    convolve_chunk = _convolve_pairs if pairs else _convolve_plain
    return _map_chunks(lambda chunk: convolve_chunk(chunk, kernel, geometry), x, channels + features)


def _pointwise(x: jax.Array, matrix: jax.Array) -> jax.Array:
    # As one tall matrix: XLA:CPU is slow at products of more than two axes.
    return (x.reshape(-1, x.shape[-1]) @ matrix).reshape(*x.shape[:-1], matrix.shape[1])


def _convolve_plain(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    strides = (geometry.stride, geometry.stride)
    return lax.conv_general_dilated(x, kernel, strides, geometry.padding, dimension_numbers=LAYOUT)


def _convolve_pairs(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """Take two neighbouring pixels as one of twice the channels.

    A pair of outputs sees four columns of the padded input, that is two pairs: a 2-wide window, in which each
    output's three columns of the kernel stand at their place and the fourth is zero.
    """
    count, height, width, channels = x.shape
    features = kernel.shape[3]
    pairs = jnp.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0))).reshape(count, height, width // 2 + 1, 2 * channels)
    shifted = [jnp.pad(kernel, ((0, 0), (place, 1 - place), (0, 0), (0, 0))) for place in (0, 1)]
    pair_kernel = jnp.stack(shifted, axis=3).reshape(-1, 2, 2 * channels, 2 * features)
    padding = [geometry.padding[0], (0, 0)]
    y = lax.conv_general_dilated(pairs, pair_kernel, (1, 1), padding, dimension_numbers=LAYOUT)
    return y.reshape(count, height, width, features)


def _input_gradient(g: jax.Array, kernel: jax.Array, *, geometry: Geometry) -> jax.Array:
    adjoint = kernel[::-1, ::-1].swapaxes(2, 3)
    if geometry.stride == 1:
        return _convolve(g, adjoint, geometry=geometry)
    sizes = zip(geometry.image, geometry.output, geometry.window, geometry.padding, strict=True)
    padding = []
    for size, output, window, (low, _) in sizes:
        spread = (output - 1) * geometry.stride + 1
        padding.append((window - 1 - low, size - spread + low))
    if geometry.window == (1, 1):
        spread_out = [(0, 0, 0), *((low, high, geometry.stride - 1) for low, high in padding), (0, 0, 0)]
        return lax.pad(_pointwise(g, adjoint[0, 0]), jnp.zeros((), g.dtype), spread_out)

    def chunk_gradient(chunk: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            chunk, adjoint, (1, 1), padding, lhs_dilation=(geometry.stride,) * 2, dimension_numbers=LAYOUT
        )

    return _map_chunks(chunk_gradient, g, sum(adjoint.shape[2:]))


def _kernel_gradient(x: jax.Array, g: jax.Array, *, geometry: Geometry) -> jax.Array:
    per_pixel = geometry.window[1] * x.shape[3] + geometry.window[0] * g.shape[3]
    size = _chunk_size(x, per_pixel)

    def add_chunk(total: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + _kernel_gradient_chunk(*chunk, geometry), None

    zero = jnp.zeros((*geometry.window, x.shape[3], g.shape[3]), x.dtype)
    return lax.scan(add_chunk, zero, (_split(x, size), _split(g, size)))[0]


def _kernel_gradient_chunk(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """One product of all columns of the window, beside each other in x, with all its rows, beside each other in g.

    dk[i, j] = sum_ab x[a, b + j] g[a - i, b]: three and three copies for a 3x3 window where patches of x take nine,
    and a product of near-square (3C x pixels) and (pixels x 3O), which runs at twice the speed of (9C) and (O).
    """
    (rows, columns), stride = geometry.window, geometry.stride
    (top, bottom), (left, right) = geometry.padding
    height, width = geometry.output
    if stride == 1:
        x = jnp.pad(x, ((0, 0), (0, 0), (left, right), (0, 0)))
        x = jnp.concatenate([x[:, :, j : j + width] for j in range(columns)], axis=3)
        g = jnp.pad(g, ((0, 0), (bottom, top), (0, 0), (0, 0)))
        g = jnp.concatenate([g[:, rows - 1 - i : rows - 1 - i + height] for i in range(rows)], axis=3)
        row_axis = (columns, -1, rows, g.shape[3] // rows)
        order = (2, 0, 1, 3)
    else:
        # Rows of x and g do not run in step, so all shifts are in x; there are only a quarter of the pixels.
        x = jnp.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
        rows_of = [slice(i, i + stride * (height - 1) + 1, stride) for i in range(rows)]
        columns_of = [slice(j, j + stride * (width - 1) + 1, stride) for j in range(columns)]
        x = jnp.concatenate([x[:, i, j] for i in rows_of for j in columns_of], axis=3)
        row_axis = (rows, columns, -1, g.shape[3])
        order = (0, 1, 2, 3)
    product = lax.dot_general(x.reshape(-1, x.shape[3]), g.reshape(-1, g.shape[3]), (((0,), (0,)), ((), ())))
    return product.reshape(row_axis).transpose(order)


def _chunk_size(images: jax.Array, channels: int) -> int:
    """The largest divisor of the number of images for which `channels` numbers a pixel fit in the cache."""
    count, height, width, _ = images.shape
    fit = max(1, CHUNK_BYTES // max(1, height * width * channels * images.dtype.itemsize))
    return max((size for size in range(1, min(fit, count) + 1) if count % size == 0), default=1)


def _split(images: jax.Array, size: int) -> jax.Array:
    return images.reshape(-1, size, *images.shape[1:])


def _map_chunks(function: Callable[[jax.Array], jax.Array], images: jax.Array, channels: int) -> jax.Array:
    y = lax.map(function, _split(images, _chunk_size(images, channels)))
    return y.reshape(-1, *y.shape[2:])


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
kernel_gradient_p = _bilinear("kernel_gradient", _kernel_gradient, lambda x, g, geometry: (*geometry.window, x[3], g[3]))

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

    Where both have the new axis, a loop: each product fills the cores by itself, and XLA:CPU has no fast
    product for the grouped convolution that the fold would make.
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
