"""A custom sampler: BAOAB, a splitting of Langevin dynamics, vs. SGHMC on a target with a known variance.

    B: r <- r - epsilon/2 grad U      A: theta <- theta + epsilon/2 r
    O: r <- exp(-epsilon C) r + sqrt(T (1 - exp(-2 epsilon C))) N(0, 1)

One step is B A O A B; the last B of a step and the first of the next share a gradient, so this version merges them into
one. With long steps its variance is closer to the truth than that of SGHMC. See CONTRIBUTING.md for adding a sampler.

    python examples/own_sampler.py
"""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import roamax
from roamax.numerics import trees
from roamax.schedules import as_schedule, describe


class BAOABState(NamedTuple):
    """The state of the sampler; every sampler's state has a `position` and counts its steps in `step`."""

    position: dict
    momentum: dict
    step: jax.Array


def baoab(posterior, *, step_size, friction, temperature=1.0):
    """Return a sampler of Langevin dynamics by the splitting B A O A."""
    epsilon_at, friction_at = as_schedule(step_size, "step_size"), as_schedule(friction, "friction")
    temperature_at = as_schedule(temperature, "temperature", positive=False)

    def init(key, position):
        return BAOABState(position, trees.zeros_like(position), jnp.zeros((), jnp.int32))

    def step(key, state, batch):
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        epsilon, temperature = epsilon_at(state.step), temperature_at(state.step)
        decay = jnp.exp(-epsilon * friction_at(state.step))
        momentum = trees.linear((1.0, state.momentum), (-epsilon, gradient))
        position = trees.linear((1.0, state.position), (epsilon / 2, momentum))
        noise = trees.normal_like(key, position)
        momentum = trees.linear((decay, momentum), (jnp.sqrt(temperature * (1 - decay**2)), noise))
        position = trees.linear((1.0, position), (epsilon / 2, momentum))
        return BAOABState(position, momentum, state.step + 1), roamax.Info(energy)

    settings = {"name": "baoab", "step_size": describe(step_size), "friction": describe(friction)}
    return roamax.Sampler(init, step, settings=settings, posterior=posterior)


def main(quick=False):
    # One observation at 0 with variance 1 and a flat prior: the posterior is N(0, 1).
    def log_likelihood(params, batch):
        return -0.5 * (batch - params["theta"]) ** 2

    posterior = roamax.Posterior(log_likelihood, lambda params: jnp.zeros(()), num_data=1)
    for build in (roamax.sghmc, baoab):
        sampler = build(posterior, step_size=0.8, friction=1.0)
        draws = roamax.sample(
            jax.random.key(0), sampler, {"theta": jnp.zeros(())}, jnp.zeros(1),
            burn_in=100, num_samples=200 if quick else 2000, thinning=5, num_chains=20,
        )  # fmt: skip
        print(f"{sampler.settings['name']}: variance {np.var(draws.positions['theta']):.3f}, in truth 1")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
