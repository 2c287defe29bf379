"""Numbers at the edge: each ends in a right result, or in a stop that names the chain, the step and the tensor."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax.errors import DivergenceError
from roamax.samplers.learned._groups import Groups
from test_conformance import SAMPLERS, THAT_DO_MOST

STOP = re.compile(
    r"chain \d+ diverged: (its energy was not finite at step \d+ \((inf|-inf|nan)\))?(, )?"
    r"(its '[\w/]+'( and \d+ more)? was not finite after step \d+)?\. Try"
)
START = {
    "dead": np.zeros((2, 2)),
    "live": np.asarray([1.0, -1.0, 0.5]),
    "none": np.zeros((0, 2)),
    "one": np.asarray(-0.5),
}


@pytest.fixture(params=THAT_DO_MOST, ids=str)
def name(request):
    return request.param


@functools.cache
def sampler_of(name):
    """A sampler whose target its data decide, so that it is compiled once for all the tests here.

    An example (scale, hole) makes N(0, scale^2) of all but `dead`, whose gradient is exactly zero, with a wall that
    grows with the tenth power beyond 50 scales; a hole > 0 is a likelihood of 0.
    """

    def log_likelihood(params, batch):
        scale = batch[:, 0]
        live = jnp.concatenate([params["live"], params["one"][None]])[None] / scale[:, None]
        wall = jnp.sum(jnp.where(jnp.abs(live) > 50, live**10, 0), axis=1)
        return jnp.where(batch[:, 1] > 0, -jnp.inf, -0.5 * jnp.sum(live**2, axis=1) - wall)

    return SAMPLERS[name](roamax.Posterior(log_likelihood, lambda params: jnp.zeros(()), 1))._replace(collect=None)


def outcome(name, scale=1.0, hole=0.0, far=(0.0, 0.0, 0.0), num_samples=3):
    """The draws of three chains, each so far from the start as `far` says, or what stopped them."""
    chains = iter(far)

    def start(key):
        return jax.tree.map(lambda leaf: jnp.asarray(scale * leaf, jnp.float32), START)

    starts = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), start(None))
    starts["live"] += jnp.asarray([next(chains) for _ in range(3)])[:, None]
    data = jnp.asarray([[scale, hole]])
    before = roamax.Draws.from_positions(jax.tree.map(lambda leaf: leaf[:, None], starts))
    options = {"num_samples": num_samples, "thinning": 2, "num_chains": 3}
    try:
        draws = roamax.sample(jax.random.key(0), sampler_of(name), before, data, **options)
    except DivergenceError as error:
        message = str(error)
        assert STOP.match(message), message
        return message
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws.positions))
    return draws.positions


def test_a_tensor_without_gradient_is_no_division_by_zero(name):
    positions = outcome(name)
    assert not isinstance(positions, str), positions
    assert np.abs(positions["live"][:, -1] - START["live"]).max() > 0
    assert np.abs(positions["dead"]).max() > 0


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 1e10, 1e20])
def test_tiny_and_huge_parameters(scale, name):
    """Steps of the usual size are far too large for the one, and hardly move the other."""
    positions = outcome(name, scale)
    if scale > 1:
        assert not isinstance(positions, str), positions
        moved = positions["live"][:, -1] - scale * START["live"]
        # The steps of roam follow the size of the gradient, so that they grow with the target.
        assert np.abs(moved).max() < (0.1 if name.startswith("roam") else 1e-3) * scale


def test_a_likelihood_of_zero_is_a_stop_at_the_first_step(name):
    stopped = outcome(name, hole=1.0)
    assert isinstance(stopped, str)
    assert stopped.startswith("chain 0 diverged: its energy was not finite at step 0 (inf)")


def test_the_one_chain_that_explodes_is_named(name):
    # A tree of NUTS is as deep as may be where the target is steep: few are enough.
    stopped = outcome(name, far=(0.0, 0.0, 60.0), num_samples=20 if name == "nuts" else 300)
    returning = ("psgld-gamma", "l2e", "roam", "roam-hand-made", "hmc", "nuts", "mile", "smile")
    if name in returning and not isinstance(stopped, str):
        return  # a step that knows the size of its gradient, a bounded one, or a rejection: it comes back
    assert isinstance(stopped, str)
    assert stopped.startswith("chain 2 diverged: ")
    assert re.search(r"its '\w+", stopped)


@pytest.mark.parametrize("name", ["sghmc", "l2e"])
def test_half_a_million_parameters(name):
    size = 5 * 10**5
    posterior = roamax.Posterior(lambda p, batch: jnp.zeros(batch.shape), lambda p: -0.5 * jnp.sum(p["a"] ** 2), 1)
    sampler = SAMPLERS[name](posterior)
    state = sampler.init(jax.random.key(0), {"a": jnp.full(size, 1e-3)})
    state, info = jax.jit(sampler.step)(jax.random.key(1), state, jnp.zeros(1))
    # Rounding that grows with the number of terms would show in the sum.
    np.testing.assert_allclose(info.energy, size * 1e-6 / 2, rtol=1e-4)
    assert np.isfinite(state.position["a"]).all()
    assert len(np.unique(np.asarray(state.position["a"][:: size // 1000]))) > 500


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e10, 1e20])
def test_the_normaliser_does_not_overflow(scale):
    tree = {"a": jnp.asarray(np.random.default_rng(0).normal(size=1000) * scale, jnp.float32)}
    layout = Groups.of(tree)
    packed = layout.pack(tree)
    x = np.asarray(tree["a"], np.float64)
    s = 1 / np.sqrt(np.mean(x**2) + 1e-5)
    np.testing.assert_allclose(layout.unpack(layout.normalised(packed))["a"], x * s, rtol=1e-5)
    np.testing.assert_allclose(layout.unpack(layout.normalised_slope(packed))["a"], s - s**3 * x**2 / 1000, rtol=1e-5)
