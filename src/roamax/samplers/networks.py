"""The small networks inside learned samplers: one multilayer perceptron with ReLU, applied to every parameter."""

import functools
import hashlib
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_batching import custom_vmap

from roamax import trees
from roamax.errors import check
from roamax.types import Key, MetaParams

SMALL = 2**14
"""Up to so many parameters a plain matrix product is as fast, and far quicker to compile."""


def init_mlp(key: Key, widths: Sequence[int]) -> MetaParams:
    """Weights N(0, 1 / fan-in), biases 0: `{"layer0": {"w": (widths[0], widths[1]), "b": (widths[1],)}, ...}`."""
    keys = jax.random.split(key, len(widths) - 1)
    return {
        f"layer{i}": {"w": jax.random.normal(keys[i], (m, n)) / math.sqrt(m), "b": jnp.zeros((n,))}
        for i, (m, n) in enumerate(itertools.pairwise(widths))
    }


def check_mlp(weights: MetaParams, widths: Sequence[int], argument: str) -> None:
    """Check the names, the shapes and, outside of tracing, the finiteness of a perceptron's weights."""
    expected = {}
    for i, (m, n) in enumerate(itertools.pairwise(widths)):
        expected |= {f"layer{i}/b": (n,), f"layer{i}/w": (m, n)}
    leaves = trees.named_leaves(weights)
    check(leaves.keys() == expected.keys(), argument, f"hold {', '.join(expected)}", ", ".join(leaves) or "nothing")
    for name, leaf in leaves.items():
        shape = jnp.shape(leaf)
        check(shape == expected[name], argument, f"hold {name} of shape {expected[name]}", f"shape {shape}")
        finite = isinstance(leaf, Tracer) or bool(np.all(np.isfinite(leaf)))
        check(finite, argument, "be finite", f"NaN or infinity in {name}")


def checksum(weights: MetaParams) -> str | None:
    """The first 16 digits of the weights' SHA-256, or None while they are traced."""
    digest = hashlib.sha256()
    for name, leaf in trees.named_leaves(weights).items():
        if isinstance(leaf, Tracer):
            return None
        digest.update(name.encode() + np.asarray(leaf, np.float32).tobytes())
    return digest.hexdigest()[:16]


def apply_mlp(weights: MetaParams, features: jax.Array) -> jax.Array:
    """The perceptron on `features` (inputs, ...): (outputs, ...)."""
    hidden = features.reshape(features.shape[0], -1)
    for i in range(len(weights)):
        layer = weights[f"layer{i}"]
        hidden = layer["w"].T @ (hidden if i == 0 else jax.nn.relu(hidden)) + layer["b"][:, None]
    return hidden.reshape(-1, *features.shape[1:])


@jax.custom_jvp
def apply_to_groups(
    weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array, step: jax.Array
) -> jax.Array:
    """The one output (groups, 64) of a perceptron on scaled features.

    `features` are arrays (groups, 64) or (k, groups, 64), `scales` is (inputs, groups). This is the hot loop
    of `l2e`. On a CPU a product of a 32 x 32 matrix with a long, thin one spends more time on moving hidden
    units through memory than on arithmetic, so a large tree goes through `_written_out`, one kernel whose
    hidden units never leave the core. Its derivative and its vectorisation are those of the plain form.
    """
    written_out = features[0].size > SMALL and jax.default_backend() == "cpu"
    return (_batchable_written_out if written_out else _plain)(weights, features, scales, step)


@apply_to_groups.defjvp
def _(primals, tangents):
    return jax.jvp(functools.partial(_plain, step=primals[-1]), primals[:-1], tangents[:-1])


def _plain(weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array, step: jax.Array) -> jax.Array:
    return apply_mlp(weights, jnp.stack(_scaled(features, scales)))[0]


@custom_vmap
def _batchable_written_out(weights, features, scales, step):
    # XLA would inline the kernel into each consumer of its result, and compute it anew there. The branch
    # of a condition that only run time knows is compiled by itself.
    nothing = jnp.zeros_like(features[0])
    return jax.lax.cond(step >= 0, _written_out, lambda *_: nothing, weights, features, scales)


@_batchable_written_out.def_vmap
def _(axis_size, in_batched, weights, features, scales, step):
    weights_batched, features_batched, scales_batched, _ = in_batched

    def spread(x, is_batched):
        return x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape))

    features = [spread(x, is_batched) for x, is_batched in zip(features, features_batched, strict=True)]
    scales = spread(scales, scales_batched)
    step = jnp.max(step)
    if any(jax.tree.leaves(weights_batched)):
        weights = jax.tree.map(spread, weights, weights_batched)
        return jax.lax.map(lambda x: _batchable_written_out(*x, step), (weights, features, scales)), True
    # Chains with the same weights are but more groups.
    merged = [jnp.moveaxis(x, 0, -3).reshape(*x.shape[1:-2], -1, x.shape[-1]) for x in features]
    merged_scales = jnp.moveaxis(scales, 0, 1).reshape(scales.shape[1], -1)
    return _batchable_written_out(weights, merged, merged_scales, step).reshape(
        axis_size, -1, merged[0].shape[-1]
    ), True


def _scaled(features: Sequence[jax.Array], scales: jax.Array) -> list[jax.Array]:
    single = [x for feature in features for x in (feature if feature.ndim == 3 else [feature])]
    return [x * scale[:, None] for x, scale in zip(single, scales, strict=True)]


def _written_out(weights: MetaParams, features: Sequence[jax.Array], scales: jax.Array) -> jax.Array:
    """The perceptron number by number: elementwise arithmetic alone, which XLA makes one loop on all cores of."""
    units = _scaled(features, scales)
    for i in range(len(weights)):
        w, b = weights[f"layer{i}"]["w"], weights[f"layer{i}"]["b"]
        inputs = units if i == 0 else [jax.nn.relu(unit) for unit in units]
        units = [_weighted_sum(w[:, j], inputs) + b[j] for j in range(w.shape[1])]
    return units[0]


def _weighted_sum(weights: jax.Array, units: Sequence[jax.Array]) -> jax.Array:
    # Two shorter chains of multiply-adds wait less for each other than one.
    half = -(-len(units) // 2)
    terms = [weights[k] * unit for k, unit in enumerate(units)]
    return functools.reduce(jnp.add, [functools.reduce(jnp.add, part) for part in (terms[:half], terms[half:]) if part])
