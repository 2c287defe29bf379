"""The hot loop of L2E: a perceptron on every parameter of a tree, as one kernel on a CPU."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from roamax.samplers.networks import apply_mlp
from roamax.types import MetaParams

SMALL = 2**14
"""Up to so many parameters matrix products are as fast, and far quicker to compile."""


@jax.custom_jvp
def apply_to_groups(
    weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array, step: jax.Array
) -> tuple[jax.Array, ...]:
    """The one or two outputs, each (groups, 64), of a perceptron on scaled features.

    `features` are arrays (groups, 64) or (k, groups, 64), `scales` is (inputs, groups), `step` any number >= 0
    that is known at run time only. On a CPU the product of a 32 x 32 matrix with a long, thin one spends more
    time on moving hidden units through memory than on arithmetic. So for a large tree the perceptron is
    written out number by number, and the hidden units of a parameter never leave the core that works on it.
    Derivatives are those of the form with matrix products.
    """
    if features[0].size <= SMALL or jax.default_backend() != "cpu":
        return _with_products(weights, features, scales)
    output = _written_out(weights, features, scales, step)
    return (output.real, output.imag) if jnp.iscomplexobj(output) else (output,)


@apply_to_groups.defjvp
def _(primals, tangents):
    return jax.jvp(_with_products, primals[:3], tangents[:3])


def _with_products(weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(apply_mlp(weights, jnp.stack(_scaled(features, scales))))


@custom_vmap
def _written_out(weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array, step: jax.Array) -> jax.Array:
    # XLA would pull the kernel into each consumer of its result and compute it anew there. The branch of a
    # condition that is not known before run time is compiled by itself.
    output = jax.eval_shape(_kernel, weights, features, scales)
    return jax.lax.cond(step >= 0, _kernel, lambda *_: jnp.zeros(output.shape, output.dtype), weights, features, scales)


@_written_out.def_vmap
def _(axis_size, in_batched, weights, features, scales, step):
    weights_batched, features_batched, scales_batched, _ = in_batched

    def spread(x: jax.Array, is_batched: bool) -> jax.Array:
        return x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape))

    features = [spread(*pair) for pair in zip(features, features_batched, strict=True)]
    scales, step = spread(scales, scales_batched), jnp.max(step)
    if any(jax.tree.leaves(weights_batched)):
        weights = jax.tree.map(spread, weights, weights_batched)
        return jax.lax.map(lambda member: _written_out(*member, step), (weights, features, scales)), True
    # Chains with the same weights are but more groups.
    features = [jnp.moveaxis(x, 0, -3).reshape(*x.shape[1:-2], -1, x.shape[-1]) for x in features]
    scales = jnp.moveaxis(scales, 0, 1).reshape(scales.shape[1], -1)
    output = _written_out(weights, features, scales, step)
    return output.reshape(axis_size, -1, output.shape[-1]), True


def _kernel(weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array) -> jax.Array:
    """The perceptron in elementwise arithmetic alone, which XLA makes one loop on all cores of.

    Such a loop has one result, so two outputs are the parts of a complex number.
    """
    units = _scaled(features, scales)
    for i in range(len(weights)):
        w, b = weights[f"layer{i}"]["w"], weights[f"layer{i}"]["b"]
        # ReLU by selection is one instruction; a maximum that heeds NaN is three.
        inputs = units if i == 0 else [jnp.where(unit < 0, 0, unit) for unit in units]
        units = [_weighted_sum(b[j], w[:, j], inputs) for j in range(len(b))]
    return units[0] if len(units) == 1 else jax.lax.complex(*units)


def _weighted_sum(bias: jax.Array, weights: jax.Array, units: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(lambda total, term: total + term[0] * term[1], zip(weights, units, strict=True), bias)


def _scaled(features: Sequence[jax.Array], scales: jax.Array) -> list[jax.Array]:
    single = [x for feature in features for x in (feature if feature.ndim == 3 else [feature])]
    return [x * scale[:, None] for x, scale in zip(single, scales, strict=True)]
