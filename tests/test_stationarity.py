"""The bias of samplers on known targets: none where there is none, and the right one where it is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax.errors import InputError
from roamax.evaluation import targets
from roamax.evaluation.stationarity import bias, long_run

LENGTHS = {"num_chains": 32, "burn_in": 500, "num_steps": 4000}


def sghmc(temperature):
    return lambda posterior: roamax.sghmc(posterior, step_size=0.05, friction=1.0, temperature=temperature)


@pytest.mark.parametrize("name", ["Gaussian", "funnel", "mixture"])
def test_exact_draws_and_density_belong_together(name):
    target = targets.TARGETS[name](jax.random.key(0))
    found = bias(sghmc(1.0), target, jax.random.key(1), **LENGTHS)
    assert found.mean < 0.2
    assert abs(found.deviation - 1) < 0.1
    assert found.distance < 0.15
    assert 0 < found.floor < 0.06


def test_a_tempered_chain_is_as_narrow_as_it_must_be_and_a_diverged_one_unknown():
    target = targets.gaussian(jax.random.key(0), dim=4)
    cold = bias(sghmc(0.25), target, jax.random.key(1), **LENGTHS)
    assert cold.deviation == pytest.approx(0.5, rel=0.1)
    # A normal of half the width is at a distance of half the mean of |N(0, 1)|.
    assert cold.distance == pytest.approx(0.5 * np.sqrt(2 / np.pi), rel=0.15)

    def explodes(posterior):
        return roamax.sgld(posterior, step_size=1e10)

    assert np.isnan(bias(explodes, target, jax.random.key(1), **LENGTHS)).all()


def test_chains_are_looked_at_where_draws_are_taken():
    target = targets.gaussian(jax.random.key(0), dim=2)

    def counts(posterior):
        chain = roamax.sgld(posterior, step_size=0.1)

        def step(key, state, batch):
            count = state.step + 1
            position = jnp.full_like(state.position, count.astype(float))
            return state._replace(position=position, step=count), chain.step(key, state, batch)[1]

        return chain._replace(step=step, collect=lambda step: step % 7 == 3)

    found = long_run(counts, target, jax.random.key(1), num_chains=2, burn_in=10, num_steps=30, most_moments=6)
    np.testing.assert_array_equal(found[1, :, 0], [17, 24, 31, 38])
    with pytest.raises(InputError, match="`num_steps` must be enough"):
        long_run(counts, target, jax.random.key(1), num_chains=2, burn_in=10, num_steps=6)


@pytest.mark.slow
def test_the_network_is_measured_by_its_predictions():
    target = targets.network(jax.random.key(0), hidden=3, num_data=10, num_samples=20)
    found = bias(sghmc(1.0), target, jax.random.key(1), num_chains=8, burn_in=10, num_steps=200)
    assert len(jax.tree.leaves(target.draws)[0]) == 8 * 20
    assert np.isfinite(found).all()
