"""A convolution that is fast on CPUs inside `lax.scan`, as are its derivatives of any order and mode.

XLA:CPU computes the kernel gradient of a convolution as a convolution whose window is the whole image, which inside a
loop is up to a hundred times slower than necessary. With y = x * k, the three products

    y  = convolve(x, k)          y[a, b]  = sum_ij x[sa + i, sb + j] k[i, j]
    dx = input_gradient(g, k)    the transpose of convolve in x
    dk = kernel_gradient(x, g)   the transpose of convolve in k

are bilinear, and the transpose of each is another of the three. So they are three JAX primitives, each with an
implementation for CPUs, and JAX derives the rest: reverse over reverse, forward over reverse, and so on. A convolution
with a 2x2 maximum behind it is linear too, once it is known where the maxima are: the three products then take these
places as a third operand, and g is the gradient of the pooled image.

Where there is a compiler, the products of single precision are functions in C++ (`_conv.cc`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.dtypes import promote_dtype
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from roamax.errors import check
from roamax.host.machine import usable_cores
from roamax.host.native import has_function

LAYOUT = ("NHWC", "HWIO", "NHWC")
CONVOLVE, KERNEL_GRADIENT, SOURCE = "roamax_convolve", "roamax_kernel_gradient", Path(__file__).with_name("_conv.cc")
"""The functions in C++, and the file that they are in."""
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
    stride: int = 1
    is_padded: bool = True
    is_pooled: bool = False

    @property
    def padding(self) -> list[tuple[int, int]]:
        if not self.is_padded:
            return [(0, 0), (0, 0)]
        return [(low, high) for low, high in lax.padtype_to_pads(self.image, self.window, (self.stride,) * 2, "SAME")]

    @property
    def output(self) -> tuple[int, int]:
        """The height and width of the result, before it is pooled."""
        (height, width), (rows, columns) = self.image, self.window
        if not self.is_padded:
            return height - rows + 1, width - columns + 1
        return -(-height // self.stride), -(-width // self.stride)

    @property
    def result(self) -> tuple[int, int]:
        height, width = self.output
        return (height // 2, width // 2) if self.is_pooled else (height, width)


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


def convolve_and_pool(x: jax.Array, kernel: jax.Array, is_padded: bool = True) -> jax.Array:
    """Return the 2x2 maxima of a convolution of images (n, H, W, C), as `max_pool2x2(conv2d(x, kernel))` has them.

    On CPUs, the image before the maxima is never in memory, and the gradient goes to the first of tied maxima.
    Without padding, each side of the image before the maxima is shorter by the window's length less one.
    """
    if jax.default_backend() != "cpu":
        padding = "SAME" if is_padded else "VALID"
        return max_pool2x2(lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=LAYOUT))
    window = kernel.shape[0], kernel.shape[1]
    geometry = Geometry((x.shape[1], x.shape[2]), window, is_padded=is_padded, is_pooled=True)
    return maxima_p.bind(x, kernel, geometry=geometry)[0]


def max_pool2x2(x: jax.Array) -> jax.Array:
    """Return the maximum of each 2x2 block of x (..., H, W, C); an odd last row or column is dropped.

    Tied maxima share the gradient. (The gradient of XLA's own pooling is a scatter, which is slow on CPUs.)
    """
    check(x.ndim >= 3, "x", "have axes (..., height, width, channels)", f"shape {x.shape}")
    height, width = x.shape[-3] // 2 * 2, x.shape[-2] // 2 * 2
    above, below = (jnp.maximum(x[..., r:height:2, 0:width:2, :], x[..., r:height:2, 1:width:2, :]) for r in (0, 1))
    return jnp.maximum(above, below)


class Conv(nn.Module):
    """`conv2d` as a layer, with the parameters `kernel` and `bias` of `flax.linen.Conv`.

    If it pools, its stride is 1, and the bias is added to the 2x2 maxima, which is the same and costs less.
    """

    features: int
    kernel_size: tuple[int, int] = (3, 3)
    strides: int = 1
    kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()
    pools: bool = False
    is_padded: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (*self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        x, kernel, bias = promote_dtype(x, kernel, bias, dtype=None)
        y = convolve_and_pool(x, kernel, self.is_padded) if self.pools else conv2d(x, kernel, self.strides)
        return y + jnp.broadcast_to(bias, y.shape)


# ---- How each product is computed on a CPU ----


def _cores() -> int:
    """Return the number of cores per device."""
    return max(1, usable_cores() // jax.local_device_count())


def _is_native(name: str, images: jax.Array, geometry: Geometry) -> bool:
    # A window of one pixel is a matrix product.
    return geometry.window != (1, 1) and images.dtype == jnp.float32 and has_function(name, SOURCE)


def _native(name: str, results: Any, operands: Any, geometry: Geometry, frame: list[int], stride: int) -> Any:
    """Call a function in C++ on images, given the zeros above them and on their left."""
    height, width = geometry.output
    numbers = {"top": frame[0], "left": frame[1], "stride": stride, "dilation": 1, "height": height, "width": width}
    attributes = {key: np.int64(number) for key, number in numbers.items()}
    return jax.ffi.ffi_call(name, results)(*operands, **attributes)


def _maxima(x: jax.Array, kernel: jax.Array, *, geometry: Geometry) -> tuple[jax.Array, jax.Array]:
    """Return the 2x2 maxima of a convolution, and the place of each, from 0 to 3."""
    if _is_native(CONVOLVE, x, geometry):
        shape = (len(x), *geometry.result, kernel.shape[3])
        results = jax.ShapeDtypeStruct(shape, x.dtype), jax.ShapeDtypeStruct(shape, jnp.int32)
        frame = [low for low, _ in geometry.padding]
        return _native(CONVOLVE, results, (x, kernel), geometry, frame, geometry.stride)
    quarters = jnp.stack(_quarters(_convolve(x, kernel, geometry=geometry)))
    return quarters.max(0), quarters.argmax(0).astype(jnp.int32)


def _quarters(x: jax.Array) -> list[jax.Array]:
    """Return the four pixels of each 2x2 block."""
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return [x[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]


def _pool(x: jax.Array, places: jax.Array) -> jax.Array:
    """Return one pixel of each 2x2 block, given its place."""
    return sum(jnp.where(places == place, quarter, 0) for place, quarter in enumerate(_quarters(x)))  # pyright: ignore


def _unpool(g: jax.Array, places: jax.Array, geometry: Geometry) -> jax.Array:
    """Return the transpose of `_pool`: numbers in their places, and zeros around them."""
    count, height, width, channels = g.shape
    parts = [jnp.where(places == place, g, 0) for place in range(4)]
    rows = [jnp.stack(parts[i : i + 2], axis=3) for i in (0, 2)]
    image = jnp.stack(rows, axis=2).reshape(count, 2 * height, 2 * width, channels)
    rest = [(0, size - 2 * half) for size, half in zip(geometry.output, (height, width), strict=True)]
    return jnp.pad(image, ((0, 0), *rest, (0, 0)))


def _convolve(x: jax.Array, kernel: jax.Array, *places: jax.Array, geometry: Geometry) -> jax.Array:
    """Convolve in C++, or by XLA, computing `group` neighbouring outputs as one with `group` times the features.

    The window of a group covers the windows of its outputs: each kernel is shifted to its place and padded with zeros,
    and the stride is that of a whole group. (Since 0 times infinity is NaN, a non-finite value spreads over its group.)
    """
    if places:
        return _pool(_convolve(x, kernel, geometry=geometry), places[0])
    stride, (height, width) = geometry.stride, geometry.output
    channels, features = kernel.shape[2:]
    if geometry.window == (1, 1):
        return _pointwise(x[:, ::stride, ::stride], kernel[0, 0])
    if _is_native(CONVOLVE, x, geometry):
        result = jax.ShapeDtypeStruct((len(x), height, width, features), x.dtype)
        return _native(CONVOLVE, result, (x, kernel), geometry, [low for low, _ in geometry.padding], stride)
    group = _group(channels, features, width)
    shifts = [(stride * place, stride * (group - 1 - place)) for place in range(group)]
    wide = jnp.concatenate([jnp.pad(kernel, ((0, 0), shift, (0, 0), (0, 0))) for shift in shifts], axis=3)
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


def _input_gradient(g: jax.Array, kernel: jax.Array, *places: jax.Array, geometry: Geometry) -> jax.Array:
    """Convolve g, dilated by the stride, with the flipped kernel."""
    stride = geometry.stride
    adjoint = kernel[::-1, ::-1].swapaxes(2, 3)
    padding = []
    for size, output, window, (low, _) in zip(
        geometry.image, geometry.output, geometry.window, geometry.padding, strict=True
    ):
        padding.append((window - 1 - low, size + low - stride * (output - 1) - 1))
    if stride == 1 and _is_native(CONVOLVE, g, geometry):
        result = jax.ShapeDtypeStruct((len(g), *geometry.image, kernel.shape[2]), g.dtype)
        return _native(CONVOLVE, result, (g, adjoint, *places), geometry, [low for low, _ in padding], stride)
    if places:
        g = _unpool(g, places[0], geometry)
    if stride == 1 and geometry.is_padded:
        return _convolve(g, adjoint, geometry=geometry)
    if geometry.window == (1, 1):
        spread = [(0, 0, 0), *((low, high, stride - 1) for low, high in padding), (0, 0, 0)]
        return lax.pad(_pointwise(g, adjoint[0, 0]), jnp.zeros((), g.dtype), spread)
    return _xla_convolve(g, adjoint, (1, 1), padding, spread=(stride, stride))


def _kernel_gradient(x: jax.Array, g: jax.Array, *places: jax.Array, geometry: Geometry) -> jax.Array:
    """Sum over images in C++, or over chunks of images that fit in the caches together with their shifted copies."""
    shape = (*geometry.window, x.shape[3], g.shape[3])
    if _is_native(KERNEL_GRADIENT, x, geometry):
        frame, result = [low for low, _ in geometry.padding], jax.ShapeDtypeStruct(shape, x.dtype)
        return _native(KERNEL_GRADIENT, result, (x, g, *places), geometry, frame, geometry.stride)
    if places:
        g = _unpool(g, places[0], geometry)
    count, height, width, channels = x.shape
    per_image = height * width * (geometry.window[1] * channels + geometry.window[0] * g.shape[3]) * x.dtype.itemsize
    fit = max(1, min(count, (CHUNK_BYTES_ONE_CORE if _cores() == 1 else CHUNK_BYTES) // per_image))
    size = max(divisor for divisor in range(1, fit + 1) if count % divisor == 0)

    def add_chunk(index: jax.Array, total: jax.Array) -> jax.Array:
        x_chunk, g_chunk = (lax.dynamic_slice_in_dim(images, index * size, size) for images in (x, g))
        return total + _kernel_gradient_chunk(x_chunk, g_chunk, geometry)

    return lax.fori_loop(0, count // size, add_chunk, jnp.zeros(shape, x.dtype))


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
    if stride == 1 and geometry.is_padded and channels > 1:
        x = jnp.pad(x, ((0, 0), (0, 0), (left, right), (0, 0)))
        x = jnp.concatenate([x[:, :, across] for across in column_slices], axis=3)
        g = jnp.pad(g, ((0, 0), (bottom, top), (0, 0), (0, 0)))
        g = jnp.concatenate([g[:, i : i + height] for i in reversed(range(rows))], axis=3)
        return _tall_product(x, g).reshape(columns, channels, rows, features).transpose(2, 0, 1, 3)
    # All shifts in x, because it has one channel, or because its rows are not aligned with those of g.
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


def _primitive(name: str, compute: Callable[..., Any], abstract: Callable[..., Any], **options: bool) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = options.get("multiple_results", False)
    primitive.def_abstract_eval(abstract)
    primitive.def_impl(jax.jit(primitive.bind, static_argnames="geometry"))
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=primitive.multiple_results))
    return primitive


def _bilinear(name: str, compute: Callable[..., jax.Array], shape: Callable[..., tuple[int, ...]]) -> Primitive:
    def abstract(left: Any, right: Any, *places: Any, geometry: Geometry) -> ShapedArray:
        return ShapedArray(shape(left.shape, right.shape, geometry), left.dtype)

    return _primitive(name, compute, abstract)


def _abstract_maxima(x: Any, kernel: Any, *, geometry: Geometry) -> tuple[ShapedArray, ShapedArray]:
    shape = (x.shape[0], *geometry.result, kernel.shape[3])
    return ShapedArray(shape, x.dtype), ShapedArray(shape, np.dtype(np.int32))


convolve_p = _bilinear("convolve", _convolve, lambda x, k, geometry: (x[0], *geometry.result, k[3]))
input_gradient_p = _bilinear("input_gradient", _input_gradient, lambda g, k, geometry: (g[0], *geometry.image, k[2]))
kernel_gradient_p = _bilinear(
    "kernel_gradient", _kernel_gradient, lambda x, g, geometry: (*geometry.window, x[3], g[3])
)
maxima_p = _primitive("maxima", _maxima, _abstract_maxima, multiple_results=True)


def _register_derivatives(primitive: Primitive, left: Callable[..., Any], right: Callable[..., Any]) -> None:
    """Register derivatives by both operands; `left` and `right` bind the transposes, given the gradient."""

    def jvp(primals: Any, tangents: Any, *, geometry: Geometry) -> tuple[Any, Any]:
        return primitive.bind(*primals, geometry=geometry), _tangent(primitive, primals, tangents, geometry)

    def transpose(g: Any, x: Any, y: Any, *places: Any, geometry: Geometry) -> list[Any]:
        if type(g) is ad.Zero:
            return [None] * (2 + len(places))
        if ad.is_undefined_primal(x):
            return [left(g, y, *places, geometry=geometry), None, *(None for _ in places)]
        return [None, right(x, g, *places, geometry=geometry), *(None for _ in places)]

    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose


def _tangent(primitive: Primitive, primals: Any, tangents: Any, geometry: Geometry) -> jax.Array:
    """Return the tangent of a product, one of whose operands at least has one."""
    x, y, *places = primals
    pairs = [pair for pair in ((tangents[0], y), (x, tangents[1])) if ad.Zero not in map(type, pair)]
    first, *rest = [primitive.bind(*pair, *places, geometry=geometry) for pair in pairs]
    return sum(rest, first)


_register_derivatives(convolve_p, input_gradient_p.bind, kernel_gradient_p.bind)
_register_derivatives(
    input_gradient_p,
    convolve_p.bind,
    lambda g, ct, *places, geometry: kernel_gradient_p.bind(ct, g, *places, geometry=geometry),
)
_register_derivatives(
    kernel_gradient_p,
    lambda ct, g, *places, geometry: input_gradient_p.bind(g, ct, *places, geometry=geometry),
    convolve_p.bind,
)


def _maxima_jvp(primals: Any, tangents: Any, *, geometry: Geometry) -> tuple[Any, Any]:
    y, places = maxima_p.bind(*primals, geometry=geometry)
    tangent = _tangent(convolve_p, (*primals, places), tangents, geometry)
    return (y, places), (tangent, ad.Zero(ShapedArray(places.shape, jax.dtypes.float0)))


ad.primitive_jvps[maxima_p] = _maxima_jvp


def _register_vmap(primitive: Primitive, left: tuple[int, int], right: tuple[int, int]) -> None:
    """Batch one operand by folding the new axis into (an axis of the operand, the axis it becomes in the result).

    If others have the new axis too, loop instead: each product uses all cores by itself, and XLA:CPU has no fast
    implementation of the grouped convolution that folding would give.
    """

    def rule(operands: Any, axes: Any, *, geometry: Geometry) -> tuple[Any, Any]:
        batched = [index for index, axis in enumerate(axes) if axis is not None]
        if len(operands) > 2 or len(batched) > 1:
            return _looped(primitive, operands, axes, geometry)
        (index,) = batched
        source, target = (left, right)[index]
        folded = list(operands)
        members = operands[index].shape[axes[index]]
        moved = jnp.moveaxis(operands[index], axes[index], source)
        folded[index] = moved.reshape(*moved.shape[:source], -1, *moved.shape[source + 2 :])
        result = primitive.bind(*folded, geometry=geometry)

        def unfolded(array: jax.Array) -> jax.Array:
            return array.reshape(*array.shape[:target], members, -1, *array.shape[target + 1 :])

        if primitive.multiple_results:
            return [unfolded(array) for array in result], [target] * len(result)
        return unfolded(result), target

    batching.primitive_batchers[primitive] = rule


def _looped(primitive: Primitive, operands: Any, axes: Any, geometry: Geometry) -> tuple[Any, Any]:
    stacked = [jnp.moveaxis(a, axis, 0) for a, axis in zip(operands, axes, strict=True) if axis is not None]

    def compute(members: Any) -> Any:
        given = iter(members)
        every = [operand if axis is None else next(given) for operand, axis in zip(operands, axes, strict=True)]
        return primitive.bind(*every, geometry=geometry)

    result = lax.map(compute, stacked)
    return result, [0] * len(result) if primitive.multiple_results else 0


_register_vmap(convolve_p, left=(0, 0), right=(3, 3))
_register_vmap(input_gradient_p, left=(0, 0), right=(2, 3))
_register_vmap(kernel_gradient_p, left=(3, 2), right=(3, 3))
_register_vmap(maxima_p, left=(0, 0), right=(3, 3))
