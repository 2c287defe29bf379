"""The inner loop of L2E: an MLP applied to every parameter of a tree, as one kernel on CPUs."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from roamax.samplers.learned._network import apply_mlp
from roamax.types import MetaParams

SMALL = 2**13
"""Up to this many parameters, matrix products are as fast, and far quicker to compile."""


class Inputs(NamedTuple):
    """The inputs of the network, and the arrays that its outputs are added to."""

    features: Sequence[jax.Array]
    """Arrays (groups, 64), or (k, groups, 64) for k features."""
    scales: jax.Array
    """The factor of each feature, (features, groups)."""
    bases: Sequence[jax.Array]
    """One array (groups, 64) per output, of which there are one or two."""


@jax.custom_jvp
def apply_to_groups(weights: MetaParams, inputs: Inputs, step: jax.Array) -> tuple[jax.Array, ...]:
    """Return base + output, (groups, 64), for each of the one or two outputs of an MLP on scaled features.

    `step` is any number >= 0 that is known at run time only. On a CPU, multiplying a 32 x 32 matrix by a long, thin one
    spends more time on moving hidden units through memory than on arithmetic. So for a large tree the MLP is written
    out in scalar operations, and the hidden units of a parameter stay in the core's registers and cache. Derivatives
    are those of the version with matrix products.
    """
    if inputs.bases[0].size <= SMALL or jax.default_backend() != "cpu":
        return _with_products(weights, inputs)
    output = _written_out(weights, inputs, step)
    return (output.real, output.imag) if len(inputs.bases) == 2 else (output,)


@apply_to_groups.defjvp
def _(primals, tangents):
    return jax.jvp(_with_products, primals[:2], tangents[:2])


def _with_products(weights: MetaParams, inputs: Inputs) -> tuple[jax.Array, ...]:
    outputs = apply_mlp(weights, jnp.stack(_scaled_features(inputs)))
    return tuple(base + output for base, output in zip(inputs.bases, outputs, strict=True))


@custom_vmap
def _written_out(weights: MetaParams, inputs: Inputs, step: jax.Array) -> jax.Array:
    # XLA would fuse the kernel into each consumer of its result and so compute it several times. A branch on a
    # condition known only at run time is compiled separately.
    output = jax.eval_shape(_kernel, weights, inputs)
    return jax.lax.cond(step >= 0, _kernel, lambda *_: jnp.zeros(output.shape, output.dtype), weights, inputs)


@_written_out.def_vmap
def _(axis_size, in_batched, weights, inputs, step):
    def spread(x: jax.Array, is_batched: bool) -> jax.Array:
        return x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape))

    inputs, step = jax.tree.map(spread, inputs, in_batched[1]), jnp.max(step)
    if any(jax.tree.leaves(in_batched[0])):
        weights = jax.tree.map(spread, weights, in_batched[0])
        return jax.lax.map(lambda member: _written_out(*member, step), (weights, inputs)), True
    # Chains that share weights are just more groups.
    features, bases = ([_chains_as_groups(x, -2) for x in arrays] for arrays in (inputs.features, inputs.bases))
    output = _written_out(weights, Inputs(features, _chains_as_groups(inputs.scales, -1), bases), step)
    return output.reshape(axis_size, -1, output.shape[-1]), True


def _chains_as_groups(x: jax.Array, axis: int) -> jax.Array:
    """Merge a leading axis of chains into the axis of groups."""
    shape = list(x.shape[1:])
    shape[axis] *= x.shape[0]
    return jnp.moveaxis(x, 0, axis - 1).reshape(shape)


def _kernel(weights: MetaParams, inputs: Inputs) -> jax.Array:
    """Compute the MLP in elementwise arithmetic alone, which XLA fuses into one loop over all cores.

    Such a loop has a single result, so two outputs become the parts of a complex number.
    """
    units = _scaled_features(inputs)
    for i in range(len(weights)):
        w, b = weights[f"layer{i}"]["w"], weights[f"layer{i}"]["b"]
        # ReLU by selection is one instruction; a maximum that propagates NaN is three.
        incoming = units if i == 0 else [jnp.where(unit < 0, 0, unit) for unit in units]
        units = [_weighted_sum(b[j], w[:, j], incoming) for j in range(len(b))]
    outputs = [base + unit for base, unit in zip(inputs.bases, units, strict=True)]
    return outputs[0] if len(outputs) == 1 else jax.lax.complex(*outputs)


def _weighted_sum(bias: jax.Array, weights: jax.Array, units: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(lambda total, term: total + term[0] * term[1], zip(weights, units, strict=True), bias)


def _scaled_features(inputs: Inputs) -> list[jax.Array]:
    single = [x for feature in inputs.features for x in (feature if feature.ndim == 3 else [feature])]
    return [x * scale[:, None] for x, scale in zip(single, inputs.scales, strict=True)]
