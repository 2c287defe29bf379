"""The common interface of all networks, and the conversion of their inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import check, lookup, whole
from roamax.types import Key, Params


class Model(NamedTuple):
    """A network as two pure functions on a plain pytree of parameters.

    `init(key, example_x)` draws parameters for inputs shaped like `example_x`, whose leading axis may have any length:
    float64 if `example_x` is, float32 otherwise. `apply(params, x)` returns logits for classes, or a mean and a scale
    for real targets, computed in the dtype of the parameters.
    """

    name: str
    init: Callable[[Key, Any], Params]
    apply: Callable[[Params, Any], Any]


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "leaky_relu": jax.nn.leaky_relu,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "swish": jax.nn.swish,
    "tanh": jnp.tanh,
}
INCREASING = frozenset(ACTIVATIONS[name] for name in ("elu", "leaky_relu", "relu", "sigmoid", "softplus", "tanh"))
"""Activations that may come before or after a maximum."""


def activation(name: str) -> Callable[[jax.Array], jax.Array]:
    """Return the activation function `name`."""
    return lookup(ACTIVATIONS, name, "activation")


def as_floats(x: Any, dtype: Any) -> jax.Array:
    """Cast inputs to the dtype of the parameters; bytes, as in stored images, are scaled to [0, 1]."""
    x = jnp.asarray(x)
    return x.astype(dtype) / 255 if x.dtype == jnp.uint8 else x.astype(dtype)


def as_images(x: jax.Array, least: int = 1) -> jax.Array:
    """Add a channel axis if it is missing, and check that height and width are at least `least`."""
    check(x.ndim in (3, 4), "x", "hold images of shape (height, width) or (height, width, channels)", x.shape[1:])
    check(min(x.shape[1:3]) >= least, "x", f"hold images of at least {least} by {least}", x.shape[1:3])
    return x if x.ndim == 4 else x[..., None]


def parameter_dtype(params: Params) -> Any:
    """Return the dtype that a model computes in."""
    return jnp.result_type(jax.tree.leaves(params)[0])


def initial_dtype(example_x: Any) -> Any:
    """Return the dtype of new parameters: double precision if the inputs have it, else single."""
    return jnp.float64 if jnp.result_type(example_x) == jnp.float64 else jnp.float32


def widths(hidden: Sequence[int] | int) -> tuple[int, ...]:
    """Return the widths of hidden layers; a number is that of a single layer."""
    if isinstance(hidden, str | Mapping) or not isinstance(hidden, Iterable):
        return (whole(hidden, "hidden"),)
    return tuple(whole(width, "hidden") for width in hidden)
