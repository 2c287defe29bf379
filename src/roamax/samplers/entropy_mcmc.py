"""Entropy-MCMC (Li and Zhang, 2024): SGLD tied to an anchor that sees a smoothed posterior."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import finite, lookup
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class EntropyMCMCState(NamedTuple):
    """The position that draws are taken from, the other of the pair, and the number of steps taken."""

    position: Params
    partner: Params
    step: jax.Array


def entropy_mcmc(
    posterior: Posterior,
    *,
    step_size: Scalar,
    temperature: Scalar = 1.0,
    smoothing: float = 4e-4,
    draws: Literal["posterior", "anchor"] = "posterior",
) -> Sampler:
    """Return Entropy-MCMC: SGLD on theta and an anchor a under the energy U(theta) + |theta - a|^2 / (2 eta).

        theta     <- theta - epsilon grad U(theta)
        m, delta   = (theta + a) / 2, theta - a
        m         <- m + N(0, epsilon T)
        delta     <- exp(-2 epsilon / eta) delta + N(0, eta T (1 - exp(-4 epsilon / eta)))
        theta, a  <- m + delta / 2, m - delta / 2

    The last lines solve the tie and the noise exactly, so that no eta is too small for a step size. A step takes one
    gradient, that of theta.

    It keeps the posterior: that of theta is the given one, to first order in epsilon, as in `sgld`. The anchor's is the
    posterior smoothed by N(0, eta T I), which counts flat modes for more; `draws="anchor"` takes draws from it.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon.
        temperature: T; 1 samples the posterior.
        smoothing: eta, the variance that the anchor's posterior is smoothed by.
        draws: Whether draws are theta, "posterior", or a, "anchor".

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    smoothing = finite(smoothing, "smoothing", above=0)
    lookup(dict.fromkeys(("posterior", "anchor")), draws, "draws")
    is_anchor = draws == "anchor"

    def init(key: Key, position: Params) -> EntropyMCMCState:
        return EntropyMCMCState(position, position, jnp.zeros((), jnp.int32))

    def step(key: Key, state: EntropyMCMCState, batch: Batch) -> tuple[EntropyMCMCState, Info]:
        theta, anchor = (state.partner, state.position) if is_anchor else (state.position, state.partner)
        energy, gradient = posterior.energy_and_grad(theta, batch)
        epsilon, temperature = epsilon_at(state.step), temperature_at(state.step)
        theta = trees.linear((1.0, theta), (-epsilon, gradient))
        mean_noise, gap_noise = (trees.normal_like(k, theta) for k in jax.random.split(key))
        mean = trees.linear((0.5, theta), (0.5, anchor), (jnp.sqrt(epsilon * temperature), mean_noise))
        ratio = epsilon / smoothing
        spread = jnp.sqrt(-smoothing * temperature * jnp.expm1(-4 * ratio))
        kept = jnp.exp(-2 * ratio)
        gap = trees.linear((kept, theta), (-kept, anchor), (spread, gap_noise))
        theta, anchor = trees.linear((1.0, mean), (0.5, gap)), trees.linear((1.0, mean), (-0.5, gap))
        pair = (anchor, theta) if is_anchor else (theta, anchor)
        return EntropyMCMCState(*pair, state.step + 1), Info(energy)

    settings = {
        "name": "entropy_mcmc",
        "step_size": describe(step_size),
        "temperature": describe(temperature),
        "smoothing": smoothing,
        "draws": draws,
    }
    return Sampler(init, step, settings=settings, posterior=posterior)
