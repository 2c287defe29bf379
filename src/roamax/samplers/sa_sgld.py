"""SA-SGLD (Rajpal et al., 2025): SGLD whose steps are short where gradients are large, by a change of time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import finite, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar

NORM_MEMORY = 0.01
"""The weight of the newest gradient in their mean size, during adaptation."""


class SASGLDState(NamedTuple):
    """The position, a point of the recent path; the path's end, what its next step depends on, and the step count.

    `weight` is the time that the path's end stands for, `total` that of the recent path.
    """

    position: Params
    end: Params
    size: jax.Array
    usual_norm: jax.Array
    weight: jax.Array
    total: jax.Array
    step: jax.Array


def sa_sgld(
    posterior: Posterior,
    *,
    step_size: Scalar,
    temperature: Scalar = 1.0,
    most: float = 10.0,
    decay: float = 0.9,
    adaptation_steps: int = 500,
    memory: int = 100,
) -> Sampler:
    """Return SA-SGLD: SGLD in a time that passes psi times as fast, with psi from the size of recent gradients.

        psi    = (M + zeta) / (1 + M zeta)
        theta <- theta - epsilon psi grad U(theta) + N(0, 2 epsilon psi T)
        zeta  <- decay zeta + (1 - decay) |grad U(theta)| / s

    This is the psi of SamAdams, m (zeta^r + M) / (zeta^r + m), with r = 1 and m = 1 / M, and the gradient's norm as its
    monitor. psi is 1 at gradients of the usual size s, the mean of recent norms during adaptation, at most M on
    plateaus, and at least 1 / M on cliffs. A step's psi does not depend on its own gradient, whose noise would bias it.

    Time averages, in which theta counts for psi, are those of the posterior, to first order in epsilon. Positions at
    equal numbers of steps are not: they are too often where steps are short. Draws correct for that over `memory`
    steps: each is a point of the recent path, chosen with a probability proportional to psi, and less by 1 / memory per
    step that it is old. The correction is whole where the path visits large and small gradients within `memory` steps.
    Where it does not, as in a funnel, weigh by hand, with the `end` and `weight` of states. With a `thinning` shorter
    than `memory`, draws repeat.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon, at gradients of the usual size.
        temperature: T; 1 samples the posterior.
        most: M, the factor by which steps are longer or shorter at most.
        decay: How much of zeta remains after a step.
        adaptation_steps: The number of steps after which s stays as it is; they never become draws.
        memory: The number of steps that draws are chosen from.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    most, decay = finite(most, "most", least=1), finite(decay, "decay", least=0, below=1)
    adaptation_steps, memory = whole(adaptation_steps, "adaptation_steps"), whole(memory, "memory")

    def init(key: Key, position: Params) -> SASGLDState:
        zero, one = jnp.zeros(()), jnp.ones(())
        return SASGLDState(position, position, one, zero, one, zero, jnp.zeros((), jnp.int32))

    def step(key: Key, state: SASGLDState, batch: Batch) -> tuple[SASGLDState, Info]:
        energy, gradient = posterior.energy_and_grad(state.end, batch)
        noise_key, choice_key = jax.random.split(key)
        epsilon, temperature = epsilon_at(state.step) * state.weight, temperature_at(state.step)
        noise = trees.normal_like(noise_key, state.end)
        end = trees.linear((1.0, state.end), (-epsilon, gradient), (jnp.sqrt(2 * epsilon * temperature), noise))

        norm = jnp.sqrt(trees.squared_norm(gradient)).astype(state.size.dtype)
        pace = jnp.where(state.step == 0, 1.0, jnp.where(state.step < adaptation_steps, NORM_MEMORY, 0.0))
        usual_norm = state.usual_norm + pace * (norm - state.usual_norm)
        relative = norm / jnp.where(usual_norm > 0, usual_norm, 1.0)
        size = decay * state.size + (1 - decay) * relative
        weight = (most + size) / (1 + most * size)
        total = (1 - 1 / memory) * state.total + weight
        is_chosen = jax.random.uniform(choice_key) * total < weight
        position = jax.tree.map(lambda new, old: jnp.where(is_chosen, new, old), end, state.position)
        return SASGLDState(position, end, size, usual_norm, weight, total, state.step + 1), Info(energy)

    settings = {
        "name": "sa_sgld",
        "step_size": describe(step_size),
        "temperature": describe(temperature),
        "most": most,
        "decay": decay,
        "adaptation_steps": adaptation_steps,
        "memory": memory,
    }
    return Sampler(init, step, lambda steps_taken: steps_taken > adaptation_steps, settings, posterior=posterior)
