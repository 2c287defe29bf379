"""The same seed gives the same bits, whatever else is different; another seed gives other noise everywhere."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from faults import jobs
from roamax import runs
from roamax.cli import main
from roamax.host import files
from roamax.meta.jobs import Job, draw_problem
from roamax.meta.worker import Worker
from roamax.sampling import runner
from test_meta import SMALL, TASKS, toy_family


def test_segments_progress_and_folder_do_not_change_a_bit(tmp_path, monkeypatch):
    plain = jobs.sample(None, num_samples=5).positions["theta"]
    shown = jobs.sample(None, num_samples=5, progress=True).positions["theta"]
    kept = jobs.sample(tmp_path / "run", num_samples=5).positions["theta"]
    monkeypatch.setattr(runner, "SEGMENT_SECONDS", -1.0)
    cut = jobs.sample(tmp_path / "cut", num_samples=5).positions["theta"]
    for other in (shown, kept, cut):
        np.testing.assert_array_equal(other, plain)


def test_progress_does_not_change_a_bit_of_training(tmp_path, monkeypatch):
    jobs.prepare_training(monkeypatch.setattr)
    jobs.train(tmp_path / "plain")
    jobs.train(tmp_path / "shown", show=True)
    jobs.assert_same_bits(jobs.train_bits(tmp_path / "shown"), jobs.train_bits(tmp_path / "plain"))


def test_another_seed_is_other_noise_in_every_chain():
    """On a flat posterior positions are sums of noise alone."""
    flat = roamax.Posterior(lambda theta, batch: jnp.zeros(batch.shape), lambda theta: jnp.zeros(()), 1)
    sampler = roamax.sgld(flat, step_size=0.5)
    chains = []
    for seed in (0, 1):
        draws = roamax.sample(jax.random.key(seed), sampler, jnp.zeros(100), jnp.zeros(1), num_samples=20, num_chains=3)
        chains += list(np.diff(draws.positions, axis=1, prepend=0.0))
    steps = [step for chain in chains for step in chain]
    correlations = np.corrcoef(np.stack(steps))
    np.fill_diagonal(correlations, 0)
    # 7140 pairs of 100 numbers: five standard errors.
    assert np.abs(correlations).max() < 0.5
    assert np.std(steps) == pytest.approx(1, rel=0.05)


def test_another_seed_is_other_noise_in_every_task(monkeypatch):
    jobs.prepare_training(monkeypatch.setattr)
    keys = set()
    for seed, step, pair in itertools.product(range(4), range(4), range(4)):
        key = jax.random.fold_in(jax.random.key(seed), step)
        keys.add(np.asarray(draw_problem(key, jnp.int32(pair % 2), jnp.int32(pair), jnp.int32(5))[1]).tobytes())
    assert len(keys) == 4**3
    worker, weights = Worker(SMALL, TASKS), toy_family(0.03).init(jax.random.key(0))
    losses = {
        worker.run(weights, Job(1, task, np.asarray(jax.random.key_data(jax.random.key(seed))), 1)).loss
        for task in range(2)
        for seed in range(3)
    }
    assert len(losses) == 6


def test_versions_and_seed_are_in_every_result(tmp_path, monkeypatch):
    jobs.prepare_training(monkeypatch.setattr)
    jobs.train(tmp_path / "training")
    out = tmp_path / "run"
    words = ["--options", "hidden=[4]", "--num-samples", "1", "--burn-in", "1", "--thinning", "1", "--seed", "3"]
    main(["sample", "--out", str(out), *words, "--quiet"])
    main(["evaluate", str(out), "--quiet"])
    seeds = {tmp_path / "training" / "results.json": 0, out / "results.json": 3, out / "metrics.json": 3}
    for path, seed in seeds.items():
        result = files.read_json(path)
        assert result["seed"] == seed, path
        assert {"python", "roamax", "jax", "jaxlib", "numpy"} <= result["versions"].keys(), path


def test_the_command_of_a_result_names_no_folder_above_the_working_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["experiment", "transfer", "--methods", "roam, tuned", "--out", str(tmp_path / "runs" / "a")]
    monkeypatch.setattr("sys.argv", ["roamax", *words])
    assert runs.provenance(0)["command"] == "roamax experiment transfer --methods 'roam, tuned' --out runs/a"
