"""Roam: an exploration that may be learned, and a sampling part that is SGHMC."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax import Posterior, roam, roam_family, sghmc
from roamax.cli import demo_methods
from roamax.errors import InputError
from roamax.host import files, native
from roamax.numerics import trees
from roamax.paper.framework.methods import method
from roamax.paper.framework.problems import CPU
from roamax.samplers.learned import _flat, _kernel, _network
from roamax.samplers.learned import _roam_plan as module
from roamax.samplers.learned._roam_plan import WIDTHS
from roamax.samplers.registry import RECORDS, Run
from roamax.sampling.named import named_sampler

NUM_DATA = 50
DATA = jnp.linspace(0.5, 1.5, NUM_DATA)


def quartic_posterior(scale=1.0):
    """An energy with a different gradient for each number of a tree, in coordinates theta / scale."""

    def log_likelihood(params, batch):
        leaves = [leaf / jnp.asarray(scale, leaf.dtype) for leaf in jax.tree.leaves(params)]
        value = sum(jnp.sum(0.3 * leaf**4 - jnp.sin(2 * leaf)) for leaf in leaves)
        return -batch.astype(value.dtype) * value / NUM_DATA

    return Posterior(log_likelihood, roamax.priors.gaussian(variance=scale**2), NUM_DATA)


def random_tree(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = {"matrix": (7, 5), "vector": (20,), "scalar": ()}
    return {name: jnp.asarray(scale * rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


def random_weights(seed=0, scale=0.3):
    return jax.tree.map(lambda w: scale * w, _network.init_mlp(jax.random.key(seed), WIDTHS))


def run(sampler, position, steps, first_key=0, state=None):
    state = jax.jit(sampler.init)(jax.random.key(99), position) if state is None else state
    step = jax.jit(sampler.step)
    for i in range(steps):
        state, _ = step(jax.random.key(first_key + i), state, DATA)
    return state


def step_lengths(sampler, state):
    """q of every parameter, from how far a unit of momentum carries it in one step without gradient and noise."""
    flat = Posterior(lambda params, batch: jnp.zeros(batch.shape), lambda params: jnp.zeros(()), NUM_DATA)
    still = roam_family(cycle_length=100, exploration_ratio=0.5, temperature=0.0).bind(None, flat)
    unit = state._replace(
        position=trees.zeros_like(state.position), momentum=jax.tree.map(jnp.ones_like, state.momentum)
    )
    moved, _ = jax.jit(still.step)(jax.random.key(0), unit, DATA)
    return jax.tree.map(lambda leaf: leaf / jnp.float32(1 - module.SAMPLING_DECAY), moved.position)


@pytest.mark.parametrize("weights", [None, random_weights()], ids=["hand", "learned"])
def test_the_sampling_part_is_sghmc_in_rescaled_coordinates(weights):
    posterior = quartic_posterior()
    sampler = roam_family(cycle_length=100, exploration_ratio=0.5).bind(weights, posterior)
    state = run(sampler, random_tree(0), 51)  # one step into the sampling part, after the momentum was drawn anew
    q = step_lengths(sampler, state)
    found = run(sampler, None, 20, first_key=500, state=state)

    def in_original(phi):
        return jax.tree.map(jnp.multiply, phi, q)

    whitened = Posterior(
        lambda phi, batch: posterior.log_likelihood(in_original(phi), batch),
        lambda phi: posterior.log_prior(in_original(phi)),
        NUM_DATA,
    )
    reference = sghmc(whitened, step_size=1.0, friction=module.SAMPLING_DECAY)
    start = reference.init(jax.random.key(0), jax.tree.map(jnp.divide, state.position, q))
    expected = run(reference, None, 20, first_key=500, state=start._replace(momentum=state.momentum))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4),
        found.position,
        in_original(expected.position),
    )


def test_weights_of_zero_are_no_network():
    zero = trees.zeros_like(random_weights())
    family, posterior = roam_family(cycle_length=40, temperature=0.5), quartic_posterior()
    with_zero, without = (run(family.bind(w, posterior), random_tree(1), 60) for w in (zero, None))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), with_zero, without)


def test_learned_weights_change_exploration():
    family, posterior = roam_family(cycle_length=40), quartic_posterior()
    learned, hand = (run(family.bind(w, posterior), random_tree(1), 10) for w in (random_weights(), None))
    assert np.max(np.abs(learned.position["matrix"] - hand.position["matrix"])) > 1e-4


def test_matrices_whose_length_does_not_matter_do_not_count_for_the_depth_of_a_network(monkeypatch):
    def log_likelihood(params, batch):
        matrices = params | {"normalised": params["normalised"] / jnp.linalg.norm(params["normalised"])}
        return -batch * sum(jnp.sum((matrix - 0.1) ** 4) for matrix in matrices.values())

    posterior = Posterior(log_likelihood, roamax.priors.gaussian(variance=1.0), NUM_DATA)
    position = {name: random_tree(i)["matrix"] for i, name in enumerate(["one", "two", "three", "normalised"])}
    sampler = roam_family(cycle_length=40).bind(random_weights(), posterior)
    seen = []
    monkeypatch.setattr(module._network, "apply_mlp", lambda weights, x: seen.append(x) or jnp.zeros((4, x.shape[1])))
    with jax.disable_jit():
        state = run(sampler, position, 3)
    assert np.array_equal(np.asarray(state.radial) < 1e-6, [name == "normalised" for name in sorted(position)])
    np.testing.assert_allclose(np.stack(seen)[:, 12], np.log(3), rtol=1e-6)


def test_the_sampling_part_starts_with_momentum_from_its_stationary_law():
    def log_prior(params):
        return -0.5 * jnp.sum(params**2)

    posterior = Posterior(lambda params, batch: jnp.zeros(batch.shape), log_prior, NUM_DATA)
    sampler = roam_family(cycle_length=20_000_000, exploration_ratio=1e-6, temperature=0.25).bind(None, posterior)
    state = run(sampler, jnp.zeros(20_000), 21)
    kick = jnp.std(state.momentum)  # the gradient at the start is nearly 0
    assert float(kick) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(("weights", "temperature"), [(None, 0.25), (random_weights(), 1.0)], ids=["hand", "learned"])
def test_draws_have_the_moments_of_a_gaussian(weights, temperature):
    mean, covariance = np.array([0.5, -1.0]), np.array([[1.0, 0.6], [0.6, 0.8]])
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)

    def log_prior(theta):
        offset = theta - jnp.asarray(mean, jnp.float32)
        return -0.5 * offset @ precision @ offset

    posterior = Posterior(lambda theta, batch: jnp.zeros(batch.shape), log_prior, 1)
    sampler = roam_family(cycle_length=200, temperature=temperature).bind(weights, posterior)
    draws = roamax.sample(jax.random.key(0), sampler, jnp.zeros(2), jnp.zeros(1), num_samples=40, num_chains=256)
    found = np.asarray(draws.positions)[:, 5:].reshape(-1, 2)
    np.testing.assert_allclose(found.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(found.T), temperature * covariance, atol=0.08 * temperature)


def test_a_chain_that_cannot_settle_starts_anew_after_so_many_cycles_and_another_does_not():
    flat = Posterior(lambda params, batch: jnp.zeros(batch.shape), lambda params: jnp.zeros(()), NUM_DATA)
    keys = jax.random.split(jax.random.key(0))
    start = {"bias": jnp.full(7, 3.0), "matrix": 2 + 0.5 * jax.random.normal(keys[0], (300, 200))}

    sampler = roam_family(cycle_length=5, temperature=0.0, cycles_per_start=2).bind(None, flat)

    @jax.jit
    def chain():
        def step(state, key):
            state, _ = sampler.step(key, state, jnp.zeros(8))
            return state, state.position["matrix"][0, 0]

        return jax.lax.scan(step, sampler.init(keys[1], start), jax.random.split(keys[1], 21))

    state, path = chain()  # a flat target moves nothing: what changes is the start
    np.testing.assert_array_equal(np.flatnonzero(np.diff(path)) + 1, [10, 20])
    matrix = np.asarray(state.position["matrix"])
    np.testing.assert_allclose([matrix.mean(), matrix.std()], [2, 0.5], atol=0.02)
    assert abs(np.corrcoef(matrix.ravel(), np.ravel(start["matrix"]))[0, 1]) < 0.02
    np.testing.assert_allclose(state.position["bias"], start["bias"], rtol=1e-6)
    never, settled = (
        roam_family(cycle_length=4000, cycles_per_start=count).bind(None, quartic_posterior()) for count in (None, 1)
    )
    state = jax.jit(never.init)(keys[0], random_tree(1))._replace(step=jnp.asarray(4000, jnp.int32))
    moved = [jax.jit(sampler.step)(keys[1], state, DATA)[0].position for sampler in (never, settled)]
    jax.tree.map(np.testing.assert_array_equal, *moved)


def test_the_sampling_part_does_not_depend_on_the_units_of_parameters():
    def final(scale):
        sampler = roam_family(cycle_length=4000, exploration_ratio=0.5).bind(None, quartic_posterior(scale))
        start = jax.jit(sampler.init)(jax.random.key(0), random_tree(2, scale))
        # As if it had explored: the same curvature, in units of the parameters.
        squares = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0 / scale**2), start.squares)
        stiffness = jnp.full_like(start.stiffness, 2.0 / scale**2)
        state = start._replace(squares=squares, stiffness=stiffness, step=jnp.asarray(2000, jnp.int32))
        return jax.tree.map(lambda leaf: leaf / jnp.float32(scale), run(sampler, None, 10, state=state).position)

    expected = final(1.0)
    for scale in (1e-3, 1e3):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), final(scale), expected)


def test_draws_come_from_the_ends_of_cycles():
    sampler = roam(quartic_posterior(), None, cycle_length=20, exploration_ratio=0.75, draws_per_cycle=5)
    assert [step for step in range(1, 41) if sampler.collect(step)] == [16, 17, 18, 19, 20, 36, 37, 38, 39, 40]


def test_temperature_zero_takes_no_noise():
    sampler = roam(quartic_posterior(), None, cycle_length=10, temperature=0.0)
    one, other = run(sampler, random_tree(3), 15), run(sampler, random_tree(3), 15, first_key=100)
    jax.tree.map(np.testing.assert_array_equal, one.position, other.position)


def test_large_networks_explore_without_noise_and_small_ones_with_it():
    def heat(parameters, cycle):
        return module.Sizes(data=50_000, batch=128, parameters=parameters, cycle=cycle).heat

    assert heat(90_000, 2_000) == 0
    assert heat(20, 100_000) > 0.9
    # Between the two, draws would have noise that does not average out: few cycles are there.
    assert heat(20, 20_000) == 0
    assert heat(20, 60_000) > 0.9


@pytest.mark.parametrize("shape", [(30, 6), (6, 30), (3, 3, 2, 70), (90, 80)])
def test_exploring_without_noise_moves_all_directions_of_a_matrix_alike(shape):
    rng = np.random.default_rng(0)
    slope = jnp.asarray(0.01 * (1 + rng.normal(size=shape)), jnp.float32)  # One direction is steeper than all others.
    line = Posterior(
        lambda params, batch: -batch * jnp.sum(slope * params), lambda params: 0 * jnp.sum(params), num_data=50_000
    )
    sampler = roam(line, None, cycle_length=10)
    before = jax.jit(sampler.init)(jax.random.key(0), jnp.zeros(shape, jnp.float32))
    step = jax.jit(sampler.step)(jax.random.key(1), before, jnp.ones(128))[0].position
    # The first step of Adam has this direction and length.
    size = jnp.sqrt(jnp.mean(slope**2))
    fan_in = slope.size // shape[-1]
    peak = module.PEAK * min(module.LARGEST_FACTOR, np.sqrt(module.REFERENCE_FAN_IN / fan_in))
    peak *= min(2.0, (module.REFERENCE_SIZE / slope.size) ** module.SIZE_POWER)
    adam = -module.DECAY * peak * slope / (jnp.abs(slope) + module.DAMPING * size)
    np.testing.assert_allclose(jnp.linalg.norm(step), jnp.linalg.norm(adam), rtol=1e-4)
    assert jnp.vdot(step, adam) > 0.5 * jnp.vdot(adam, adam)

    def unevenness(matrix):
        values = jnp.linalg.svd(matrix.reshape(-1, shape[-1]), compute_uv=False)
        return jnp.std(values) / jnp.mean(values)

    assert unevenness(step) < 0.5 * unevenness(adam)


def test_an_average_takes_the_place_of_the_cosine_where_exploration_is_without_noise():
    settings, steps = {"cycle_length": 20, "exploration_ratio": 0.9, "temperature": 0.0}, 18
    paths, lasts = [], []
    for averaging in (0.5, 0.0):
        sampler = roam_family(**settings, averaging=averaging).bind(None, quartic_posterior())
        state, path = run(sampler, random_tree(6), 0), []
        for i in range(steps):
            state = run(sampler, None, 1, first_key=i, state=state)
            path.append(np.asarray(state.position["matrix"]))
        paths.append(np.stack(path))
        lasts.append(state)
    # Nine positions count; the last becomes their average, from which one can tell what it was.
    averaged, cosine = paths
    last = 9 * averaged[17] - averaged[9:17].sum(0)
    np.testing.assert_array_equal(averaged[17], lasts[0].average["matrix"])
    lengths = [np.linalg.norm(last - averaged[16]), np.linalg.norm(cosine[17] - cosine[16])]
    longest = np.max(np.linalg.norm(np.diff(averaged[:17], axis=0), axis=(1, 2)))
    assert 0.6 * longest > lengths[0] > 5 * lengths[1] > 0
    assert lengths[0] == pytest.approx(np.linalg.norm(averaged[16] - averaged[15]), rel=0.2)
    # A chain that can settle explores with noise, and averages nothing.
    still, plain = (roam_family(cycle_length=4000, averaging=part).bind(None, quartic_posterior()) for part in (1, 0))
    jax.tree.map(np.testing.assert_array_equal, *(run(one, random_tree(6), 3).position for one in (still, plain)))


@pytest.mark.parametrize(("num_data", "averaging"), [(55, 0.3), (56, 0.0)])
def test_by_default_a_network_with_more_parameters_than_examples_is_averaged(num_data, averaging):
    posterior = dataclasses.replace(quartic_posterior(), num_data=num_data)
    settings = {"cycle_length": 20, "temperature": 0.0}
    samplers = [roam_family(**settings, **more).bind(None, posterior) for more in ({}, {"averaging": averaging})]
    by_default, given = (run(sampler, random_tree(6), 18) for sampler in samplers)
    jax.tree.map(np.testing.assert_array_equal, by_default, given)
    assert (by_default.average is not None) == (averaging > 0)
    # A density without data cannot be overfitted.
    density = Posterior.from_log_density(lambda params: -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)))
    assert roam_family(**settings).bind(None, density).init(jax.random.key(0), random_tree(6)).average is None


@pytest.mark.parametrize("averaging", [0.0, 0.4])
def test_chains_side_by_side_are_chains_alone_and_a_run_resumes(averaging, tmp_path):
    family = roam_family(cycle_length=10, exploration_ratio=0.6, draws_per_cycle=2, averaging=averaging)
    sampler = family.bind(random_weights(), quartic_posterior())
    settings = {"data": DATA, "batch_size": 10}
    pair = roamax.sample(jax.random.key(1), sampler, random_tree(4), num_samples=6, num_chains=2, **settings)
    alone = roamax.sample(jax.random.key(1), sampler, random_tree(4), num_samples=6, **settings)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[:1], b, rtol=1e-4, atol=1e-5), pair.positions, alone.positions
    )
    for count in (2, 6):
        resumed = roamax.sample(jax.random.key(1), sampler, random_tree(4), num_samples=count, out=tmp_path, **settings)
    jax.tree.map(np.testing.assert_array_equal, resumed.positions, alone.positions)


@pytest.mark.usefixtures("float64")
def test_double_precision_is_kept():
    position = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), random_tree(5))
    sampler = roam_family(cycle_length=10).bind(random_weights(), quartic_posterior())
    state = run(sampler, position, 12)
    assert {leaf.dtype for leaf in jax.tree.leaves(state._replace(step=0.0)) if hasattr(leaf, "dtype")} == {
        jnp.dtype("float64")
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cycle_length": 1}, "cycle_length"),
        ({"cycle_length": 10, "exploration_ratio": 0.0}, "exploration_ratio"),
        ({"cycle_length": 10, "exploration_ratio": 0.99}, "exploration_ratio"),
        ({"cycle_length": 10, "temperature": -1.0}, "temperature"),
        ({"cycle_length": 10, "averaging": 1.5}, "averaging"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(InputError, match=words):
        roam(quartic_posterior(), None, **settings)


def test_the_default_has_the_weights_that_ship_and_weights_may_come_from_a_file(tmp_path):
    shipped = _network.checksum(roamax.pretrained.load("roam").meta_params)
    assert roam(quartic_posterior(), cycle_length=10).settings["weights"] == shipped
    assert by_name(400, 4).settings["weights"] == shipped
    assert roam(quartic_posterior(), None, cycle_length=10).settings["weights"] is None
    weights, path = random_weights(), tmp_path / "weights.safetensors"
    named = {name.replace("/", "."): np.asarray(leaf) for name, leaf in trees.named_leaves(weights).items()}
    files.write_bytes(path, files.pack_tensors(named))
    given, read = (roam(quartic_posterior(), source, cycle_length=10).settings for source in (weights, path))
    assert given == read
    assert given["weights"] is not None


def by_name(num_steps, num_samples, num_data=NUM_DATA, **more):
    posterior = dataclasses.replace(quartic_posterior(), num_data=num_data)
    more = {"init": lambda key: random_tree(0), "batch_size": None, **more}
    return named_sampler("roam", posterior, num_steps=num_steps, num_samples=num_samples, **more)


def test_nothing_has_to_be_chosen_by_name():
    # As many cycles as can have 2,000 steps each, and as many draws as were asked for.
    for steps, length, draws in ((400, 400, 10), (2_000, 2_000, 10), (10_000, 2_000, 2), (50_000, 5_000, 1)):
        sampler = by_name(steps, 10)
        assert (sampler.settings["cycle_length"], sampler.settings["draws_per_cycle"]) == (length, draws)
        kept = [step for step in range(1, steps + 1) if sampler.collect(step)]
        assert (len(kept), kept[-1]) == (10, steps)
    for steps in (1, 8, 12, 20):  # However few steps there are, a cycle explores and samples.
        assert by_name(steps, 4).collect is not None
    with pytest.raises(InputError, match="`learning_rate` must not be given for roam"):
        by_name(400, 4, learning_rate=0.1)
    # With more data this chain does not reach equilibrium, and starts anew.
    assert by_name(50_000, 10, 5_000, batch_size=50).settings["cycles_per_start"] == 1
    assert by_name(50_000, 10, 5_000, batch_size=50, options={"cycle_length": 100}).settings["cycles_per_start"] is None


def test_a_start_by_name_lasts_ten_epochs_and_there_is_at_most_one_per_draw():
    def cycles(num_steps, num_data, name="roam", draws=10, parameters=90_000, regression=False):
        return RECORDS[name].cycles(Run(num_steps, draws, num_data, 128, parameters, regression))

    one = {"cycle_length": 5000, "cycles_per_start": 1}
    assert cycles(50_000, 50_000) == one
    assert cycles(192_000, 50_000) == {"cycle_length": 19_200, "cycles_per_start": 1}
    # Two starts of 3,906 steps fit into 10,000.
    assert cycles(10_000, 50_000) == {"cycle_length": 2000, "draws_per_cycle": 2, "cycles_per_start": 3}
    assert cycles(7_000, 50_000) == {"cycle_length": 3500, "draws_per_cycle": 5}
    # Ten epochs of 12,800 examples are 1,000 steps; a start takes 200 at least, in regression 2,000, and 5,000 at most.
    assert cycles(10_000, 12_800) == {"cycle_length": 1000, "cycles_per_start": 1}
    assert cycles(2_000, 5_000) == {"cycle_length": 400, "draws_per_cycle": 2, "cycles_per_start": 1}
    assert cycles(1_000, 500) == {"cycle_length": 200, "draws_per_cycle": 2, "cycles_per_start": 1}
    assert cycles(10_000, 500, regression=True) == {"cycle_length": 2000, "draws_per_cycle": 2, "cycles_per_start": 1}
    # Cycles are as near to that as the number of draws allows.
    assert cycles(2_000, 2_000, draws=11) == {"cycle_length": 181, "cycles_per_start": 2}
    assert cycles(3_000, 1_024, draws=25) == {"cycle_length": 120, "cycles_per_start": 2}
    # However long or short, a run has cycles.
    assert cycles(10**400, 500)["cycle_length"] == 10**399
    assert cycles(0, 500, "cyclical") == cycles(0, 500) == {"cycle_length": 5}
    assert cycles(10_000, 10**6) == {"cycle_length": 2000, "draws_per_cycle": 2, "cycles_per_start": 3}
    assert "cycles_per_start" not in cycles(50_000, 50_000, "cyclical")
    # A chain that reaches equilibrium in long cycles has them.
    assert cycles(10_000, 500, parameters=15) == {"cycle_length": 2000, "draws_per_cycle": 2}


def test_it_is_a_method_of_experiments_in_whole_cycles():
    task, problem = demo_methods.problem(0).task, next(iter(CPU.values()))
    made = method("roam", problem, task, {})
    assert problem.steps % made.sampler.settings["cycle_length"] == 0
    cycles = made.num_samples // made.sampler.settings["draws_per_cycle"]
    assert made.burn_in + cycles * made.sampler.settings["cycle_length"] == problem.steps
    assert made.sampler.settings["cycle_length"] == problem.thinning + problem.burn_in // problem.draws
    assert made.sampler.settings["weights"] is not None


def test_the_native_flat_steps_are_those_by_products_alone_and_in_chains(monkeypatch):
    if not native.has_function(_flat.FUNCTION, _kernel.SOURCE):
        pytest.skip("there is no C++ compiler")
    shapes = {"wide": (13, 50), "tall": (130, 37), "filter": (3, 3, 2, 20), "row": (1, 7), "bias": (5,), "none": (0, 3)}
    rng = np.random.default_rng(0)
    chains = {name: jnp.asarray(rng.standard_normal((3, *shape)), jnp.float32) for name, shape in shapes.items()}
    found = jax.jit(jax.vmap(lambda moves: _flat.flattened(moves, 16)))(chains)
    first = jax.tree.map(lambda x: x[0], chains)
    alone = _flat.flattened(first, 16)
    slope = jax.jit(lambda x: jax.jvp(lambda moves: _flat.flattened(moves, 16), (x,), (x,))[1])(first)
    broken = _flat.flattened(first | {"tall": first["tall"].at[3, 4].set(jnp.nan), "wide": 0 * first["wide"]}, 16)
    monkeypatch.setattr(_flat, "has_function", lambda *_: False)
    expected = jax.jit(jax.vmap(lambda moves: _flat.flattened(moves, 16)))(chains)
    for name in shapes:
        np.testing.assert_allclose(found[name], expected[name], atol=5e-5)
        np.testing.assert_allclose(alone[name], expected[name][0], atol=5e-5)
        # A step that is twice as long is twice as long when it is flat.
        np.testing.assert_allclose(slope[name], expected[name][0], atol=1e-3)
    assert not np.array_equal(found["tall"], expected["tall"])
    assert np.isnan(broken["tall"]).all()
    assert not np.any(broken["wide"])
    values = np.linalg.svd(found["wide"][0], compute_uv=False)
    assert values.max() / values.min() < 2
