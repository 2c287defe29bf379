"""Stochastic gradient Langevin dynamics (Welling and Teh, 2011)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class SGLDState(NamedTuple):
    """The position and the number of steps taken."""

    position: Params
    step: jax.Array


def sgld(posterior: Posterior, *, step_size: Scalar, temperature: Scalar = 1.0) -> Sampler:
    """Return SGLD: overdamped Langevin dynamics with minibatch gradients.

        theta <- theta - epsilon grad U(theta) + N(0, 2 epsilon T)

    For a learning rate on the mean loss, set `step_size = learning_rate / num_data`. T = 0 is SGD.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    temperature_at = as_schedule(temperature, "temperature", positive=False)

    def init(key: Key, position: Params) -> SGLDState:
        return SGLDState(position, jnp.zeros((), jnp.int32))

    def step(key: Key, state: SGLDState, batch: Batch) -> tuple[SGLDState, Info]:
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        epsilon, temperature = epsilon_at(state.step), temperature_at(state.step)
        noise = trees.normal_like(key, state.position)
        scale = jnp.sqrt(2 * epsilon * temperature)
        position = trees.linear((1.0, state.position), (-epsilon, gradient), (scale, noise))
        return SGLDState(position, state.step + 1), Info(energy)

    settings = {"name": "sgld", "step_size": describe(step_size), "temperature": describe(temperature)}
    return Sampler(init, step, settings=settings, posterior=posterior)
