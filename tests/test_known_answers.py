"""Each sampler's long-run distribution against the exact posterior, and its T = 0 against the optimizer it is."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import roamax
from roamax.errors import InputError
from roamax.samplers.registry import RECORDS
from roamax.schedules import CosineToConstant
from targets import gaussian, linear_regression

CHAINS, BURN_IN, STEPS = 64, 1000, 2500
TARGETS = {
    "2d": gaussian([1.0, -0.5], [[1.0, 0.6], [0.6, 0.8]]),
    "regression": linear_regression(),
}

FLAT = roamax.Posterior(lambda params, batch: 0 * batch, lambda params: 0 * jnp.sum(params["theta"]), 1)
KEY = jax.random.key(2)
DIAGONAL = np.diag(TARGETS["2d"].covariance)


def sgld(posterior, unit, size, temperature):
    return roamax.sgld(posterior, step_size=lambda step: 0.02 * size * unit**2, temperature=temperature)


def psgld(posterior, unit, size, temperature):
    return roamax.psgld(
        posterior, step_size=lambda step: 0.02 * size * unit**2, temperature=temperature, decay=0.999, stabiliser=1.0
    )


def sghmc(posterior, unit, size, temperature):
    return roamax.sghmc(posterior, step_size=lambda step: 0.1 * size * unit, friction=2 / unit, temperature=temperature)


def hmc(posterior, unit, size, temperature):
    return roamax.hmc(
        posterior, step_size=lambda step: 0.3 * size * unit * temperature(step) ** 0.5, num_integration_steps=3,
        adaptation_steps=0, temperature=temperature,
    )  # fmt: skip


def nuts(posterior, unit, size, temperature):
    return roamax.nuts(
        posterior, step_size=lambda step: 0.3 * size * unit * temperature(step) ** 0.5, adaptation_steps=0,
        temperature=temperature,
    )  # fmt: skip


def sgnht(posterior, unit, size, temperature):
    return roamax.sgnht(posterior, step_size=lambda step: 0.1 * size * unit, friction=2 / unit, temperature=temperature)


def sms_ubu(posterior, unit, size, temperature):
    return roamax.sms_ubu(
        posterior, step_size=lambda step: 0.1 * size * unit, friction=2 / unit, temperature=temperature
    )


def mile(posterior, unit, size, temperature):
    return roamax.mile(posterior, step_size=lambda step: 0.02 * size, adaptation_steps=500, temperature=temperature)


def smile(posterior, unit, size, temperature):
    return roamax.smile(posterior, step_size=lambda step: 0.1 * size * unit, friction=2 / unit, temperature=temperature)


def entropy_mcmc(posterior, unit, size, temperature):
    return roamax.entropy_mcmc(
        posterior, step_size=lambda step: 0.02 * size * unit**2, temperature=temperature, smoothing=0.3 * unit**2
    )


SAMPLERS = [sgld, psgld, sghmc, hmc, nuts, sgnht, sms_ubu, mile, smile, entropy_mcmc]


def chain_draws(sampler, target, batch_size, key, burn_in=BURN_IN, steps=STEPS):
    """One chain's positions after burn-in. A minibatch is a stretch of the data from a random place, round the end."""
    length = jax.tree.leaves(target.data)[0].shape[0]

    def step(state, i):
        batch_key, step_key = jax.random.split(jax.random.fold_in(key, i))
        rows = (jax.random.randint(batch_key, (), 0, length) + jnp.arange(batch_size)) % length
        state, _ = sampler.step(step_key, state, jax.tree.map(lambda a: a[rows], target.data))
        return state, state.position["theta"]

    start = {"theta": jnp.asarray(target.mean, jnp.float32) + jax.random.normal(key, target.mean.shape)}
    return jax.lax.scan(step, sampler.init(key, start), jnp.arange(burn_in + steps))[1][burn_in:]


def assert_moments(draws, target, temperature, bias=0.05):
    """Mean and covariance within `bias` and 4 standard errors, which come from the spread over chains."""
    exact = target.covariance * temperature
    scale = np.sqrt(np.diag(exact))
    draws = np.asarray(draws, np.float64)
    assert np.isfinite(draws).all()  # NaN is not less than NaN, but passes for it below
    centred = (draws - target.mean) / scale
    means = centred.mean(axis=1)
    error = 4 * means.std(axis=0, ddof=1) / np.sqrt(CHAINS)
    np.testing.assert_array_less(np.abs(means.mean(axis=0)), error + bias)
    products = np.einsum("cti,ctj->cij", centred, centred) / centred.shape[1]
    error = 4 * products.std(axis=0, ddof=1) / np.sqrt(CHAINS)
    np.testing.assert_array_less(np.abs(products.mean(axis=0) - exact / np.outer(scale, scale)), error + bias)


# Samplers that take all data see one Gaussian as another; their regressions are in `test_calibration`.
@pytest.mark.parametrize(("make", "target_name"), [
    (make, target) for make in SAMPLERS for target in TARGETS
    if target == "2d" or not RECORDS[make.__name__].full_batch
])  # fmt: skip
def test_stationary_moments_at_two_step_sizes_and_temperatures(make, target_name):
    target = TARGETS[target_name]
    is_metropolis = make in (hmc, nuts)
    # The standard deviation of the narrowest direction is the unit of length, and so of step size.
    unit = float(np.linalg.eigvalsh(target.covariance)[0]) ** 0.5
    is_minibatch = target_name == "regression"
    batch_size = 30 if is_minibatch else target.posterior.num_data
    # Draws of trajectories are as good as independent; those of NUTS take longest.
    lengths = {"burn_in": 20, "steps": 80 if make is nuts else 200} if is_metropolis else {}

    def run(size, temperature, key):
        sampler = make(target.posterior, unit, size, lambda step: temperature)
        return chain_draws(sampler, target, batch_size, key, **lengths)

    sizes, temperatures = jnp.asarray([1.0, 1.0, 2.0, 2.0]), jnp.asarray([1.0, 0.25, 1.0, 0.25])
    keys = jax.random.split(jax.random.key(1), CHAINS)
    chains = jax.vmap(run, in_axes=(None, None, 0))
    draws = jax.jit(jax.vmap(chains, in_axes=(0, 0, None)))(sizes, temperatures, keys)
    for i, temperature in enumerate([1.0, 0.25, 1.0, 0.25]):
        # Minibatch gradients add noise of their own, which counts for more the less is injected.
        assert_moments(draws[i], target, temperature, bias=0.05 / temperature**0.5 if is_minibatch else 0.05)


def test_adapted_nuts_learns_the_scales_of_a_log_density():
    """Scales from 0.01 to 100, from a log-density without data: without a mass matrix, 2**10 leapfrog steps are few."""
    scales = jnp.asarray([0.01, 1.0, 100.0])
    posterior = roamax.Posterior.from_log_density(lambda theta: -0.5 * jnp.sum((theta / scales) ** 2))
    sampler = roamax.nuts(posterior)
    draws = roamax.sample(jax.random.key(0), sampler, jnp.zeros(3), num_samples=300, num_chains=4)
    np.testing.assert_allclose(draws.positions.std(axis=(0, 1)) / scales, 1, rtol=0.15)
    assert np.all(roamax.diagnostics.ess(draws) > 300)
    assert 0.7 < draws.statistics.acceptance.mean() < 0.95
    assert not draws.statistics.divergent.any()


def test_data_and_log_densities_are_not_confused():
    target = TARGETS["2d"]
    alone = roamax.Posterior.from_log_density(lambda theta: -jnp.sum(theta["theta"] ** 2))
    for posterior, data, rule in (
        (target.posterior, None, "`data` must be given for a posterior with a likelihood; got None."),
        (alone, target.data, "`data` must be None for a posterior made from its log-density; got arrays."),
    ):
        sampler = roamax.sgld(posterior, step_size=0.1)
        with pytest.raises(InputError) as caught:
            roamax.sample(jax.random.key(0), sampler, {"theta": jnp.zeros(2)}, data, num_samples=1)
        assert str(caught.value) == rule


@pytest.mark.parametrize("kernel", ["sghmc", "sgld"])
def test_cyclical_draws_come_from_the_posterior(kernel):
    target = TARGETS["2d"]
    friction = {"friction": 2.0} if kernel == "sghmc" else {}
    size = 0.15 if kernel == "sghmc" else 0.04
    sampler = roamax.cyclical(
        target.posterior, step_size=size, cycle_length=1500, exploration_ratio=0.2, kernel=kernel, draws_per_cycle=6,
        **friction,
    )  # fmt: skip
    draws = roamax.sample(
        jax.random.key(0), sampler, {"theta": jnp.zeros(2)}, target.data, burn_in=1500 * 2, num_samples=60,
        num_chains=CHAINS,
    )  # fmt: skip
    first_in_cycle = (np.asarray(draws.steps) - 1) % 1500
    assert (first_in_cycle >= 300).all()
    # The first part of each sampling phase still remembers the mode that exploration ended in.
    assert_moments(draws.positions["theta"][:, first_in_cycle > 700], target, 1.0, bias=0.06)


def test_ensemble_with_temperature_is_an_annealed_sghmc():
    target = TARGETS["2d"]
    sampler = roamax.ensemble(target.posterior, member_steps=10**8, learning_rate=0.01, momentum=0.8, temperature=1.0)
    keys = jax.random.split(jax.random.key(1), CHAINS)
    draws = jax.jit(jax.vmap(lambda key: chain_draws(sampler, target, 1, key)))(keys)
    assert_moments(draws, target, 1.0)


def test_sghmc_uses_the_new_momentum():
    """At epsilon = .1, C = .2 on N(0, 1) the variance is 1; with theta moved by the old momentum it is 2."""
    target = gaussian(0.0, 1.0)
    sampler = roamax.sghmc(target.posterior, step_size=0.1, friction=0.2)
    keys = jax.random.split(jax.random.key(2), 512)
    draws = jax.jit(jax.vmap(lambda key: chain_draws(sampler, target, 1, key)))(keys)
    assert abs(float(draws.var()) - 1) < 0.05


def test_sghmc_starts_in_equilibrium():
    """A quarter of a turn with hardly any friction: from rest, all chains would meet at 0."""
    target = gaussian(0.0, 1.0)
    sampler = roamax.sghmc(target.posterior, step_size=0.1, friction=0.01)

    def end(key):
        state = sampler.init(jax.random.fold_in(key, 0), {"theta": jax.random.normal(key, (1,))})
        for i in range(16):
            state, _ = sampler.step(jax.random.fold_in(key, i + 1), state, target.data)
        return state.position["theta"]

    ends = jax.jit(jax.vmap(end))(jax.random.split(jax.random.key(2), 4096))
    assert abs(float(ends.var()) - 1) < 0.1


def test_px_sghmc_keeps_the_posterior_of_the_product():
    """One kernel of one weight, w = p v q, seen once with noise: its moments by quadrature over p, v and q."""
    datum, deviation, precision = 1.5, 0.7, 2.0
    posterior = roamax.Posterior(
        lambda params, batch: -0.5 * ((batch - params["kernel"][0, 0]) / deviation) ** 2,
        lambda params: -0.5 * jnp.sum(params["kernel"] ** 2),
        num_data=1,
    )
    sampler = roamax.px_sghmc(posterior, step_size=0.1, friction=1.0, matrix_friction=1.0, matrix_precision=precision)

    def moments(key):
        def step(state, i):
            state, _ = sampler.step(jax.random.fold_in(key, i), state, jnp.asarray([datum]))
            w = state.position["kernel"][0, 0]
            return state, jnp.stack([w, w**2])

        start = sampler.init(key, {"kernel": jnp.ones((1, 1))})
        return jnp.mean(jax.lax.scan(step, start, jnp.arange(4000))[1][1000:], axis=0)

    found = np.asarray(jax.jit(jax.vmap(moments))(jax.random.split(jax.random.key(4), 256)), np.float64)
    v, p, q = np.meshgrid(*[np.linspace(-5, 5, 101)] * 3)
    w = p * v * q
    density = np.exp(-0.5 * (v**2 + precision * (p**2 + q**2) + ((datum - w) / deviation) ** 2))
    exact = np.asarray([np.sum(w * density), np.sum(w**2 * density)]) / np.sum(density)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - exact) < 4 * error + 0.01).all()


def test_px_sghmc_expands_the_kernels_that_it_is_told_to():
    shapes = {"conv": {"kernel": (3, 3, 2, 4), "bias": (4,)}, "words": {"table": (2000, 3)}}
    position = jax.tree.map(jnp.ones, shapes, is_leaf=lambda shape: isinstance(shape, tuple))

    def sizes(**options):
        state = jax.eval_shape(roamax.px_sghmc(FLAT, step_size=0.1, friction=1.0, **options).init, KEY, position)
        return [{name: matrix.shape[0] for name, matrix in side.items()} for side in state.factors[1:]]

    assert sizes() == [{"conv/kernel": 2}, {"conv/kernel": 4, "words/table": 3}]
    assert sizes(kernels=["words"], largest=5000) == [{"words/table": 2000}, {"words/table": 3}]
    with pytest.raises(roamax.errors.InputError, match="`kernels` must be in the names of kernels"):
        sizes(kernels=["dense"])


def test_the_anchor_of_entropy_mcmc_sees_the_posterior_smoothed():
    target = TARGETS["2d"]
    sampler = roamax.entropy_mcmc(target.posterior, step_size=0.01, smoothing=0.5, draws="anchor")
    draws = jax.jit(jax.vmap(lambda key: chain_draws(sampler, target, 1, key)))(jax.random.split(KEY, CHAINS))
    assert_moments(draws, target._replace(covariance=target.covariance + 0.5 * np.eye(2)), 1.0)


def test_sa_sgld_weighs_positions_by_the_time_they_stand_for():
    target = TARGETS["2d"]
    sampler = roamax.sa_sgld(target.posterior, step_size=0.02, memory=200)

    def variances(key):
        """Of the path's end by steps, by time, and of the position that draws take; the mean of both coordinates."""

        def step(state, i):
            state, _ = sampler.step(jax.random.fold_in(key, i), state, target.data)
            square = [jnp.mean((p["theta"] - target.mean) ** 2 / DIAGONAL) for p in (state.end, state.position)]
            return state, jnp.stack([square[0], state.weight * square[0], state.weight, square[1]])

        seen = jax.lax.scan(step, sampler.init(key, {"theta": jnp.asarray(target.mean)}), jnp.arange(5000))[1]
        by_steps, by_time, weight, drawn = jnp.mean(seen[1000:], axis=0)
        return jnp.stack([by_steps, by_time / weight, drawn])

    found = np.asarray(jax.jit(jax.vmap(variances))(jax.random.split(KEY, 256)))
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    by_steps, by_time, drawn = found.mean(axis=0)
    assert by_steps > 1 + 4 * error[0]
    assert abs(by_time - 1) < 4 * error[1] + 0.03
    assert abs(drawn - 1) < 4 * error[2] + 0.05


def test_psgld_needs_gamma_where_its_preconditioner_follows_the_position():
    target = gaussian(0.0, 1.0)
    keys = jax.random.split(jax.random.key(3), 256)

    def variance(include_gamma):
        sampler = roamax.psgld(target.posterior, step_size=0.01, decay=0.0, stabiliser=0.5, include_gamma=include_gamma)
        return float(jax.jit(jax.vmap(lambda key: chain_draws(sampler, target, 1, key)))(keys).var())

    assert abs(variance(include_gamma=True) - 1) < 0.08
    assert variance(include_gamma=False) > 1.3


LEARNING_RATE, MOMENTUM_DECAY = 0.1, 0.2


def at_zero_temperature():
    posterior = TARGETS["regression"].posterior
    n = posterior.num_data
    sgd = optax.sgd(LEARNING_RATE, momentum=1 - MOMENTUM_DECAY)
    hyper = roamax.from_learning_rate(LEARNING_RATE, MOMENTUM_DECAY, n)
    cosine = optax.cosine_decay_schedule(LEARNING_RATE, 50)
    return {
        "sgld": (roamax.sgld(posterior, step_size=LEARNING_RATE / n, temperature=0.0), optax.sgd(LEARNING_RATE)),
        "sghmc": (roamax.sghmc(posterior, **hyper, temperature=0.0), sgd),
        "psgld": (
            roamax.psgld(posterior, step_size=0.01 / n, temperature=0.0, decay=0.0, stabiliser=1e-5),
            optax.chain(optax.stateless(lambda u, p: jax.tree.map(lambda g: g / (1e-5 + abs(g)), u)), optax.sgd(0.01)),
        ),
        "cyclical": (
            roamax.cyclical(
                posterior, step_size=LEARNING_RATE / n, cycle_length=50, exploration_ratio=0.98, kernel="sgld"
            ),
            optax.sgd(cosine),
        ),
        "ensemble": (
            roamax.ensemble(posterior, member_steps=50, learning_rate=LEARNING_RATE, momentum=1 - MOMENTUM_DECAY),
            optax.sgd(cosine, momentum=1 - MOMENTUM_DECAY),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["sgld", "sghmc", "psgld", "cyclical", "ensemble"])
@pytest.mark.usefixtures("float64")
def test_temperature_zero_is_the_optimizer(name):
    sampler, optimizer = at_zero_temperature()[name]
    target = TARGETS["regression"]
    data = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), target.data)
    state = sampler.init(jax.random.key(0), {"theta": jnp.ones(3)})
    position = {"theta": jnp.ones(3)}
    optimizer_state = optimizer.init(position)

    def descend(position, optimizer_state):
        _, gradient = target.posterior.energy_and_grad(position, data)
        gradient = jax.tree.map(lambda g: g / target.posterior.num_data, gradient)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, position)
        return optax.apply_updates(position, updates), optimizer_state

    step, descend = jax.jit(sampler.step), jax.jit(descend)
    with jax.numpy_dtype_promotion("standard"):
        for i in range(40):
            state, _ = step(jax.random.key(i), state, data)
            position, optimizer_state = descend(position, optimizer_state)
    np.testing.assert_allclose(state.position["theta"], position["theta"], rtol=1e-6)


def test_long_cycles_end_in_finite_numbers():
    # In single precision 1 + cos(pi t) is 0 just before the end of a cycle this long, and friction was divided by it.
    target, length = TARGETS["2d"], 16_000
    sampler = roamax.cyclical(target.posterior, step_size=0.1, friction=1.0, cycle_length=length)
    state = sampler.init(jax.random.key(0), {"theta": jnp.zeros(2)})
    last = state._replace(step=jnp.asarray(length - 1, jnp.int32))
    after, _ = sampler.step(jax.random.key(1), last, target.data)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(after))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_cyclical_explores_without_noise_and_samples_at_its_temperature(temperature):
    length, exploring = 10, 6
    sampler = roamax.cyclical(
        FLAT, step_size=0.1, friction=2.0, cycle_length=length, exploration_ratio=0.6, temperature=temperature
    )
    start = sampler.init(jax.random.key(0), {"theta": jnp.zeros(10_000)})
    start = start._replace(momentum={"theta": jnp.zeros(10_000)})
    step = jax.jit(sampler.step)
    for number in range(2 * length):
        after, _ = step(jax.random.key(1), start._replace(step=jnp.asarray(number, jnp.int32)), jnp.zeros(1))
        place = number % length
        # From rest and on flat ground the momentum is the noise alone, N(0, 2 C epsilon T), and C epsilon is constant.
        expected = 0.0 if place < exploring else np.sqrt(2 * 0.2 * temperature)
        np.testing.assert_allclose(np.std(after.momentum["theta"]), expected, rtol=0.03, err_msg=str(place))


def test_an_ensemble_by_adam_takes_adams_steps_at_its_rate():
    target = TARGETS["2d"]
    tail = CosineToConstant(0.1, 0.02, 4)
    np.testing.assert_allclose([float(tail(jnp.asarray(k))) for k in (0, 2, 4, 9)], [0.1, 0.06, 0.02, 0.02], rtol=1e-6)
    for rate, rates in ((0.1, [0.1, 0.1 * 0.8535534, 0.05]), (tail, [0.1, 0.08828427, 0.06])):
        sampler = roamax.ensemble(target.posterior, member_steps=4, optimizer="adam", learning_rate=rate)
        theta = np.asarray([3.0, -1.0])
        state, m, v = sampler.init(KEY, {"theta": jnp.asarray(theta)}), 0.0, 0.0
        for count, here in enumerate(rates, 1):
            gradient = jax.grad(lambda p: target.posterior.energy(p, target.data))({"theta": jnp.asarray(theta)})
            g = np.asarray(gradient["theta"]) / target.posterior.num_data
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            theta = theta - here * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
            state, _ = sampler.step(KEY, state, target.data)
            np.testing.assert_allclose(state.position["theta"], theta, rtol=1e-4)


def test_an_ensemble_by_muon_moves_kernels_in_all_directions_alike_and_the_rest_as_adam():
    slopes = {
        "kernel": jax.random.normal(KEY, (3, 3, 2, 4)) * jnp.asarray([[[[1, 2, 4, 8.0]]]]),
        "bias": jnp.asarray([3.0, -0.2]),
    }
    energy = lambda p: sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), p, slopes)))  # noqa: E731
    posterior = roamax.Posterior(lambda p, batch: jnp.zeros(len(batch)), lambda p: -energy(p), 1)
    sampler = roamax.ensemble(posterior, member_steps=4, optimizer="muon", learning_rate=0.1)
    state = sampler.init(KEY, jax.tree.map(jnp.zeros_like, slopes))
    state, _ = sampler.step(KEY, state, jnp.zeros(1))
    spread = np.linalg.svd(np.reshape(state.position["kernel"], (18, 4)), compute_uv=False)
    assert spread[0] / spread[-1] < 1.7 < np.linalg.cond(np.reshape(slopes["kernel"], (18, 4)))
    looking_ahead = 1 + 0.9 * 0.1 / (1 - 0.9**2)
    np.testing.assert_allclose(state.position["bias"], [-0.1 * looking_ahead, 0.1 * looking_ahead], rtol=1e-4)


def test_an_ensemble_starts_each_member_with_a_fresh_optimizer():
    target = TARGETS["2d"]
    sampler = roamax.ensemble(target.posterior, member_steps=5, learning_rate=0.1, momentum=0.9)
    state = sampler.init(jax.random.key(0), {"theta": jnp.ones(2)})
    for _ in range(5):
        state, _ = sampler.step(jax.random.key(1), state, target.data)
    fresh = sampler.init(jax.random.key(0), state.position)
    after, _ = sampler.step(jax.random.key(1), state, target.data)
    expected, _ = sampler.step(jax.random.key(1), fresh, target.data)
    np.testing.assert_allclose(after.position["theta"], expected.position["theta"], rtol=1e-6)
