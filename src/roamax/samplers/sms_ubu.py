"""SMS-UBU (Paulin et al., 2025): kinetic Langevin dynamics by the UBU splitting, in forward and backward sweeps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class SMSUBUState(NamedTuple):
    """The position, its momentum, and the number of steps taken."""

    position: Params
    momentum: Params
    step: jax.Array


def sms_ubu(posterior: Posterior, *, step_size: Scalar, friction: Scalar, temperature: Scalar = 1.0) -> Sampler:
    """Return SMS-UBU: SGHMC's dynamics, integrated so that the bias is of second order in the step size.

    A minibatch gradient kicks the momentum; then the rest of the dynamics, d theta = r dt and
    dr = -C r dt + sqrt(2 C T) dW, is solved exactly over a step. With a = C epsilon and h = tanh(a / 2),

        r      <- r - epsilon grad U(theta)
        r'      = exp(-a) r + N(0, T (1 - exp(-2 a)))
        theta  <- theta + h / C (r + r') + N(0, 4 T (a / 2 - h) / C^2)
        r      <- r'

    In the paper half of the exact part comes before the kick and half after it. This is the same chain, seen where
    its gradients are taken, with half as many random numbers and, on a Gaussian, half the bias.

    The order counts on sweeps: `roamax.sample` runs through the minibatches of an epoch and then back, before it
    shuffles anew, so that the errors of minibatches cancel to first order. They cancel over a whole pair of sweeps, so
    let `burn_in` and `thinning` be multiples of 2 N / |B|, and let the batch size divide N. With minibatches drawn
    independently the bias is of first order, as that of `sghmc`; on all data at once, this is plain UBU. Where we
    measured it (docs/samplers.md), batches shuffled anew each epoch served as well as sweeps.
    `from_learning_rate` gives `step_size` and `friction`. T = 0 is an optimizer with momentum.

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

    def init(key: Key, position: Params) -> SMSUBUState:
        start = jnp.zeros((), jnp.int32)
        return SMSUBUState(position, trees.stationary_momentum(key, position, temperature_at(start)), start)

    def step(key: Key, state: SMSUBUState, batch: Batch) -> tuple[SMSUBUState, Info]:
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        epsilon, friction, temperature = (at(state.step) for at in (epsilon_at, friction_at, temperature_at))
        kicked = trees.linear((1.0, state.momentum), (-epsilon, gradient))
        a = jnp.asarray(friction * epsilon, float)
        h = jnp.tanh(a / 2)
        # a / 2 - h loses its digits where a is small: there, the series of tanh.
        rest = jnp.where(a < 0.2, (a / 2) ** 3 / 3 * (1 - 0.4 * (a / 2) ** 2), a / 2 - h)
        momentum_noise, position_noise = (trees.normal_like(k, kicked) for k in jax.random.split(key))
        momentum = trees.linear((jnp.exp(-a), kicked), (jnp.sqrt(-jnp.expm1(-2 * a) * temperature), momentum_noise))
        mean, spread = h / friction, 2 / friction * jnp.sqrt(temperature * rest)
        position = trees.linear((1.0, state.position), (mean, kicked), (mean, momentum), (spread, position_noise))
        return SMSUBUState(position, momentum, state.step + 1), Info(energy)

    settings = {
        "name": "sms_ubu",
        "step_size": describe(step_size),
        "friction": describe(friction),
        "temperature": describe(temperature),
    }
    return Sampler(init, step, settings=settings, sweeps=True, posterior=posterior)
