"""Log-likelihoods of class labels and of real targets, for `Posterior(log_likelihood=...)`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from roamax.errors import check
from roamax.numerics import trees
from roamax.types import Batch, Params


def categorical(apply_fn: Callable[[Params, jax.Array], jax.Array]) -> Callable[[Params, Batch], jax.Array]:
    """Return the log-likelihood of class labels under a softmax of logits.

    A label outside [0, classes) gives NaN, which stops the chain, rather than silently counting as another class.

    Args:
        apply_fn: A function of (params, x) that returns logits.

    Returns:
        A function of params and a batch `(x, y)` that returns one number per example.
    """

    def log_likelihood(params: Params, batch: Batch) -> jax.Array:
        x, y = _pair(batch)
        integers = jnp.issubdtype(y.dtype, jnp.integer) and y.ndim == 1
        check(integers, "y", "hold one whole number per example", f"{y.dtype} of shape {y.shape}")
        log_probs = jax.nn.log_softmax(apply_fn(params, x))
        labels = jnp.where(y < 0, log_probs.shape[-1], y)
        return jnp.take_along_axis(log_probs, labels[:, None], axis=-1, mode="fill")[:, 0]

    return _of_kind("classification", log_likelihood)


def gaussian(
    apply_fn: Callable[[Params, jax.Array], tuple[jax.Array, jax.Array]],
) -> Callable[[Params, Batch], jax.Array]:
    """Return the log-likelihood of real targets under a Gaussian.

    Args:
        apply_fn: A function of (params, x) that returns a mean and a scale, which is broadcast to the mean's shape.

    Returns:
        A function of params and a batch `(x, y)` that returns one number per example, summed over its targets.
    """

    def log_likelihood(params: Params, batch: Batch) -> jax.Array:
        x, y = _pair(batch)
        mean, scale = apply_fn(params, x)
        log_density = jax.scipy.stats.norm.logpdf(y, mean, jnp.broadcast_to(scale, mean.shape))
        return jnp.sum(log_density, axis=tuple(range(1, log_density.ndim)))

    return _of_kind("regression", log_likelihood)


def kind(log_likelihood: Callable[..., Any]) -> str | None:
    """Return whether a log-likelihood made here is of "classification" or "regression"; None for one made elsewhere."""
    return getattr(log_likelihood, "kind", None)


def _of_kind(name: str, log_likelihood: Callable[[Params, Batch], jax.Array]) -> Callable[[Params, Batch], jax.Array]:
    vars(log_likelihood)["kind"] = name
    return log_likelihood


def _pair(batch: Batch) -> tuple[jax.Array, jax.Array]:
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    check(is_pair, "data", "be a pair (x, y) for this likelihood", type(batch).__name__)
    return trees.on_device(tuple(batch), "data")
