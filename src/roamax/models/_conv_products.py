"""The products of a convolution on CPUs: by functions in C++ where there is a compiler, otherwise by XLA."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

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


def _cores() -> int:
    """Return the number of cores per device."""
    return max(1, usable_cores() // jax.local_device_count())


def _is_native(name: str, images: jax.Array, geometry: Geometry) -> bool:
    # A window of one pixel is a matrix product.
    return geometry.window != (1, 1) and images.dtype == jnp.float32 and has_function(name, SOURCE)


def _native(name: str, results: Any, operands: Any, geometry: Geometry, frame: list[int], stride: int) -> Any:
    """Call a function in C++ on images, given the zeros above them and on their left."""
    height, width = geometry.output
    numbers = {"top": frame[0], "left": frame[1], "stride": stride, "height": height, "width": width}
    attributes = {key: np.int64(number) for key, number in numbers.items()}
    return jax.ffi.ffi_call(name, results)(*operands, **attributes)


def maxima(x: jax.Array, kernel: jax.Array, *, geometry: Geometry) -> tuple[jax.Array, jax.Array]:
    """Return the 2x2 maxima of a convolution, and the place of each, from 0 to 3."""
    if _is_native(CONVOLVE, x, geometry):
        shape = (len(x), *geometry.result, kernel.shape[3])
        results = jax.ShapeDtypeStruct(shape, x.dtype), jax.ShapeDtypeStruct(shape, jnp.int32)
        frame = [low for low, _ in geometry.padding]
        return _native(CONVOLVE, results, (x, kernel), geometry, frame, geometry.stride)
    quarters = jnp.stack(_quarters(convolve(x, kernel, geometry=geometry)))
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


def convolve(x: jax.Array, kernel: jax.Array, *places: jax.Array, geometry: Geometry) -> jax.Array:
    """Convolve in C++, or by XLA, computing `group` neighbouring outputs as one with `group` times the features.

    The window of a group covers the windows of its outputs: each kernel is shifted to its place and padded with zeros,
    and the stride is that of a whole group. (Since 0 times infinity is NaN, a non-finite value spreads over its group.)
    """
    if places:
        return _pool(convolve(x, kernel, geometry=geometry), places[0])
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


def input_gradient(g: jax.Array, kernel: jax.Array, *places: jax.Array, geometry: Geometry) -> jax.Array:
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
        return convolve(g, adjoint, geometry=geometry)
    if geometry.window == (1, 1):
        spread = [(0, 0, 0), *((low, high, stride - 1) for low, high in padding), (0, 0, 0)]
        return lax.pad(_pointwise(g, adjoint[0, 0]), jnp.zeros((), g.dtype), spread)
    return _xla_convolve(g, adjoint, (1, 1), padding, spread=(stride, stride))


def kernel_gradient(x: jax.Array, g: jax.Array, *places: jax.Array, geometry: Geometry) -> jax.Array:
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
