"""A network applied to every parameter, together with its derivatives.

A parameter's outputs depend on its own features only. So the Jacobian is one number per parameter, output and feature,
its slope. All slopes of an output take one pass back through the network, and products with the Jacobian, from either
side, are sums of products with slopes.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from roamax.samplers.learned import _kernel
from roamax.samplers.learned._kernel import Inputs
from roamax.samplers.learned._network import apply_mlp
from roamax.types import MetaParams

FUNCTION = "roamax_mlp_slopes"
"""Outputs and slopes in C++."""


def outputs_and_slopes(weights: MetaParams, features: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Return the outputs (outputs, groups, 64) of an MLP, and its slopes (outputs, features, groups, 64).

    `features` are arrays (groups, 64), or (k, groups, 64) for k features. Where there is a compiler, a function in C++
    computes both in one go. Derivatives, by weights as well, are those of the version with matrix products.
    """
    num_features, groups = len(weights["layer0"]["w"]), features[0].shape[-2]
    return _compute(weights, Inputs(features, jnp.ones((num_features, groups), features[0].dtype), ()))


@jax.custom_jvp
def _compute(weights: MetaParams, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
    is_native = jax.default_backend() == "cpu" and _kernel.is_native(FUNCTION, inputs)
    return (_native if is_native else _with_products)(weights, inputs)


@_compute.defjvp
def _(primals, tangents):
    return jax.jvp(_with_products, primals, tangents)


def _with_products(weights: MetaParams, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
    features = jnp.stack(_kernel.scaled_features(inputs))
    outputs, pull_back = jax.vjp(lambda features: apply_mlp(weights, features), features)
    each = jnp.eye(len(outputs), dtype=outputs.dtype)[..., None, None]
    return outputs, jnp.stack([pull_back(jnp.broadcast_to(one, outputs.shape))[0] for one in each])


@custom_vmap
def _native(weights: MetaParams, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
    shapes = jax.eval_shape(_with_products, weights, inputs)
    return tuple(jax.ffi.ffi_call(FUNCTION, shapes)(*inputs.features, inputs.scales, *_kernel.layers(weights)))


@_native.def_vmap
def _(axis_size, in_batched, weights, inputs):
    return _kernel.in_chains(_native, _with_products, axis_size, in_batched, weights, inputs)
