"""The complete recipe (Ma et al., 2015) with momentum and diagonal matrices D and Q."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.numerics import trees
from roamax.types import Key, Params


class Matrices(NamedTuple):
    """The diagonals of Q and D, and the two halves of the correction Gamma, each a tree like the parameters.

    With z = (theta, r), D(z) = [[0, 0], [0, D]] and Q(z) = [[0, -Q], [Q, 0]], the correction
    Gamma_i = sum_j d(D_ij + Q_ij) / dz_j is

        Gamma_theta = -dQ/dr,     Gamma_r = dQ/dtheta + dD/dr,

    where each derivative stands for the diagonal of the Jacobian.
    """

    q: Params
    d: Params
    gamma_theta: Params
    gamma_r: Params


def recipe_step(
    key: Key,
    position: Params,
    momentum: Params,
    gradient: Params,
    matrices: Matrices,
    epsilon: jax.Array,
    temperature: jax.Array,
) -> tuple[Params, Params]:
    """Take one symplectic Euler step of the recipe's dynamics for exp(-(U + |r|^2 / 2) / T):

        r     <- r - epsilon (Q grad U + D r - T Gamma_r) + N(0, 2 D epsilon T)
        theta <- theta + epsilon (Q r + T Gamma_theta)

    The second line uses the new momentum but Q from before the step.
    """

    def kick(r: jax.Array, g: jax.Array, noise: jax.Array, q: jax.Array, d: jax.Array, gamma: jax.Array) -> jax.Array:
        eps, temp = jnp.asarray(epsilon, r.dtype), jnp.asarray(temperature, r.dtype)
        return r - eps * (q * g + d * r - temp * gamma) + jnp.sqrt(2 * d * eps * temp) * noise

    def drift(theta: jax.Array, r: jax.Array, q: jax.Array, gamma: jax.Array) -> jax.Array:
        eps, temp = jnp.asarray(epsilon, r.dtype), jnp.asarray(temperature, r.dtype)
        return theta + eps * (q * r + temp * gamma)

    noise = trees.normal_like(key, position)
    momentum = jax.tree.map(kick, momentum, gradient, noise, matrices.q, matrices.d, matrices.gamma_r)
    return jax.tree.map(drift, position, momentum, matrices.q, matrices.gamma_theta), momentum
