"""Objectives of meta-training, as running means over the draws of an unroll.

Draws are not kept: the k-th is scored when it is taken and folded into a mean with weight 1 / min(k, memory). Up to
`memory` draws that is their plain mean; beyond, older draws fade, which is the *online* form of the objective that
truncated unrolls use.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import finite
from roamax.posterior import Posterior
from roamax.types import Batch, Params

Bandwidth = float | Literal["median"]
"""The width h of a kernel; "median" is the median distance between its points."""


class Draw(NamedTuple):
    """One draw per chain, along the leading axis of `positions`, and the data that it is scored with."""

    posterior: Posterior
    positions: Params
    held_out: Batch
    batch: Batch


class Objective(NamedTuple):
    """A running score: `init` for a number of held-out points, `add(score, weight, draw)`, and its `loss`.

    With `gradient_only`, the loss has the objective's gradient but not its value, so that only backpropagation can
    minimise it. `least_chains` is the least number of chains.
    """

    init: Callable[[int, Any], jax.Array]
    add: Callable[[jax.Array, jax.Array, Draw], jax.Array]
    loss: Callable[[jax.Array], jax.Array]
    gradient_only: bool = False
    least_chains: int = 1


def over_chains(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function over a leading axis of chains by `vmap`, except that a single chain stays unbatched.

    On CPU, a batched matrix product with a batch of one is slower than the plain product.
    """

    def mapped(*arguments: Any) -> Any:
        if jax.tree.leaves(arguments)[0].shape[0] > 1:
            return jax.vmap(function)(*arguments)
        only = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], only)

    return mapped


@functools.cache
def bma() -> Objective:
    """Return the loss of the Bayesian model average, L = -mean_i log (1/K) sum_k p(y_i | x_i, theta_k).

    It rewards draws that predict well together, hence diverse ones.
    """

    def add(score: jax.Array, weight: jax.Array, draw: Draw) -> jax.Array:
        log_density = _log_density(draw)
        average = jax.nn.logsumexp(log_density, axis=0) - math.log(log_density.shape[0])
        return jnp.logaddexp(score + jnp.log1p(-weight), average + jnp.log(weight))

    return Objective(lambda count, dtype: jnp.zeros((count,), dtype), add, lambda score: -jnp.mean(score))


@functools.cache
def cross_entropy() -> Objective:
    """Return the mean loss of single draws, L = -(1/K) sum_k mean_i log p(y_i | x_i, theta_k)."""

    def add(score: jax.Array, weight: jax.Array, draw: Draw) -> jax.Array:
        return score + weight * (-jnp.mean(_log_density(draw)) - score)

    return Objective(lambda count, dtype: jnp.zeros((), dtype), add, lambda score: score)


@functools.cache
def kl(bandwidth: Bandwidth = 100.0, ridge: float = 0.01) -> Objective:
    """Return the divergence KL(q || posterior) of the chains' common distribution q, divided by the number of data.

    Its gradient goes through the draws only,

        d KL / d phi = mean_c (grad U(theta_c) + grad log q(theta_c)) . d theta_c / d phi,

    with grad log q from `stein_score` over the chains. The value is only that of the energy, because the entropy of q
    is not known. A `bandwidth` far above the chains' distances, as 100 is for most networks, leaves almost no
    entropy term; "median" takes their median distance. Either way the term is seen only in directions in which chains
    differ: few chains underestimate it in many dimensions.
    """
    if bandwidth != "median":
        bandwidth = finite(bandwidth, "bandwidth", above=0, otherwise=", or median")
    ridge = finite(ridge, "ridge", above=0)

    def add(score: jax.Array, weight: jax.Array, draw: Draw) -> jax.Array:
        chains = jax.tree.leaves(draw.positions)[0].shape[0]
        flat = jnp.concatenate([leaf.reshape(chains, -1) for leaf in jax.tree.leaves(draw.positions)], axis=1)
        fixed = jax.lax.stop_gradient(flat)
        energies = over_chains(lambda position: draw.posterior.energy(position, draw.batch))(draw.positions)
        entropy_gradient = jnp.sum(stein_score(fixed, bandwidth, ridge) * (flat - fixed), axis=1)
        value = jnp.mean(energies + entropy_gradient) / draw.posterior.num_data
        return score + weight * (value - score)

    return Objective(lambda count, dtype: jnp.zeros((), dtype), add, lambda score: score, True, 2)


def stein_score(points: jax.Array, bandwidth: Bandwidth, ridge: float) -> jax.Array:
    """Estimate the gradient of log q at `points` (count, dimension), which were drawn from q, by Stein's identity.

    With k(x, y) = exp(-|x - y|^2 / (2 h^2)), K_ij = k(x_i, x_j) and B_i = sum_j (x_i - x_j) K_ij / h^2, the identity
    K G + B = 0 holds in expectation; ridge regression solves it: G = -(K + ridge I)^-1 B.
    """
    products = points @ points.T
    norms = jnp.diagonal(products)
    distances = jnp.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
    if bandwidth == "median":
        between = distances[jnp.triu_indices(len(points), 1)]
        squared = jnp.maximum(jnp.median(between), jnp.finfo(points.dtype).tiny)
    else:
        squared = jnp.asarray(bandwidth**2, points.dtype)
    kernel = jnp.exp(-distances / (2 * squared))
    pull = (jnp.sum(kernel, axis=1, keepdims=True) * points - kernel @ points) / squared
    return -jnp.linalg.solve(kernel + ridge * jnp.eye(len(points), dtype=points.dtype), pull)


def _log_density(draw: Draw) -> jax.Array:
    """Return log p(y_i | x_i, theta_c) of the held-out points, shape (chains, points)."""
    return over_chains(lambda position: draw.posterior.log_likelihood(position, draw.held_out))(draw.positions)
