"""The stochastic gradient Nosé-Hoover thermostat (Ding et al., 2014), split as by Leimkuhler and Shang (2016)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class SGNHTState(NamedTuple):
    """The position, its momentum, the thermostat's friction, and the number of steps taken."""

    position: Params
    momentum: Params
    thermostat: jax.Array
    step: jax.Array


def sgnht(posterior: Posterior, *, step_size: Scalar, friction: Scalar, temperature: Scalar = 1.0) -> Sampler:
    """Return SGNHT: Langevin dynamics whose friction adapts until the momentum has the right temperature.

        r     <- r - epsilon grad U(theta)
        theta <- theta + epsilon / 2 r,   xi <- xi + epsilon / 2 (r . r / d - T)
        r     <- exp(-epsilon xi) r + N(0, A T (1 - exp(-2 epsilon xi)) / xi)
        xi    <- xi + epsilon / 2 (r . r / d - T),   theta <- theta + epsilon / 2 r

    The noise of minibatch gradients heats the momentum; the thermostat xi, one number, rises above A until friction
    takes that heat away. So noise of one size in all d directions, everywhere, leaves no bias of first order, unlike in
    `sghmc`; noise that differs between directions is balanced on average only. The error of the splitting itself is of
    second order in epsilon; that of Euler's method, as first published, is of first order. `from_learning_rate` gives
    `step_size` and `friction`.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon.
        friction: A, the rate of injected noise; the thermostat starts there.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = as_schedule(friction, "friction")
    temperature_at = as_schedule(temperature, "temperature")

    def init(key: Key, position: Params) -> SGNHTState:
        start = jnp.zeros((), jnp.int32)
        momentum = trees.stationary_momentum(key, position, temperature_at(start))
        return SGNHTState(position, momentum, jnp.asarray(friction_at(start), float), start)

    def step(key: Key, state: SGNHTState, batch: Batch) -> tuple[SGNHTState, Info]:
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        epsilon, friction, temperature = (at(state.step) for at in (epsilon_at, friction_at, temperature_at))
        momentum = trees.linear((1.0, state.momentum), (-epsilon, gradient))
        position = trees.linear((1.0, state.position), (epsilon / 2, momentum))
        thermostat = state.thermostat + epsilon / 2 * _heat(momentum, temperature)
        spread = jnp.sqrt(2 * friction * epsilon * temperature * _mean_decay(2 * epsilon * thermostat))
        noise = trees.normal_like(key, momentum)
        momentum = trees.linear((jnp.exp(-epsilon * thermostat), momentum), (spread, noise))
        thermostat = thermostat + epsilon / 2 * _heat(momentum, temperature)
        position = trees.linear((1.0, position), (epsilon / 2, momentum))
        thermostat = thermostat.astype(state.thermostat.dtype)
        return SGNHTState(position, momentum, thermostat, state.step + 1), Info(energy)

    settings = {
        "name": "sgnht",
        "step_size": describe(step_size),
        "friction": describe(friction),
        "temperature": describe(temperature),
    }
    return Sampler(init, step, settings=settings, posterior=posterior)


def _heat(momentum: Params, temperature: jax.Array) -> jax.Array:
    mean_square = trees.squared_norm(momentum) / trees.size(momentum)
    return mean_square.astype(temperature.dtype) - temperature


def _mean_decay(x: jax.Array) -> jax.Array:
    """Return (1 - exp(-x)) / x, the mean of exp(-t) over t from 0 to x, of either sign."""
    is_small = jnp.abs(x) < 1e-3
    return jnp.where(is_small, 1 - x / 2, -jnp.expm1(-x) / jnp.where(is_small, 1.0, x))
