"""Normalised log-densities over any pytree of parameters, for `Posterior(log_prior=...)`."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from roamax.errors import InputError, check, finite, is_traced, nearest, whole
from roamax.numerics import trees
from roamax.types import Params

LogPrior = Callable[[Params], jax.Array]


def gaussian(
    *, variance: float | None = None, weight_decay: float | None = None, num_data: int | None = None
) -> LogPrior:
    """Return the prior N(0, variance) on every parameter.

    Give either the variance or a weight decay lambda, as in (mean loss) + lambda |theta|^2 / 2: then
    variance = 1 / (num_data * lambda).

    Args:
        variance: The variance of each parameter; it may be traced.
        weight_decay: lambda, relative to the *mean* loss.
        num_data: The number of training examples, required with `weight_decay`.

    Returns:
        The log-density as a function of the parameters.
    """
    variance = _variance(variance, weight_decay, num_data)
    log = jnp.log if is_traced(variance) else math.log

    def log_prior(params: Params) -> jax.Array:
        constant = 0.5 * trees.size(params) * log(2 * math.pi * variance)
        return -0.5 * trees.squared_norm(params) / variance - constant

    return log_prior


def laplace(*, scale: float) -> LogPrior:
    """Return the prior Laplace(0, scale) on every parameter, whose pull towards 0 does not weaken near 0.

    Args:
        scale: The scale; the variance is 2 scale^2.

    Returns:
        The log-density as a function of the parameters.
    """
    scale = finite(scale, "scale", above=0)

    def log_prior(params: Params) -> jax.Array:
        absolute = jnp.asarray(sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(params)))
        return -absolute / scale - trees.size(params) * math.log(2 * scale)

    return log_prior


def fan_in_gaussian(*, scale: float | jax.Array = 1.0) -> LogPrior:
    """Return the prior N(0, scale^2 / m) on weights, with m the fan-in of their tensor, and N(0, 1) on biases.

    The fan-in is the product of all axes but the last, as in flax; vectors and scalars count as biases. A priori, the
    outputs then have the same magnitude whatever the widths of the network.

    Args:
        scale: The standard deviation of a weighted sum of unit inputs; it may be traced.

    Returns:
        The log-density as a function of the parameters.
    """
    scale = finite(scale, "scale", above=0)

    def log_density(leaf: jax.Array) -> jax.Array:
        variance = jnp.asarray(scale**2 / math.prod(leaf.shape[:-1]) if leaf.ndim >= 2 else 1.0, leaf.dtype)
        return -0.5 * jnp.sum(jnp.square(leaf)) / variance - 0.5 * leaf.size * jnp.log(2 * math.pi * variance)

    def log_prior(params: Params) -> jax.Array:
        return jnp.asarray(sum(map(log_density, jax.tree.leaves(params))))

    return log_prior


def layerwise_gaussian(variances: Mapping[str, float], *, default: float | None = None) -> LogPrior:
    """Return a Gaussian prior with its own variance for each layer.

    Args:
        variances: Variances by prefix of a leaf's name (`params/Dense_0`, `params/Dense_0/kernel`); the longest
            matching prefix wins.
        default: The variance of leaves that no prefix matches; if None, such a leaf is an error.

    Returns:
        The log-density as a function of the parameters.
    """
    variances = {name: finite(variance, f"variances[{name!r}]", above=0) for name, variance in variances.items()}
    default = None if default is None else finite(default, "default", above=0)

    def variance_of(leaf_name: str) -> float:
        fitting = [name for name in variances if leaf_name == name or leaf_name.startswith(f"{name}/")]
        if fitting:
            return variances[max(fitting, key=len)]
        if default is None:
            raise InputError(f"`variances` must cover every leaf or come with a `default`; got none for {leaf_name!r}.")
        return default

    def log_prior(params: Params) -> jax.Array:
        leaves = trees.named_leaves(params)
        for name in variances:
            if not any(leaf == name or leaf.startswith(f"{name}/") for leaf in leaves):
                raise InputError(
                    f"`variances` must name leaves of the parameters; got {name!r}: {nearest(name, leaves)}"
                )
        terms = []
        for name, leaf in leaves.items():
            variance = variance_of(name)
            constant = 0.5 * leaf.size * math.log(2 * math.pi * variance)
            terms.append(-0.5 * jnp.sum(jnp.square(leaf)) / variance - constant)
        return jnp.asarray(sum(terms))

    return log_prior


def _variance(variance: float | None, weight_decay: float | None, num_data: int | None) -> float:
    if (variance is None) == (weight_decay is None):
        raise InputError(
            "`gaussian` must get either `variance` or `weight_decay`; got "
            + ("neither." if variance is None else "both.")
        )
    if variance is not None:
        return finite(variance, "variance", above=0)
    check(num_data is not None, "num_data", "be given with `weight_decay`", None)
    precision = whole(num_data, "num_data") * finite(weight_decay, "weight_decay", above=0)
    rule = "give a variance, 1 / (num_data * weight_decay), between 1e-30 and 1e30"
    check(1e-30 <= precision <= 1e30, "weight_decay", rule, weight_decay)
    return 1.0 / precision
