"""Stochastic gradient Hamiltonian Monte Carlo (Chen et al., 2014)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class SGHMCState(NamedTuple):
    """The position, its momentum, and the number of steps taken."""

    position: Params
    momentum: Params
    step: jax.Array


def sghmc(posterior: Posterior, *, step_size: Scalar, friction: Scalar, temperature: Scalar = 1.0) -> Sampler:
    """Return SGHMC: Langevin dynamics with momentum, integrated by the symplectic Euler method.

        r     <- r - epsilon grad U(theta) - epsilon C r + N(0, 2 C epsilon T)
        theta <- theta + epsilon r

    The second line uses the *new* momentum: with the old one, the variance on N(0, 1) at epsilon = .1, C = .2 is 2
    instead of 1. T = 0 is SGD with momentum, and `from_learning_rate` gives `step_size` and `friction` in its terms.
    The momentum starts from its stationary distribution, N(0, T I) with the T of the first step.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon.
        friction: C.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = as_schedule(friction, "friction")
    temperature_at = as_schedule(temperature, "temperature", positive=False)

    def init(key: Key, position: Params) -> SGHMCState:
        start = jnp.zeros((), jnp.int32)
        return SGHMCState(position, trees.stationary_momentum(key, position, temperature_at(start)), start)

    def step(key: Key, state: SGHMCState, batch: Batch) -> tuple[SGHMCState, Info]:
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        epsilon, friction, temperature = (at(state.step) for at in (epsilon_at, friction_at, temperature_at))
        noise = trees.normal_like(key, state.position)
        scale = jnp.sqrt(2 * friction * epsilon * temperature)
        momentum = trees.linear((1 - epsilon * friction, state.momentum), (-epsilon, gradient), (scale, noise))
        position = trees.linear((1.0, state.position), (epsilon, momentum))
        return SGHMCState(position, momentum, state.step + 1), Info(energy)

    settings = {
        "name": "sghmc",
        "step_size": describe(step_size),
        "friction": describe(friction),
        "temperature": describe(temperature),
    }
    return Sampler(init, step, settings=settings, posterior=posterior)
