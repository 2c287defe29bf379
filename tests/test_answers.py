"""A slice of `python -m benchmarks answers`, with tolerances by effective sample size; and the orders of two biases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import answers, order

KEY = jax.random.key(0)
SLICE = {"num_chains": 16, "num_blocks": 30}


@pytest.mark.parametrize("kind", answers.NOISES)
def test_noise_leaves_the_target_as_it_is(kind):
    target = answers.TARGETS["funnel"]
    data, x = answers.noise(target, kind), jnp.linspace(-1.0, 1.0, len(target.mode))
    posterior = answers.posterior_of(target)
    np.testing.assert_allclose(posterior.energy(x, data), -target.log_density(x), rtol=1e-5)

    def strength(x):
        single = jax.vmap(lambda row: posterior.energy_and_grad(x, jax.tree.map(lambda a: a[None], row))[1])(data)
        return float(jnp.sqrt(jnp.mean((single - posterior.energy_and_grad(x, data)[1][None]) ** 2)))

    if kind == "by position":
        assert strength(-x) > 3 * strength(x)
    else:
        assert strength(x) == pytest.approx(0.0 if kind == "none" else 0.5 / target.unit, rel=1e-3)


@pytest.mark.parametrize("name", ["SGNHT", "SMS-UBU"])
def test_short_steps_show_no_bias_under_any_noise_and_long_ones_do(name):
    target, entry = answers.TARGETS["two modes"], answers.SAMPLERS[name]
    seen = answers.averages(entry, target, answers.NOISES, KEY, **SLICE, sizes=(0.3, 1.5))
    # One of 40 numbers exceeds 4.5 standard errors by chance once in some thousand keys.
    for kind in range(len(answers.NOISES)):
        assert answers.standard_errors(seen[0, kind], target).max() < 4.5
    assert answers.standard_errors(seen[1, 1], target).max() > 6


def test_the_bias_of_sghmc_is_of_first_order_that_of_ubu_of_second_and_sweeps_keep_it_small():
    first, second = order.ENTRIES["SGHMC, drawn with replacement"], order.ENTRIES["SMS-UBU, all data"]
    orders = {
        1: order.order(first._replace(sizes=(0.08, 0.3)), KEY, num_chains=700, pairs=120),
        2: order.order(second, KEY, num_chains=1500, pairs=120),
    }
    for expected, found in orders.items():
        assert found.slope_error < 0.15
        # Terms of higher order add to the slope at steps that are long enough for the bias to be seen.
        assert round(found.slope) == expected
    swept, replaced = (
        order.bias(order.ENTRIES[f"SMS-UBU, {name}"]._replace(sizes=(0.28,)), KEY, num_chains=500, pairs=60)
        for name in ("in sweeps", "drawn with replacement")
    )
    assert abs(swept[0][0]) < 4 * swept[1][0] + 0.01
    assert replaced[0][0] > 8 * replaced[1][0]
