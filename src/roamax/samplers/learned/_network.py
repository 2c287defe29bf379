"""The small networks inside learned samplers: ReLU MLPs, applied to every parameter."""

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from roamax.errors import check
from roamax.numerics import trees
from roamax.types import Key, MetaParams


def init_mlp(key: Key, widths: Sequence[int]) -> MetaParams:
    """Draw weights N(0, 1 / fan-in), with biases 0: `{"layer0": {"w": (widths[0], widths[1]), "b": ...}, ...}`."""
    keys = jax.random.split(key, len(widths) - 1)
    return {
        f"layer{i}": {"w": jax.random.normal(keys[i], (m, n)) / math.sqrt(m), "b": jnp.zeros((n,))}
        for i, (m, n) in enumerate(itertools.pairwise(widths))
    }


def check_mlp(weights: MetaParams, widths: Sequence[int], argument: str) -> None:
    """Check the names, the shapes and, unless they are traced, the finiteness of an MLP's weights."""
    expected = {}
    for i, (m, n) in enumerate(itertools.pairwise(widths)):
        expected |= {f"layer{i}/b": (n,), f"layer{i}/w": (m, n)}
    leaves = trees.named_leaves(weights)
    check(
        leaves.keys() == expected.keys(), argument, f"hold {', '.join(expected)}", ", ".join(leaves)[:200] or "nothing"
    )
    for name, leaf in leaves.items():
        shape = jnp.shape(leaf)
        check(shape == expected[name], argument, f"hold {name} of shape {expected[name]}", f"shape {shape}")
        dtype = jnp.result_type(leaf)
        check(jnp.issubdtype(dtype, jnp.floating), argument, f"hold {name} as floating-point numbers", dtype)
        finite = isinstance(leaf, Tracer) or bool(np.all(np.isfinite(leaf)))
        check(finite, argument, "be finite", f"NaN or infinity in {name}")


def checksum(weights: MetaParams) -> str | None:
    """Return the first 16 hex digits of the weights' SHA-256, or None if they are traced."""
    digest = hashlib.sha256()
    for name, leaf in trees.named_leaves(weights).items():
        if isinstance(leaf, Tracer):
            return None
        digest.update(name.encode() + np.asarray(leaf, np.float32).tobytes())
    return digest.hexdigest()[:16]


def cast(weights: MetaParams, dtype: Any) -> MetaParams:
    """Cast the weights to `dtype`, that of a layout."""
    return jax.tree.map(lambda w: jnp.asarray(w, dtype), weights)


def apply_mlp(weights: MetaParams, features: jax.Array) -> jax.Array:
    """Apply the MLP to `features` (inputs, ...); the result is (outputs, ...)."""
    hidden = features.reshape(features.shape[0], -1)
    for i in range(len(weights)):
        layer = weights[f"layer{i}"]
        hidden = layer["w"].T @ (hidden if i == 0 else jax.nn.relu(hidden)) + layer["b"][:, None]
    return hidden.reshape(-1, *features.shape[1:])
