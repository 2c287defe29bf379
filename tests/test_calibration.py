"""Simulation-based calibration (Talts et al., 2018) on conjugate linear regression.

If theta is drawn from the prior and y given theta, then theta's rank among draws from the posterior given y is uniform.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import roamax

REPLICATIONS, RANKS, BINS = 1024, 31, 8
NUM_DATA, DIM = 6, 2


def log_likelihood(theta, batch):
    x, y = batch
    return -0.5 * (y - x @ theta) ** 2


def log_prior(theta):
    return -0.5 * jnp.sum(theta**2)


POSTERIOR = roamax.Posterior(log_likelihood, log_prior, NUM_DATA)

# Thinned until the draws are as good as independent, which the ranks' uniformity needs.
SAMPLERS = {
    "sghmc": (lambda temperature: roamax.sghmc(POSTERIOR, step_size=0.15, friction=1.5, temperature=temperature), 40),
    "sgld": (lambda temperature: roamax.sgld(POSTERIOR, step_size=0.015, temperature=temperature), 100),
    "nuts": (
        lambda temperature: roamax.nuts(POSTERIOR, step_size=0.4, adaptation_steps=0, temperature=temperature),
        2,
    ),
}


def p_value(sampler, thinning):
    """How well the ranks fit a uniform distribution, by chi-square over both parameters."""

    def replicate(key):
        keys = jax.random.split(key, 4)
        theta = jax.random.normal(keys[0], (DIM,))
        x = jax.random.normal(keys[1], (NUM_DATA, DIM))
        y = x @ theta + jax.random.normal(keys[2], (NUM_DATA,))

        def draw(state, i):
            def step(j, state):
                return sampler.step(jax.random.fold_in(keys[3], i * thinning + j), state, (x, y))[0]

            state = jax.lax.fori_loop(0, thinning, step, state)
            return state, state.position

        start = sampler.init(keys[3], jnp.zeros(DIM))
        positions = jax.lax.scan(draw, start, jnp.arange(RANKS + 8))[1][8:]
        return jnp.sum(positions < theta[None, :], axis=0)

    ranks = np.asarray(jax.jit(jax.vmap(replicate))(jax.random.split(jax.random.key(0), REPLICATIONS)))
    counts = np.stack([np.bincount(r * BINS // (RANKS + 1), minlength=BINS) for r in ranks.T])
    statistic = np.sum((counts - REPLICATIONS / BINS) ** 2 / (REPLICATIONS / BINS))
    return stats.chi2.sf(statistic, DIM * (BINS - 1))


@pytest.mark.parametrize("name", SAMPLERS)
def test_ranks_are_uniform(name):
    make, thinning = SAMPLERS[name]
    assert p_value(make(1.0), thinning) > 0.01


def test_ranks_of_a_tempered_posterior_are_not():
    make, thinning = SAMPLERS["sghmc"]
    assert p_value(make(0.5), thinning) < 1e-6
