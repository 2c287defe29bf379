"""The products of a convolution as JAX primitives: each other's transposes, and rules for vmap."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from roamax.models._conv_products import Geometry, convolve, input_gradient, kernel_gradient, maxima


def _primitive(name: str, compute: Callable[..., Any], abstract: Callable[..., Any], results: int = 1) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = results > 1
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


convolve_p = _bilinear("convolve", convolve, lambda x, k, geometry: (x[0], *geometry.result, k[3]))
input_gradient_p = _bilinear("input_gradient", input_gradient, lambda g, k, geometry: (g[0], *geometry.image, k[2]))
kernel_gradient_p = _bilinear("kernel_gradient", kernel_gradient, lambda x, g, geometry: (*geometry.window, x[3], g[3]))
maxima_p = _primitive("maxima", maxima, _abstract_maxima, results=2)


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
