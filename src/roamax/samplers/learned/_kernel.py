"""The inner loop of L2E: an MLP applied to every parameter of a tree, as one kernel on CPUs."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.sharding import Mesh, PartitionSpec

from roamax.host.native import has_function
from roamax.samplers.learned._groups import GROUP
from roamax.samplers.learned._network import apply_mlp
from roamax.types import MetaParams

SMALL = 2**13
"""Up to this many parameters, matrix products take as long as a network written out, and far less to compile. They are
also how a population of small networks runs, all members at once."""
FUNCTION, SOURCE = "roamax_mlp", Path(__file__).with_name("_native.cc")
"""The MLP in C++, and the file that it and other functions are in."""


class Inputs(NamedTuple):
    """The inputs of the network, and the arrays that its outputs are added to."""

    features: Sequence[jax.Array]
    """Arrays (groups, 64), or (k, groups, 64) for k features."""
    scales: jax.Array
    """The factor of each feature, (features, groups)."""
    bases: Sequence[jax.Array]
    """One array (groups, 64) per output of `apply_to_groups`, of which there are one or two."""


def apply_to_shares(mesh: Mesh | None, weights: MetaParams, inputs: Inputs, step: jax.Array) -> tuple[jax.Array, ...]:
    """Return `apply_to_groups`, computed by each device of a mesh for its share of the groups.

    XLA cannot split a function that it did not compile, and would have every device compute all groups.
    """
    if mesh is None:
        return apply_to_groups(weights, inputs, step)
    groups, everywhere = mesh.axis_names, PartitionSpec()
    features: list[Any] = [PartitionSpec(*[None] * (feature.ndim - 2), groups) for feature in inputs.features]
    bases: list[Any] = [PartitionSpec(groups)] * len(inputs.bases)
    scales: Any = PartitionSpec(None, groups)
    in_specs = everywhere, Inputs(features, scales, bases), everywhere
    run = jax.shard_map(apply_to_groups, mesh=mesh, in_specs=in_specs, out_specs=tuple(bases), check_vma=False)
    return run(weights, inputs, step)


@jax.custom_jvp
def apply_to_groups(weights: MetaParams, inputs: Inputs, step: jax.Array) -> tuple[jax.Array, ...]:
    """Return base + output, (groups, 64), for each of the one or two outputs of an MLP on scaled features.

    `step` is any number >= 0 that is known at run time only. On a CPU, multiplying a 32 x 32 matrix by a long, thin one
    spends more time on moving hidden units through memory than on arithmetic. So a function in C++ keeps the hidden
    units of a few parameters in the core's registers and cache. Without a compiler, the MLP of a large tree is written
    out in scalar operations, which XLA fuses into one loop. Derivatives are those of the version with matrix products.
    """
    if jax.default_backend() != "cpu" or (inputs.bases[0].size <= SMALL and not is_native(FUNCTION, inputs)):
        return _with_products(weights, inputs)
    return _fused(weights, inputs, step)


@apply_to_groups.defjvp
def _(primals, tangents):
    return jax.jvp(_with_products, primals[:2], tangents[:2])


def is_native(function: str, inputs: Inputs) -> bool:
    """Return whether a function in C++ is there, and for numbers like the inputs."""
    return inputs.scales.dtype == jnp.float32 and has_function(function, SOURCE)


def _with_products(weights: MetaParams, inputs: Inputs) -> tuple[jax.Array, ...]:
    outputs = apply_mlp(weights, jnp.stack(scaled_features(inputs)))
    return tuple(base + output for base, output in zip(inputs.bases, outputs, strict=True))


@custom_vmap
def _fused(weights: MetaParams, inputs: Inputs, step: jax.Array) -> tuple[jax.Array, ...]:
    if is_native(FUNCTION, inputs):
        call = jax.ffi.ffi_call(FUNCTION, tuple(map(jax.typeof, inputs.bases)))
        return tuple(call(*inputs.features, inputs.scales, *inputs.bases, *layers(weights)))
    # XLA would fuse the kernel into each consumer of its result and so compute it several times. A branch on a
    # condition known only at run time is compiled separately.
    shape = jax.eval_shape(_written_out, weights, inputs)
    output = jax.lax.cond(step >= 0, _written_out, lambda *_: jnp.zeros(shape.shape, shape.dtype), weights, inputs)
    return (output.real, output.imag) if len(inputs.bases) == 2 else (output,)


@_fused.def_vmap
def _(axis_size, in_batched, weights, inputs, step):
    latest = jnp.max(step)
    return in_chains(lambda *args: _fused(*args, latest), _with_products, axis_size, in_batched, weights, inputs)


def layers(weights: MetaParams) -> list[jax.Array]:
    """Return each layer's weights and biases, as functions in C++ take them."""
    return [weights[f"layer{i}"][name] for i in range(len(weights)) for name in ("w", "b")]


def in_chains(
    run: Callable[..., Any], plain: Callable[..., Any], axis_size: int, in_batched: Any, weights: Any, inputs: Any
) -> tuple[Any, Any]:
    """Return what `run`, a function of weights and inputs, returns for each of many chains, and that it is batched.

    Its results are (..., groups, 64). `plain` is the same by matrix products.
    """

    def spread(x: jax.Array, is_batched: bool) -> jax.Array:
        return x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape))

    inputs = jax.tree.map(spread, inputs, in_batched[1])
    if any(jax.tree.leaves(in_batched[0])):
        weights = jax.tree.map(spread, weights, in_batched[0])
        if inputs.scales[0, 0].size * GROUP <= SMALL:
            outputs = jax.vmap(plain)(weights, inputs)
        else:
            outputs = jax.lax.map(lambda member: run(*member), (weights, inputs))
    else:
        # Chains that share weights are just more groups.
        features, bases = ([_chains_as_groups(x, -2) for x in arrays] for arrays in (inputs.features, inputs.bases))
        outputs = run(weights, Inputs(features, _chains_as_groups(inputs.scales, -1), bases))
        outputs = jax.tree.map(lambda x: _groups_as_chains(x, axis_size), outputs)
    return outputs, jax.tree.map(lambda _: True, outputs)


def _chains_as_groups(x: jax.Array, axis: int) -> jax.Array:
    """Merge a leading axis of chains into the axis of groups."""
    shape = list(x.shape[1:])
    shape[axis] *= x.shape[0]
    return jnp.moveaxis(x, 0, axis - 1).reshape(shape)


def _groups_as_chains(x: jax.Array, chains: int) -> jax.Array:
    """Invert `_chains_as_groups`, for the last axis but one."""
    *before, groups, group = x.shape
    return jnp.moveaxis(x.reshape(*before, chains, groups // chains, group), -3, 0)


def _written_out(weights: MetaParams, inputs: Inputs) -> jax.Array:
    """Compute the MLP in elementwise arithmetic alone, which XLA fuses into one loop over all cores.

    Such a loop has a single result, so two outputs become the parts of a complex number.
    """
    units = scaled_features(inputs)
    for i in range(len(weights)):
        w, b = weights[f"layer{i}"]["w"], weights[f"layer{i}"]["b"]
        # ReLU by selection is one instruction; a maximum that propagates NaN is three.
        incoming = units if i == 0 else [jnp.where(unit < 0, 0, unit) for unit in units]
        units = [_weighted_sum(b[j], w[:, j], incoming) for j in range(len(b))]
    outputs = [base + unit for base, unit in zip(inputs.bases, units, strict=True)]
    return outputs[0] if len(outputs) == 1 else jax.lax.complex(*outputs)


def _weighted_sum(bias: jax.Array, weights: jax.Array, units: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(lambda total, term: total + term[0] * term[1], zip(weights, units, strict=True), bias)


def scaled_features(inputs: Inputs) -> list[jax.Array]:
    """Return the product of each feature and its scale, (groups, 64)."""
    single = [x for feature in inputs.features for x in (feature if feature.ndim == 3 else [feature])]
    return [x * scale[:, None] for x, scale in zip(single, inputs.scales, strict=True)]
