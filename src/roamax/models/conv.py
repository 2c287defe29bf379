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

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax import lax

from roamax.errors import check
from roamax.models._conv_primitives import convolve_p, maxima_p
from roamax.models._conv_products import LAYOUT, Geometry


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
