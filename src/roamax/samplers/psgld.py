"""Preconditioned SGLD (Li et al., 2016): Langevin steps scaled by a running mean square of the gradient."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import finite
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class PSGLDState(NamedTuple):
    """The position, the running mean square of the gradient, and the number of steps taken."""

    position: Params
    mean_square: Params
    step: jax.Array


def psgld(
    posterior: Posterior,
    *,
    step_size: Scalar,
    temperature: Scalar = 1.0,
    decay: float = 0.99,
    stabiliser: float = 1e-5,
    include_gamma: bool = False,
) -> Sampler:
    """Return SGLD with an RMSprop preconditioner. With g = grad U / N,

        V     <- decay V + (1 - decay) g^2,   G = 1 / (stabiliser + sqrt(V))
        theta <- theta - epsilon G grad U + epsilon T Gamma + N(0, 2 epsilon G T)

    V starts at the first g^2; from 0 the first steps would be far too long. Gamma_i = dG_i / dtheta_i corrects for the
    dependence of G on theta.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon.
        temperature: T; 1 samples the posterior.
        decay: The decay of the running mean square V.
        stabiliser: Added to sqrt(V).
        include_gamma: Whether to include Gamma, which is small for `decay` near 1 and usually omitted. It costs a
            Hessian-vector product per step: the Hessian's diagonal is estimated, without bias, from a random sign
            vector.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    decay, stabiliser = finite(decay, "decay", least=0, below=1), finite(stabiliser, "stabiliser", above=0)

    def init(key: Key, position: Params) -> PSGLDState:
        return PSGLDState(position, trees.zeros_like(position), jnp.zeros((), jnp.int32))

    def gradient_and_curvature(key: Key, position: Params, batch: Batch) -> tuple[jax.Array, Params, Params | None]:
        if not include_gamma:
            energy, gradient = posterior.energy_and_grad(position, batch)
            return energy, gradient, None
        signs = jax.tree.map(jnp.sign, trees.normal_like(key, position))
        (energy, gradient), (_, product) = jax.jvp(
            lambda theta: posterior.energy_and_grad(theta, batch), (position,), (signs,)
        )
        return energy, gradient, jax.tree.map(jnp.multiply, signs, product)

    def gamma(mean_square: jax.Array, gradient: jax.Array, curvature: jax.Array) -> jax.Array:
        root = jnp.sqrt(mean_square)
        # g / sqrt(V) is bounded however small both are; only 0 / 0 must be avoided.
        ratio = jnp.where(root > 0, gradient / posterior.num_data / jnp.where(root > 0, root, 1), 0)
        slope = (1 - decay) * ratio * curvature / posterior.num_data
        return -slope / (stabiliser + root) ** 2

    def step(key: Key, state: PSGLDState, batch: Batch) -> tuple[PSGLDState, Info]:
        noise_key, sign_key = jax.random.split(key)
        energy, gradient, curvature = gradient_and_curvature(sign_key, state.position, batch)
        epsilon, temperature = epsilon_at(state.step), temperature_at(state.step)
        square = jax.tree.map(lambda g: (g / posterior.num_data) ** 2, gradient)
        memory = jnp.where(state.step == 0, 0.0, decay)
        mean_square = trees.linear((memory, state.mean_square), (1 - memory, square))
        scale = jax.tree.map(lambda v: 1 / (stabiliser + jnp.sqrt(v)), mean_square)
        drift = jax.tree.map(jnp.multiply, scale, gradient)
        if curvature is not None:
            drift = trees.linear((1.0, drift), (-temperature, jax.tree.map(gamma, mean_square, gradient, curvature)))
        noise = jax.tree.map(lambda g, xi: jnp.sqrt(g) * xi, scale, trees.normal_like(noise_key, state.position))
        position = trees.linear((1.0, state.position), (-epsilon, drift), (jnp.sqrt(2 * epsilon * temperature), noise))
        return PSGLDState(position, mean_square, state.step + 1), Info(energy)

    settings = {
        "name": "psgld",
        "step_size": describe(step_size),
        "temperature": describe(temperature),
        "decay": decay,
        "stabiliser": stabiliser,
        "include_gamma": include_gamma,
    }
    return Sampler(init, step, settings=settings, posterior=posterior)
