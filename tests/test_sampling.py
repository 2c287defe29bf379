"""The runner: where batches come from, what it keeps, when it stops."""

import functools
import io
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.linen import initializers

import roamax
from roamax.errors import DivergenceError, FileError, InputError
from roamax.sampling import loop, runner
from roamax.sampling.batches import batch_source
from roamax.sampling.chains import chain_keys
from targets import linear_regression

TARGET = linear_regression(num_data=50)
START = {"theta": jnp.zeros(3)}


def sghmc():
    return roamax.sghmc(TARGET.posterior, step_size=0.02, friction=1.0)


def run(data=TARGET.data, sampler=None, **options):
    settings = {"batch_size": 8, "num_samples": 6, "burn_in": 20, "thinning": 5} | options
    return roamax.sample(jax.random.key(0), sampler or sghmc(), START, data, **settings)


def rows_seen(source, steps, num_chains=1):
    """The rows that a source over `np.arange` gives each chain at each step."""
    keys = jax.random.split(jax.random.key(1), num_chains)
    seen = []
    for step in range(steps):
        window = source.window(step, keys)
        assert window.start <= step < window.stop
        own = jax.vmap(
            lambda per_chain, key, w=window, s=step: source.read(
                w.shared, per_chain, key, jnp.int32(s), jnp.int32(w.start)
            )
        )(window.per_chain, keys)
        seen.append(np.asarray(own))
    return np.stack(seen, axis=1)


def test_shuffled_epochs_see_every_example_once_and_each_chain_in_its_own_order():
    rows = rows_seen(batch_source(np.arange(20), 5, 12), 12, num_chains=2)
    for chain in rows:
        for epoch in range(3):
            assert sorted(chain[epoch * 4 : epoch * 4 + 4].ravel()) == list(range(20))
        assert not np.array_equal(chain[:4], chain[4:8])
    assert not np.array_equal(rows[0], rows[1])


def test_a_sampler_that_sweeps_runs_through_an_epochs_batches_and_back():
    def step(key, state, batch):
        return state._replace(position=batch, step=state.step + 1), roamax.Info(jnp.zeros(()))

    sweeping = sghmc()._replace(step=step, sweeps=True, posterior=None)
    options = {"batch_size": 5, "num_samples": 24, "burn_in": 0, "thinning": 1, "num_chains": 2}
    seen = roamax.sample(jax.random.key(0), sweeping, jnp.zeros(5), jnp.arange(20.0), **options).positions
    for chain in seen:
        for first in (0, 8, 16):
            there, back = chain[first : first + 4], chain[first + 4 : first + 8]
            assert sorted(there.ravel()) == list(range(20))
            np.testing.assert_array_equal(back, there[::-1])
        assert not np.array_equal(chain[:4], chain[8:12])
    with pytest.raises(roamax.errors.InputError, match="`replacement` must be False"):
        run(sampler=sweeping, replacement=True)


def test_replacement_draws_uniformly():
    rows = rows_seen(batch_source(np.arange(10), 5, 400, replacement=True), 400)
    counts = np.bincount(rows.ravel(), minlength=10)
    assert abs(counts / 200 - 1).max() < 0.3
    assert any(len(set(batch)) < 5 for batch in rows[0])


@pytest.mark.parametrize("replacement", [False, True])
def test_mapped_files_give_the_batches_that_arrays_give(tmp_path, replacement):
    x, y = TARGET.data
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=x.shape)
    mapped[:] = x
    streamed = run((mapped, np.asarray(y)), replacement=replacement, num_chains=2)
    direct = run(replacement=replacement, num_chains=2)
    np.testing.assert_array_equal(streamed.positions["theta"], direct.positions["theta"])


def test_a_function_of_the_step_and_an_iterator_make_batches(tmp_path):
    def batch(step):
        rows = np.random.default_rng(step).integers(0, 50, 8)
        return jax.tree.map(lambda a: np.asarray(a)[rows], TARGET.data)

    from_function = run(batch, batch_size=None)
    from_iterator = run((batch(step) for step in range(1000)), batch_size=None, out=tmp_path / "run")
    np.testing.assert_array_equal(from_function.positions["theta"], from_iterator.positions["theta"])
    with pytest.warns(UserWarning, match="cannot be resumed exactly"):
        run((batch(step) for step in range(1000)), batch_size=None, out=tmp_path / "run", num_samples=8)


def test_draws_are_taken_after_burn_in_and_thinned():
    every = run(burn_in=0, thinning=1, num_samples=50)
    some = run()
    assert some.steps == [25, 30, 35, 40, 45, 50]
    np.testing.assert_array_equal(some.positions["theta"][0], every.positions["theta"][0, np.asarray(some.steps) - 1])


def test_a_run_keeps_the_time_of_its_steps_without_compilation(tmp_path, monkeypatch):
    advance, seconds = runner.Chains.advance, [0.0]

    def busy(chains, step, stop):
        """The first segment takes a second, as if it compiled, and each other one a millisecond."""
        seconds.append(seconds[-1] + (1.0 if step == 0 else 1e-3))
        return advance(chains, step, stop)

    monkeypatch.setattr(runner.Chains, "advance", busy)
    for clock in ("process_time", "monotonic"):
        monkeypatch.setattr(time, clock, lambda: seconds[-1])
    run(out=tmp_path / "run")
    for taken in (roamax.runs.cpu_seconds_taken, roamax.runs.seconds_taken):
        assert taken(tmp_path / "run" / "state") == pytest.approx(seconds[-1] - 1.0)


def test_samplers_decide_which_steps_may_be_draws():
    cycle = {"step_size": 0.01, "friction": 1.0, "cycle_length": 10, "exploration_ratio": 0.8}
    cyclical, twice = (roamax.cyclical(TARGET.posterior, **cycle, draws_per_cycle=draws) for draws in (1, 2))
    assert run(sampler=cyclical, thinning=1, burn_in=10, num_samples=3).steps == [20, 30, 40]
    assert run(sampler=cyclical, thinning=1, burn_in=9, num_samples=1).steps == [10]
    assert run(sampler=twice, thinning=1, burn_in=0, num_samples=4).steps == [9, 10, 19, 20]
    ensemble = roamax.ensemble(TARGET.posterior, member_steps=7, init=lambda key: START)
    assert run(sampler=ensemble, thinning=1, burn_in=0, num_samples=3).steps == [7, 14, 21]
    adapting = roamax.hmc(TARGET.posterior, adaptation_steps=4)
    assert run(sampler=adapting, batch_size=None, thinning=1, burn_in=0, num_samples=2).steps == [5, 6]


def test_any_sampler_with_a_step_size_runs_in_cycles():
    def cycles(kernel, **more):
        return roamax.cyclical(TARGET.posterior, step_size=1e-3, cycle_length=10, kernel=kernel, **more)

    drawing = {"thinning": 1, "burn_in": 0, "num_samples": 2}
    named, given = (run(sampler=cycles(kernel), **drawing) for kernel in ("sgld", roamax.sgld))
    np.testing.assert_array_equal(named.positions["theta"], given.positions["theta"])
    learned = cycles(functools.partial(roamax.l2e, meta_params="pretrained"), friction=0.1)
    assert learned.settings["kernel"]["name"] == "l2e"
    assert run(sampler=learned, **drawing).steps == [10, 20]


def test_ensemble_members_start_anew():
    sampler = roamax.ensemble(
        TARGET.posterior, member_steps=1, learning_rate=1e-9, init=lambda key: {"theta": jax.random.normal(key, (3,))}
    )
    theta = run(sampler=sampler, thinning=1, burn_in=0, num_samples=4).positions["theta"][0]
    assert np.abs(theta[0]).max() < 1e-3
    assert np.abs(np.diff(theta, axis=0)).min() > 1e-3


def test_the_number_of_chains_does_not_change_a_chain():
    three, one = run(num_chains=3).positions["theta"], run().positions["theta"]
    np.testing.assert_allclose(three[0], one[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(three[0], three[1], atol=1e-2)


def test_chains_resume_from_their_own_last_draws():
    before = run(num_chains=2)
    sampler = sghmc()
    frozen = sampler._replace(step=lambda key, state, batch: (state, roamax.Info(jnp.zeros(()))))
    options = {"batch_size": 8, "num_samples": 1, "num_chains": 2}
    after = roamax.sample(jax.random.key(1), frozen, before, TARGET.data, **options)
    np.testing.assert_array_equal(after.positions["theta"][:, 0], before.positions["theta"][:, -1])
    with pytest.raises(InputError, match="`num_chains` must be that of the draws to resume from, 2; got 3"):
        roamax.sample(jax.random.key(1), frozen, before, TARGET.data, **options | {"num_chains": 3})


def test_however_a_run_is_cut_it_compiles_once_and_gives_the_same_draws(monkeypatch):
    sampler = sghmc()
    whole = run(sampler=sampler)
    # Each segment looks too slow, so none is longer than the first.
    monkeypatch.setattr(runner, "SEGMENT_SECONDS", -1.0)
    cut = run(sampler=sampler)
    np.testing.assert_array_equal(whole.positions["theta"], cut.positions["theta"])
    source = batch_source(TARGET.data, 8, 50)
    assert loop.segment(sampler.step, source.read, 1)._cache_size() == 1


def test_a_diverging_chain_is_named_and_its_draws_are_kept():
    explode = roamax.sgld(TARGET.posterior, step_size=lambda step: jnp.where(step < 33, 1e-3, 1e30))
    said = r"chain 0 diverged: its energy was not finite at step 34 \(inf\)"
    with pytest.raises(DivergenceError, match=said) as caught:
        run(sampler=explode)
    assert caught.value.draws.steps == [25, 30]
    assert np.isfinite(caught.value.draws.positions["theta"]).all()


def test_a_parameter_that_no_energy_sees_is_watched_too():
    posterior = roamax.Posterior(
        lambda params, batch: jnp.zeros(batch[1].shape), lambda params: -jnp.sum(params["theta"]), 50
    )
    explode = roamax.sgld(posterior, step_size=lambda step: jnp.where(step < 24, 1e-3, jnp.inf), temperature=0.0)
    with pytest.raises(DivergenceError, match=r"chain 0 diverged: its 'theta' was not finite after step 25"):
        run(sampler=explode)


def test_a_label_outside_the_classes_stops_the_chain():
    def apply(params, x):
        return x @ params["theta"]

    posterior = roamax.Posterior(roamax.categorical(apply), roamax.priors.gaussian(variance=1.0), 50)
    x, _ = TARGET.data
    labels = jnp.arange(50) % 4
    sampler = roamax.sgld(posterior, step_size=1e-3)
    with pytest.raises(DivergenceError, match="labels"):
        roamax.sample(
            jax.random.key(0), sampler, {"theta": jnp.zeros((3, 3))}, (x, labels), batch_size=10, num_samples=5
        )


def test_predictions_average_over_draws_and_do_not_depend_on_the_batch_size():
    draws = run(num_chains=2)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(10, 3)), jnp.float32)

    def logits(params, x):
        score = x @ params["theta"]
        return jnp.stack([score, -score, 0 * score], axis=1)

    by_hand = np.mean([jax.nn.softmax(logits(params, x)) for params in draws], axis=0)
    np.testing.assert_allclose(roamax.predict(logits, draws, x), by_hand, rtol=1e-5)
    np.testing.assert_allclose(roamax.predict(logits, draws, x, batch_size=4), by_hand, rtol=1e-5)
    log_probs = roamax.predict_draws(logits, draws, x, batch_size=3)
    np.testing.assert_allclose(np.exp(log_probs).mean(axis=0), by_hand, rtol=1e-5)

    def normal(params, x):
        return x @ params["theta"], jnp.asarray(0.5)

    mean, std = roamax.predict(normal, draws, x, batch_size=4)
    means = np.stack([normal(params, x)[0] for params in draws])
    np.testing.assert_allclose(mean, means.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(0.25 + means.var(axis=0)), rtol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
def test_the_predicted_deviation_survives_targets_far_from_zero(offset):
    shifts = np.asarray([0.0, 0.5, -0.5, 1.0])

    def normal(params, x):
        return offset + params["shift"] + 0 * x, jnp.asarray(0.3)

    _, std = roamax.predict(normal, [{"shift": jnp.float32(shift)} for shift in shifts], jnp.zeros(3))
    np.testing.assert_allclose(std, np.sqrt(0.09 + shifts.var()), rtol=1e-5)


def test_draws_by_index_and_by_iteration():
    draws = run(num_chains=2)
    assert (draws.num_chains, draws.num_samples, len(draws)) == (2, 6, 12)
    np.testing.assert_array_equal(draws[1, 3]["theta"], draws.positions["theta"][1, 3])
    again = roamax.Draws.from_positions(draws.positions)
    for a, b in zip(draws, again, strict=True):
        np.testing.assert_array_equal(a["theta"], b["theta"])


def test_draws_are_cut_and_concatenated_with_their_statistics(tmp_path):
    draws = run(num_chains=2)
    theta, energy = draws.positions["theta"], draws.statistics.energy
    np.testing.assert_array_equal(draws[0, -1]["theta"], theta[0, 5])
    part = draws[1, 2:5]
    np.testing.assert_array_equal(part.positions["theta"], theta[1:, 2:5])
    np.testing.assert_array_equal(part.statistics.energy, energy[1:, 2:5])
    assert part.steps == part.statistics.steps.tolist() == [35, 40, 45]
    longer = roamax.Draws.concatenate([draws[:, :2], draws[:, 2:]])
    wider = roamax.Draws.concatenate([draws[1:], draws[:1]], along="chains")
    assert longer.steps[:3] == [25, 30, 30 + 35]
    assert wider.burn_in_statistics.energy.shape == (2, 24)
    np.testing.assert_array_equal(longer.positions["theta"], theta)
    np.testing.assert_array_equal(wider.positions["theta"], theta[::-1])
    np.testing.assert_array_equal(wider.statistics.energy, energy[::-1])
    wider.save(tmp_path)
    np.testing.assert_array_equal(roamax.Draws.load(tmp_path).statistics.energy, energy[::-1])
    with pytest.raises(IndexError, match=r"draws\[2, 0\] is outside of 2 chains and 6 draws"):
        draws[2, 0]
    with pytest.raises(InputError, match=r"`parts` must have the same number of chains; got \[1, 2\]"):
        roamax.Draws.concatenate([draws, draws[:1]])


def test_statistics_are_those_of_the_steps_and_resume_to_the_same_bits(tmp_path):
    posterior, (start, keys) = TARGET.posterior, (START, chain_keys(jax.random.key(0), 2))
    sampler = roamax.nuts(posterior, adaptation_steps=0, step_size=0.1)
    options = {"sampler": sampler, "batch_size": None, "num_chains": 2, "thinning": 2}
    whole = run(**options)
    # By hand: the second chain.
    state, told = sampler.init(keys.state[1], start), []
    for step in range(32):
        state, info = jax.jit(sampler.step)(jax.random.fold_in(keys.step[1], step), state, TARGET.data)
        told.append(info)
    statistics, before = whole.statistics, whole.burn_in_statistics
    assert statistics.steps.tolist() == whole.steps == [22, 24, 26, 28, 30, 32]
    assert before.steps.tolist() == list(range(1, 22))
    for name in ("energy", "acceptance", "divergent"):
        expected = np.asarray([getattr(info, name) for info in told])
        np.testing.assert_allclose(getattr(statistics, name)[1], expected[21::2], rtol=1e-3)
        np.testing.assert_allclose(getattr(before, name)[1], expected[:21], rtol=1e-3)
    assert statistics.acceptance.std() > 0

    run(**options | {"num_samples": 2}, out=tmp_path)
    log = tmp_path / "statistics.jsonl"
    log.write_text(log.read_text() + '{"step": 99, "ener')  # A line that was cut short.
    run(**options, out=tmp_path)
    loaded = roamax.Draws.load(tmp_path)
    for ours, theirs in ((loaded.statistics, statistics), (loaded.burn_in_statistics, before)):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    log.write_text("nonsense\n" + log.read_text())
    with pytest.raises(FileError, match="is damaged in line 1"):
        roamax.Draws.load(tmp_path)
    log.unlink()  # As in a folder of an earlier version.
    assert roamax.Draws.load(tmp_path).statistics is None


def test_arviz_takes_the_draws():
    arviz = pytest.importorskip("arviz")
    draws = run(num_chains=2, num_samples=40)
    likelihood = TARGET.posterior.log_likelihood
    found = draws.to_arviz(TARGET.data, log_likelihood=likelihood, predictive=lambda params, data: data[1])
    assert found.posterior["theta"].shape == (2, 40, 3)
    assert found.sample_stats["energy"].shape == found.sample_stats["diverging"].shape == (2, 40)
    assert found.warmup_sample_stats["energy"].shape == (2, 24)
    assert list(arviz.summary(found).columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Of forty draws, some weights are poor.
        assert np.isfinite(arviz.loo(found).elpd_loo)
    observed = np.asarray(found.observed_data["y"])
    np.testing.assert_array_equal(observed, TARGET.data[1])
    np.testing.assert_array_equal(found.posterior_predictive["y"][1, 3], observed)
    expected = likelihood({"theta": draws[1, 3]["theta"]}, TARGET.data)
    np.testing.assert_allclose(found.log_likelihood["y"][1, 3], expected, rtol=1e-5)
    with pytest.raises(InputError, match="`data` must be the pair"):
        draws.to_arviz(log_likelihood=likelihood)


def test_chains_spread_over_devices_are_the_same_chains():
    code = """
import io, sys
sys.path[:0] = sys.argv[1:]
import jax, numpy as np
from test_sampling import run
from roamax.sampling.chains import _groups
assert [group.size for group in _groups(5)] == [2, 3]
found = io.BytesIO()  # NumPy writes to files and buffers, not to pipes
np.save(found, run(num_chains=5).positions["theta"])
sys.stdout.buffer.write(found.getvalue())
"""
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    result = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "JAX_NUM_CPU_DEVICES": "2"})
    spread = np.load(io.BytesIO(result.stdout))
    np.testing.assert_allclose(spread, run(num_chains=5).positions["theta"], rtol=1e-4, atol=1e-5)


def test_as_many_inputs_at_once_as_fit_the_caches():
    seen = []

    @jax.jit
    def wide(params, x):
        seen.append(x.shape)
        # An array of 4 kB per input, and a larger one of the parameters alone.
        return jnp.tanh(x @ jnp.outer(params, params)[:1]).reshape(len(x), 2, -1).sum(axis=2)

    x = np.zeros((5000, 1))
    assert roamax.predict(wide, [jnp.ones(1000)], x).shape == (5000, 2)
    assert {shape[0] for shape in seen} == {2, 3, 1024}, "and not the 1048 that fit in 4 MiB"
    assert roamax.predict(lambda params, x: x @ params, [jnp.ones((1, 2))], x, batch_size=5000).shape == (5000, 2)
    with pytest.raises(InputError, match="`batch_size` must be a whole number >= 1; got 0"):
        roamax.predict(wide, [jnp.ones(1000)], x, batch_size=0)


@pytest.mark.optimized
def test_initial_positions_in_one_program_have_the_bits_of_single_operations():
    # Runs that began in an earlier version resume: constants are multiplied in the order of the code.
    draws = {"normal": initializers.variance_scaling(1.0, "fan_in", "normal"), "cut": initializers.lecun_normal()}
    keys = chain_keys(jax.random.key(0), 2).position

    def init(key):
        return {name: draw(key, (30, 20)) for name, draw in draws.items()}

    jax.tree.map(np.testing.assert_array_equal, runner._initial_positions(init, keys), jax.vmap(init)(keys))


def test_the_next_sampler_starts_without_compilation(caplog):
    keys, positions = chain_keys(jax.random.key(0), 2).state, {"a": jnp.ones((2, 3)), "b": jnp.ones((2, 5))}
    jax.vmap(sghmc().init)(keys, positions)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jax.vmap(sghmc().init)(keys, positions)
    assert not [record for record in caplog.records if "Finished XLA compilation" in record.getMessage()]


def test_a_function_that_cannot_be_hashed_draws_positions_too():
    class Init(dict):
        def __call__(self, key):
            return START

    drawn = runner._initial_positions(Init(), chain_keys(jax.random.key(0), 2).position)
    assert drawn["theta"].shape == (2, 3)
