"""Meta-training: objectives against plain sums, estimators against known gradients, the trainer against a kill."""

import dataclasses
import functools
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roamax import meta, pretrained, priors, runs
from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.likelihoods import categorical
from roamax.meta import (
    PRESETS,
    Stage,
    TrainConfig,
    estimators,
    folder,
    inner,
    log,
    objectives,
    rescaling,
    trainer,
    worker,
)
from roamax.meta.config import SamplerName, from_json, to_json
from roamax.meta.families import make_family
from roamax.meta.jobs import Job, Result, eligible
from roamax.meta.outer import Slot, estimate, new_slots, outer_optimizer
from roamax.meta.worker import Worker
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.tasks import Task, TaskDistribution
from roamax.types import Info, LearnedSampler, Sampler


def apply(params, x):
    return x @ params["w"] + params["b"][None, :]


@functools.cache
def initialiser(dtype):
    return lambda key: {"w": 0.1 * jax.random.normal(key, (4, 3), dtype), "b": jnp.zeros(3, dtype)}


LIKELIHOOD = categorical(apply)
PRIOR = priors.gaussian(variance=1.0)


def linear_task(name="blobs", num_data=96, dtype=jnp.float32, seed=0):
    """Logistic regression on three blobs."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 2 * num_data)
    x = rng.normal(size=(2 * num_data, 4)) + 2 * np.eye(3, 4)[y]
    x, y = jnp.asarray(x, dtype), jnp.asarray(y, jnp.int32)
    train, held_out = (x[:num_data], y[:num_data]), (x[num_data:], y[num_data:])
    return Task(name, Posterior(LIKELIHOOD, PRIOR, num_data), initialiser(dtype), apply, train, held_out, held_out, 16)


class ToyState(NamedTuple):
    position: Any
    momentum: Any
    step: jax.Array


@functools.cache
def toy_family(step_size):
    """Noisy gradient descent whose log step size and log momentum decay are learned: it compiles in no time."""

    def bind(meta_params, posterior):
        def init(key, position):
            return ToyState(position, trees.zeros_like(position), jnp.int32(0))

        def step(key, state, batch):
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            rate, decay = jnp.exp(meta_params["layer0"]["w"])
            noise = trees.normal_like(key, gradient)
            momentum = trees.linear((jnp.exp(-decay), state.momentum), (-rate * step_size, gradient), (1e-2, noise))
            return ToyState(trees.linear((1.0, state.position), (1.0, momentum)), momentum, state.step + 1), Info(
                energy
            )

        return Sampler(init, step)

    return LearnedSampler(lambda key: {"layer0": {"w": 0.1 * jax.random.normal(key, (2,)) - 7}}, bind)


TASKS = TaskDistribution("blobs", (linear_task("blobs/a"), linear_task("blobs/b", seed=1)))
SMALL = TrainConfig(
    stages=(
        Stage("tbptt", 4, 20, 2, 5, learning_rate=0.05),
        Stage("es", 4, 20, 2, 5, pairs=2, tasks=2, learning_rate=0.05),
        Stage("pes", 6, 20, 2, 5, truncation=5, pairs=2, learning_rate=0.05),
    ),
    step_size=0.03,
    friction=0.1,
    output_scale=0.1,
    held_out=32,
    valid_every=2,
    valid_problems=2,
    valid_steps=20,
    valid_samples=2,
    valid_thinning=5,
)


def use_toy_family(setattr=setattr):
    """Meta-train the toy family, whatever the config says."""
    for module in (worker, trainer):
        setattr(module, "make_family", lambda config, step_size: toy_family(step_size))


@pytest.fixture
def toy(monkeypatch):
    use_toy_family(monkeypatch.setattr)


# Objectives


def draw_of(position, task):
    positions = jax.tree.map(lambda leaf: leaf[None], position)
    return objectives.Draw(task.posterior, positions, task.valid, task.train)


@pytest.mark.parametrize("name", ["bma", "cross_entropy"])
def test_objective_is_that_of_all_draws_together(name):
    task = TASKS.tasks[0]
    objective = getattr(objectives, name)()
    positions = [task.init(jax.random.key(i)) for i in range(5)]
    score = objective.init(len(task.valid[1]), jnp.float32)
    for k, position in enumerate(positions, start=1):
        score = objective.add(score, jnp.float32(1 / k), draw_of(position, task))
    log_density = np.stack([np.asarray(LIKELIHOOD(position, task.valid), np.float64) for position in positions])
    plain = {"bma": -np.log(np.exp(log_density).mean(0)).mean(), "cross_entropy": -log_density.mean()}[name]
    np.testing.assert_allclose(objective.loss(score), plain, rtol=1e-5)


def test_bma_of_parallel_chains_averages_their_probabilities():
    task = TASKS.tasks[0]
    positions = [task.init(jax.random.key(i)) for i in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *positions)
    objective = objectives.bma()
    draw = objectives.Draw(task.posterior, stacked, task.valid, task.train)
    score = objective.add(objective.init(len(task.valid[1]), jnp.float32), jnp.float32(1), draw)
    log_density = np.stack([np.asarray(LIKELIHOOD(position, task.valid), np.float64) for position in positions])
    np.testing.assert_allclose(objective.loss(score), -np.log(np.exp(log_density).mean(0)).mean(), rtol=1e-5)


def test_the_kl_objective_is_per_example():
    task = TASKS.tasks[0]
    positions = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(task.init(jax.random.key(i)) for i in range(2)))
    objective = objectives.kl()
    draw = objectives.Draw(task.posterior, positions, task.valid, task.train)
    score = objective.add(objective.init(len(task.valid[1]), jnp.float32), jnp.float32(1), draw)
    energies = [task.posterior.energy(trees.at(positions, i), task.train) for i in range(2)]
    np.testing.assert_allclose(objective.loss(score), np.mean(energies) / task.posterior.num_data, rtol=1e-5)


def test_stein_score_of_normal_draws_points_to_the_centre(float64):
    points = 2 + 0.5 * jax.random.normal(jax.random.key(0), (400, 2), jnp.float64)
    found = objectives.stein_score(points, bandwidth=1.0, ridge=0.01)
    exact = -(points - 2) / 0.25
    assert float(jnp.sum(found * exact) / jnp.sum(exact**2)) == pytest.approx(1, abs=0.1)
    assert np.corrcoef(np.ravel(found), np.ravel(exact))[0, 1] > 0.9


@pytest.mark.parametrize("scale", [1e-3, 0.5, 1e3])
def test_the_median_bandwidth_finds_the_score_at_any_scale(scale, float64):
    points = 2 + scale * jax.random.normal(jax.random.key(0), (400, 2), jnp.float64)
    exact = -(points - 2) / scale**2
    found = objectives.stein_score(points, bandwidth="median", ridge=0.01)
    assert float(jnp.sum(found * exact) / jnp.sum(exact**2)) == pytest.approx(1, abs=0.15)
    assert np.corrcoef(np.ravel(found), np.ravel(exact))[0, 1] > 0.9


def test_the_median_bandwidth_gives_two_chains_an_entropy_term(float64):
    """At the default of 100 there is next to none: about 1e-4 of what it is for a normal through both."""
    points = jnp.array([[-0.05], [0.05]], jnp.float64)
    exact = -np.ravel(points) / 0.05**2
    wide, median = (np.ravel(objectives.stein_score(points, h, ridge=0.01)) for h in (100.0, "median"))
    assert np.all(np.abs(wide / exact) < 1e-3)
    np.testing.assert_allclose(median / exact, 0.75, rtol=0.05)
    assert dataclasses.replace(SMALL, bandwidth="median").bandwidth == "median"
    with pytest.raises(InputError, match="`bandwidth` must be a finite number > 0, or median; got 'mean'"):
        dataclasses.replace(SMALL, bandwidth="mean")


def test_kl_gradient_of_a_normal_is_the_known_one(float64):
    """q = N(m, s^2) against N(0, 1): dKL/dm = m, dKL/ds = s - 1/s."""
    z = jax.random.normal(jax.random.key(1), (600, 1), jnp.float64)
    z = (z - z.mean()) / z.std()
    target = Posterior(lambda params, batch: jnp.zeros(len(batch)), lambda p: -0.5 * jnp.sum(p["t"] ** 2), 1)
    objective = objectives.kl(bandwidth=1.0)

    def loss(m, s):
        draw = objectives.Draw(target, {"t": m + s * z}, None, jnp.zeros((1, 1)))
        return objective.loss(objective.add(objective.init(1, jnp.float64), jnp.float64(1.0), draw))

    by_mean, by_scale = jax.grad(loss, (0, 1))(jnp.float64(0.7), jnp.float64(0.5))
    np.testing.assert_allclose(by_mean, 0.7, rtol=0.05)
    np.testing.assert_allclose(by_scale, 0.5 - 2.0, rtol=0.1)


# Inner loop


def toy_problem(task, memory=4, held_out=32):
    return inner.problem(toy_family(0.03), task, objectives.bma(), memory=memory, held_out=held_out)


def test_inner_loop_is_the_sampler_stepped_by_hand():
    task = TASKS.tasks[0]
    problem = toy_problem(task, memory=10, held_out=96)
    meta_params = problem.family.init(jax.random.key(5))
    key, data = jax.random.key(6), (task.train, task.valid)
    unroll = inner.unroll(problem, inner.Segment(burn_in=6, draws=3, thinning=4))
    start = inner.start(unroll, meta_params, key, data)
    carry, loss = inner.advance(unroll, meta_params, key, data, start)

    sampler = problem.family.bind(meta_params, task.posterior)
    step = jax.jit(sampler.step)
    _, batch_key, noise_key, *_ = jax.random.split(key, 6)
    batch_key, noise_key = (jax.random.split(key, 1)[0] for key in (batch_key, noise_key))
    state = jax.tree.map(lambda leaf: leaf[0], start.states)
    log_density = []
    for i in range(18):
        rows = np.asarray(jax.random.bits(jax.random.fold_in(batch_key, i), (16,))) % 96
        batch = jax.tree.map(lambda array, rows=rows: array[rows], task.train)
        state, _ = step(jax.random.fold_in(noise_key, i), state, batch)
        if i + 1 in (10, 14, 18):
            log_density.append(np.asarray(LIKELIHOOD(state.position, task.valid), np.float64))
    assert (int(carry.step), int(carry.draws)) == (18, 3)
    for found, expected in zip(jax.tree.leaves(carry.states.position), jax.tree.leaves(state.position), strict=True):
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, -np.log(np.exp(np.stack(log_density)).mean(0)).mean(), rtol=1e-4)


def test_rescaled_coordinates_are_those_of_the_same_posterior():
    task = TASKS.tasks[0]
    problem = toy_problem(task)._replace(rescale=5.0)
    meta_params, key, data = problem.family.init(jax.random.key(5)), jax.random.key(6), (task.train, task.valid)

    def init(key):
        return trees.normal_like(key, task.init(key))

    position = init(jax.random.key(2))
    posterior, there = rescaling.coordinates(task.posterior, 5.0, key, position)
    moved = there(position)
    ratios = [np.asarray(a / b) for a, b in zip(jax.tree.leaves(position), jax.tree.leaves(moved), strict=True)]
    assert len({float(ratio.flat[0]) for ratio in ratios}) == len(ratios), "each tensor has a factor of its own"
    for ratio in ratios:
        assert 1 / 5 <= ratio.min() <= ratio.max() <= 5
        np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-5)
    np.testing.assert_allclose(
        posterior.energy(moved, task.valid), task.posterior.energy(position, task.valid), rtol=1e-5
    )

    # Draws are predicted with in the coordinates that they were taken in: but for the toy's noise, nothing has changed.
    still = problem._replace(family=toy_family(1e-12), init=init)
    losses = []
    for one in (still, still._replace(rescale=1.0)):
        unroll = inner.unroll(one, inner.Segment(0, 1, 1))
        start = inner.start(unroll, meta_params, key, data)
        losses.append(inner.advance(unroll, meta_params, key, data, start)[1])
    np.testing.assert_allclose(*losses, rtol=2e-3)


def test_truncations_make_up_the_whole_unroll():
    task = TASKS.tasks[0]
    problem = toy_problem(task, memory=100)
    meta_params, key = problem.family.init(jax.random.key(5)), jax.random.key(6)
    data = (task.train, task.valid)
    whole = inner.unroll(problem, inner.Segment(0, 6, 5))
    _, loss = inner.advance(whole, meta_params, key, data, inner.start(whole, meta_params, key, data))
    parts = inner.unroll(problem, inner.Segment(0, 2, 5))
    carry = inner.start(parts, meta_params, key, data)
    for _ in range(3):
        carry, last = inner.advance(parts, meta_params, key, data, carry)
    np.testing.assert_allclose(last, loss, rtol=1e-5)


def test_memory_of_the_inner_loop_does_not_grow_with_its_length():
    task = TASKS.tasks[0]
    problem = toy_problem(task)
    meta_params, key, data = problem.family.init(jax.random.key(0)), jax.random.key(1), (task.train, task.valid)

    def peak(steps):
        unroll = inner.unroll(problem, inner.Segment(steps - 100, 10, 10))
        carry = inner.start(unroll, meta_params, key, data)
        compiled = inner.advance.lower(unroll, meta_params, key, data, carry).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # One flag a block says whether a draw follows it.
    assert peak(3000) <= peak(300) + 3000


def test_tasks_that_differ_in_data_alone_compile_once(toy):
    worker = Worker(dataclasses.replace(SMALL, held_out=31), TASKS)
    meta_params = toy_family(0.03).init(jax.random.key(0))
    key = np.asarray(jax.random.key_data(jax.random.key(1)))
    first, second = (worker.run(meta_params, Job(1, task, key, 1)) for task in (0, 1))
    assert first.compile_seconds > 0
    assert second.compile_seconds == 0
    assert first.loss != second.loss


# Estimators


def toy_unroll(matrix, target):
    """s <- A s + phi, loss |s - target|^2 / 2: quadratic in the phis of all truncations together, so that smoothing
    adds a constant and leaves the gradient as it is."""

    def advance(meta_params, key, data, carry):
        state = matrix @ carry + meta_params
        return state, 0.5 * jnp.sum((state - target) ** 2)

    return inner.Unroll(lambda meta_params, key, data: jnp.zeros(3), advance)


TOY = toy_unroll(jnp.asarray([[0.9, 0.3, 0.0], [-0.2, 0.8, 0.1], [0.0, 0.2, 0.7]]), jnp.asarray([1.0, -2.0, 0.5]))


def toy_gradient(meta_params, truncations):
    def mean_loss(meta_params):
        carry, total = TOY.start(meta_params, None, None), 0.0
        for _ in range(truncations):
            carry, loss = TOY.advance(meta_params, None, None, carry)
            total += loss / truncations
        return total

    return jax.grad(mean_loss)(meta_params)


def toy_engine(config):
    """What a worker does, on the toy."""

    @jax.jit
    def advance(meta_params, carry):
        return TOY.advance(meta_params, None, None, carry)

    def run(meta_params, jobs):
        results = []
        for job in jobs:
            stage = config.stages[job.stage]
            perturbed = estimators.get(stage.estimator).perturbed(meta_params, stage, job)
            carry = jnp.zeros(3) if job.carry is None else job.carry[0]
            carry, loss = advance(perturbed, carry)
            results.append(Result(float(loss), None, [carry] if job.truncation + 1 < stage.truncations else None))
        return results

    return run


@pytest.mark.parametrize(("estimator", "truncations"), [("es", 1), ("pes", 4), ("nres", 4)])
def test_evolution_strategies_are_unbiased(estimator, truncations):
    truncation = None if estimator == "es" else 10
    stage = Stage(estimator, 10**6, 10 * truncations, 1, 10, truncation=truncation, pairs=8, sigma=0.1)
    config = dataclasses.replace(SMALL, stages=(stage,), loss_ceiling=1e9)
    meta_params = jnp.asarray([0.3, -0.5, 0.2])
    run, slots, samples = toy_engine(config), new_slots(stage, 0), []
    for step in range(160):
        made = estimate(run, meta_params, config, ["toy"], jax.random.key(2), step, slots)
        slots = made.slots
        samples.append(np.asarray(made.gradient))
    # The first unrolls of staggered pairs are cut short: they are not a fair sample of an unroll's parts.
    samples = np.stack(samples[truncations:])
    exact = np.asarray(toy_gradient(meta_params, truncations))
    # Estimates within one unroll share noise: the error of the mean is taken from means over whole unrolls.
    blocks = samples[: len(samples) // truncations * truncations].reshape(-1, truncations, 3).mean(1)
    error = blocks.std(0) / math.sqrt(len(blocks))
    assert np.all(error < 0.25 * np.linalg.norm(exact))
    np.testing.assert_array_less(np.abs(blocks.mean(0) - exact), 4.5 * error)


def test_a_stage_changes_its_layers_only():
    meta_params, key = {"layer0": jnp.ones(3), "layer2": jnp.ones(2)}, jax.random.key(0)
    stage = Stage("es", 10, 10, 1, 10, sigma=0.1, layers="layer2")
    pair = [Job(0, 0, np.asarray(jax.random.key_data(key)), sign) for sign in (1, -1)]
    es = estimators.get("es")
    perturbed = es.perturbed(meta_params, stage, pair[0])
    gradient = es.gradient(meta_params, stage, pair, [Result(1.5), Result(0.5)], clip_norm=1.0)
    assert gradient is not None
    np.testing.assert_array_equal(perturbed["layer0"], meta_params["layer0"])
    np.testing.assert_array_equal(gradient["layer0"], 0)
    noise = perturbed["layer2"] - meta_params["layer2"]
    assert np.all(noise != 0)
    np.testing.assert_allclose(gradient["layer2"], noise / (2 * stage.sigma**2), rtol=1e-4)

    config = dataclasses.replace(SMALL, stages=(dataclasses.replace(stage, estimator="tbptt"),))

    def backpropagated(meta_params, jobs):
        return [Result(1.0, jax.tree.map(jnp.ones_like, meta_params)) for _ in jobs]

    made = estimate(backpropagated, meta_params, config, ["toy"], key, 0, new_slots(stage, 0))
    assert made.gradient is not None
    np.testing.assert_array_equal(made.gradient["layer0"], 0)
    assert np.all(made.gradient["layer2"] > 0)


OTHER_SAMPLERS = [pytest.param(name, marks=pytest.mark.slow) for name in get_args(SamplerName) if name != "l2e"]


@pytest.mark.parametrize("sampler", ["l2e", *OTHER_SAMPLERS])
def test_backpropagation_matches_finite_differences(sampler, float64):
    task = linear_task(dtype=jnp.float64)
    family = make_family(dataclasses.replace(SMALL, sampler=sampler), 0.003)
    problem = inner.problem(family, task, objectives.bma(), memory=4, held_out=32)
    meta_params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), problem.family.init(jax.random.key(3)))
    key, data = jax.random.key(4), (task.train, task.valid)
    unroll = inner.unroll(problem, inner.Segment(6, 3, 4), rematerialise=True)
    carry = inner.start(unroll, meta_params, key, data)
    tbptt = estimators.get("tbptt")
    _, _, gradient = tbptt.advance(unroll, meta_params, key, data, carry)
    for seed in range(3):
        direction = trees.normal_like(jax.random.key(seed), meta_params)
        ends = [
            float(tbptt.advance(unroll, trees.linear((1.0, meta_params), (h, direction)), key, data, carry)[1])
            for h in (1e-6, -1e-6)
        ]
        along = sum(jnp.sum(g * d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
        assert float(along) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


def test_a_diverged_unroll_counts_as_the_worst_loss_and_a_diverged_pair_not_at_all():
    stage = Stage("es", 100, 10, 1, 10, pairs=3, sigma=0.1)
    config = dataclasses.replace(SMALL, stages=(stage,), loss_ceiling=5.0)
    meta_params, slots = jnp.asarray([0.3, -0.5, 0.2]), new_slots(stage, 0)
    honest = toy_engine(config)

    def made(bad, loss=math.nan):
        def spoiled(meta_params, jobs):
            results = honest(meta_params, jobs)
            return [result._replace(loss=loss if i in bad else result.loss) for i, result in enumerate(results)]

        return estimate(spoiled, meta_params, config, ["toy"], jax.random.key(2), 0, slots)

    whole = made(set())
    for number in (2, 3):
        diverged, at_ceiling, beyond = made({number}), made({number}, 5.0), made({number}, 1e9)
        assert (diverged.bad, at_ceiling.bad, beyond.bad, whole.bad) == (1, 0, 0, 0)
        np.testing.assert_array_equal(diverged.gradient, at_ceiling.gradient)
        np.testing.assert_array_equal(beyond.gradient, at_ceiling.gradient)
        assert not np.array_equal(diverged.gradient, whole.gradient)
        assert diverged.loss == at_ceiling.loss

    alone = [np.asarray(made({i for i in range(6) if i // 2 != pair}).gradient) for pair in range(3)]
    without_second = made({2, 3})
    assert without_second.bad == 1
    np.testing.assert_allclose(without_second.gradient, (alone[0] + alone[2]) / 2, rtol=1e-5)
    none_left = made(set(range(6)))
    assert none_left.gradient is None
    assert none_left.bad == 3


def test_logarithms_of_losses_weigh_tasks_alike_and_refuse_negative_losses():
    stage = Stage("es", 100, 10, 1, 10, pairs=2, sigma=0.1, compared="log")
    config = dataclasses.replace(SMALL, stages=(stage,), loss_ceiling=1e9)
    honest = toy_engine(config)

    def gradient(factor):
        def run(meta_params, jobs):
            return [result._replace(loss=factor * result.loss) for result in honest(meta_params, jobs)]

        slots = new_slots(stage, 0)
        return estimate(run, jnp.asarray([0.3, -0.5, 0.2]), config, ["toy"], jax.random.key(2), 0, slots).gradient

    np.testing.assert_allclose(gradient(100.0), gradient(1.0), rtol=1e-5)
    with pytest.raises(InputError, match="compared"):
        gradient(-1.0)


def test_an_exploded_gradient_does_not_drown_the_others():
    stage = Stage("tbptt", 100, 10, 1, 10, pairs=2)
    config = dataclasses.replace(SMALL, stages=(stage,), clip_norm=0.5)

    def run(meta_params, jobs):
        return [Result(1.0, gradient) for gradient in (jnp.asarray([3e8, 4e8]), jnp.asarray([0.0, -0.2]))]

    made = estimate(run, jnp.zeros(2), config, ["toy"], jax.random.key(2), 0, new_slots(stage, 0))
    np.testing.assert_allclose(np.asarray(made.gradient), [0.3 / 2, (0.4 - 0.2) / 2], rtol=1e-5)


def test_a_pair_that_diverged_starts_a_new_unroll():
    stage = Stage("nres", 100, 40, 1, 10, truncation=10, pairs=1, sigma=0.1)
    config = dataclasses.replace(SMALL, stages=(stage,))
    honest = toy_engine(config)
    meta_params = jnp.zeros(3)
    first = estimate(honest, meta_params, config, ["toy"], jax.random.key(2), 0, new_slots(stage, 0))
    assert first.slots[0].start == 0
    assert len(first.slots[0].carries) == 2

    def broken(meta_params, jobs):
        return [result._replace(loss=math.inf) for result in honest(meta_params, jobs)]

    second = estimate(broken, meta_params, config, ["toy"], jax.random.key(2), 1, first.slots)
    assert second.slots == (Slot(2),)


# Outer optimizer


def test_the_outer_optimizer_is_adam_on_the_clipped_gradient():
    config = dataclasses.replace(SMALL, clip_norm=1.0, beta1=0.9, beta2=0.99)
    optimizer, rate = outer_optimizer(config, 1), config.stages[1].learning_rate
    params = np.asarray([0.5, -0.5])
    found, state = jnp.asarray(params, jnp.float32), optimizer.init(jnp.zeros(2))
    first, second = np.zeros(2), np.zeros(2)
    for step, gradient in enumerate(([300.0, 400.0], [0.1, -0.2], [0.0, 0.05]), start=1):
        found, state = optimizer.update(found, state, jnp.asarray(gradient))
        clipped = np.asarray(gradient) * min(1.0, 1.0 / np.linalg.norm(gradient))
        first, second = 0.9 * first + 0.1 * clipped, 0.99 * second + 0.01 * clipped**2
        params = params - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        np.testing.assert_allclose(found, params, rtol=1e-4)


# Trainer


def arrays_equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def timeless(path):
    """The rows of a log without what a clock wrote."""
    return [row._replace(seconds=0, compile_seconds=0) for row in log.read_rows(path)]


def last_weights(out):
    pointer = files.read_json(out / "state" / "checkpoint.json")
    return files.read_tensors(out / "state" / pointer["file"], pointer["sha256"])


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from roamax import meta
meta.use_cpu_devices(2)
import conftest, test_meta
meta.trainer.SAVE_SECONDS = 0
test_meta.use_toy_family()
meta.train(test_meta.SMALL, sys.argv[2], tasks=test_meta.TASKS)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_run_goes_on_to_the_same_bits(toy, tmp_path):
    """The child has two devices and is killed with a persistent unroll under way; this process has one device."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    meta.train(SMALL, whole, tasks=TASKS)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(Path(__file__).parent), str(broken)])
    while not (broken / "log.csv").exists() or len(log.read_rows(broken / "log.csv")) < 11:
        assert child.poll() is None, "the child ended before it could be killed"
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (broken / "results.json").exists()
    resumed = meta.train(SMALL, broken, tasks=TASKS)
    assert timeless(broken / "log.csv") == timeless(whole / "log.csv")
    assert len(timeless(whole / "log.csv")) == SMALL.outer_steps + 1
    expected, found = last_weights(whole), last_weights(broken)
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert np.array_equal(
        files.read_tensors(broken / "weights.safetensors")["layer0.w"], resumed.meta_params["layer0"]["w"]
    )


def test_training_improves_validation_and_keeps_the_best(toy, tmp_path):
    stage = Stage("tbptt", 20, 20, 2, 5, learning_rate=0.3)
    trained = meta.train(dataclasses.replace(SMALL, stages=(stage,)), tmp_path / "run", tasks=TASKS)
    rows = log.read_rows(tmp_path / "run" / "log.csv")
    validations = [float(row.validation) for row in rows if row.validation != ""]
    assert trained.loss == min(validations)
    assert trained.loss < 0.9 * validations[0]
    card = files.read_json(tmp_path / "run" / "weights.json")
    assert card["meta_loss"] == trained.loss
    assert (card["step_size"], card["output_scale"], card["outer_steps"]) == (0.03, 0.1, 20)
    assert (tmp_path / "run" / "log.png").stat().st_size > 1000


def test_a_run_may_grow_but_not_change(toy, tmp_path):
    out = tmp_path / "run"
    stage = Stage("es", 3, 20, 2, 5, learning_rate=0.05)
    short = dataclasses.replace(SMALL, stages=(stage,))
    meta.train(short, out, tasks=TASKS)
    for changed, named in [
        (dataclasses.replace(short, seed=7), "seed"),
        (dataclasses.replace(short, stages=(dataclasses.replace(stage, sigma=0.5),)), "stages.0.sigma"),
        (dataclasses.replace(short, stages=(dataclasses.replace(stage, outer_steps=2),)), "stages.0.outer_steps"),
    ]:
        with pytest.raises(InputError, match=named):
            meta.train(changed, out, tasks=TASKS)
    before = files.read_json(out / "config.json")
    del before["valid_only"], before["run"]
    files.write_json(out / "config.json", before)
    long = dataclasses.replace(short, stages=(dataclasses.replace(stage, outer_steps=5), Stage("es", 1, 20, 2, 5)))
    meta.train(long, out, tasks=TASKS)
    meta.train(long, tmp_path / "unbroken", tasks=TASKS)
    assert [row.loss for row in log.read_rows(out / "log.csv")] == [
        row.loss for row in log.read_rows(tmp_path / "unbroken" / "log.csv")
    ]
    with pytest.raises(InputError, match="outer_steps"):
        meta.train(
            dataclasses.replace(long, stages=(dataclasses.replace(stage, outer_steps=6), long.stages[1])),
            out,
            tasks=TASKS,
        )


def test_a_folder_of_before_the_settings_were_renamed_resumes(toy, tmp_path):
    out = tmp_path / "run"
    short = dataclasses.replace(SMALL, stages=(Stage("es", 2, 20, 2, 5, learning_rate=0.05),))
    long = dataclasses.replace(short, stages=(dataclasses.replace(short.stages[0], outer_steps=4),))
    meta.train(short, out, tasks=TASKS)
    config = files.read_json(out / "config.json")
    del config["run"]
    text = json.dumps(config)
    assert text.count("_samples") == 2
    (out / "config.json").write_text(text.replace("_samples", "_draws"))
    meta.train(long, out, tasks=TASKS)
    meta.train(long, tmp_path / "unbroken", tasks=TASKS)
    assert timeless(out / "log.csv") == timeless(tmp_path / "unbroken" / "log.csv")
    assert "_draws" not in (out / "config.json").read_text()


def test_weights_that_do_not_exist_leave_no_folder_behind(toy, tmp_path):
    with pytest.raises(FileError, match="nope"):
        meta.train(dataclasses.replace(SMALL, weights="nope"), tmp_path / "run", tasks=TASKS)
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_named(toy, tmp_path):
    config = dataclasses.replace(SMALL, stages=(Stage("es", 1, 20, 2, 5),))
    meta.train(config, tmp_path, tasks=TASKS)
    pointer = tmp_path / "state" / "checkpoint.json"
    good = pointer.read_bytes()
    files.write_sealed(pointer, {**files.read_sealed(pointer, runs.checkpoint.POINTER), "run": "of another seed"})
    with pytest.raises(FileError, match=r"checkpoint\.json is of another run than .*config\.json"):
        meta.train(config, tmp_path, tasks=TASKS)
    pointer.write_bytes(good)
    (file,) = (tmp_path / "state").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-4] + b"oops")
    with pytest.raises(FileError, match=file.name):
        meta.train(config, tmp_path, tasks=TASKS)


def test_steps_without_a_finite_loss_leave_the_weights_alone(toy, tmp_path, monkeypatch):
    config = dataclasses.replace(SMALL, stages=(Stage("es", 2, 20, 2, 5),))

    class Broken(meta.LocalEngine):
        def run(self, meta_params, jobs):
            return [result._replace(loss=math.nan) for result in super().run(meta_params, jobs)]

    trained = meta.train(config, tmp_path, tasks=TASKS, engine=Broken)
    rows = log.read_rows(tmp_path / "log.csv")
    assert [row.bad for row in rows[1:]] == ["1", "1"]
    assert [row.loss for row in rows[1:]] == ["", ""]
    assert trained.loss == config.loss_ceiling
    weights = {key: value for key, value in last_weights(tmp_path).items() if key.startswith("meta_params")}
    keys = jax.random.split(jax.random.key(config.seed), 3)
    assert np.array_equal(weights["meta_params.0"], toy_family(0.03).init(keys[0])["layer0"]["w"])


# Configs


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_survive_json_and_fit_their_tasks(name):
    from roamax import tasks

    config = PRESETS[name]
    assert from_json(to_json(config)) == config
    names = tasks.get(config.tasks).names()
    assert all(eligible(part, names) for part in [config.valid_only, *(stage.only for stage in config.stages)])


TRAINING = Path(__file__).parents[1] / "training"
SHIPPED = [
    "kinetic-l2e", "kinetic-l2e-paper", "l2e", "l2e-ce", "l2e-paper", "l2e-small", "meta-sgmcmc", "precond-l2e",
]  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_the_weights_that_ship_are_in_the_checkpoint_of_their_training(name):
    # Nothing that precond-l2e learned validated better than where it began: its last weights ship.
    which = "meta_params" if name == "precond-l2e" else "best"
    state, shipped = last_weights(TRAINING / name), jax.tree.leaves(pretrained.load(name).meta_params)
    assert arrays_equal([state[f"{which}.{i}"] for i in range(len(shipped))], shipped)


@pytest.mark.parametrize("name", SHIPPED)
def test_configs_of_the_weights_that_ship_are_read(name):
    path = TRAINING / name / "config.json"
    written = files.read_json(path)
    read = folder.as_arguments(path, written)
    unit = "draws" if "valid_draws" in written else "samples"  # as runs of before the settings were renamed have it
    assert read["valid_samples"] == written[f"valid_{unit}"]
    assert [stage["num_samples"] for stage in read["stages"].values()] == [
        stage[f"num_{unit}"] for stage in written["stages"].values()
    ]


def test_paper_preset_has_the_numbers_of_the_paper():
    config = PRESETS["paper"]
    (stage,) = config.stages
    assert (stage.estimator, stage.outer_steps, stage.inner_steps, stage.num_samples, stage.thinning) == (
        "es", 1000, 3000, 10, 50,
    )  # fmt: skip
    assert (stage.pairs, stage.sigma, stage.learning_rate, config.beta1, config.beta2) == (1, 0.01, 0.01, 0.9, 0.99)
    assert (config.clip_norm, config.output_scale, config.objective) == (1.0, 1e-3, "bma")
    assert config.step_size**2 == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"estimator": "pes"}, "stages.0.truncation"),
        ({"estimator": "es", "truncation": 50}, "stages.0.truncation"),
        ({"inner_steps": 100}, "stages.0.inner_steps"),
        ({"estimator": "nres", "truncation": 70}, "stages.0.truncation"),
        ({"estimator": "adam"}, "stages.0.estimator"),
        ({"sigma": 0.0}, "stages.0.sigma"),
        ({"estimator": "tbptt", "compared": "log"}, "stages.0.compared"),
        ({"pairs": 0}, "stages.0.pairs"),
    ],
)
def test_a_bad_stage_is_named(changes, named):
    with pytest.raises(InputError, match=named):
        TrainConfig(stages=(dataclasses.replace(Stage(), **changes),))


def test_the_optimizer_knows_all_steps_of_its_stage(toy, tmp_path):
    stages = (dataclasses.replace(SMALL.stages[1], outer_steps=3),)
    meta.train(dataclasses.replace(SMALL, stages=stages), tmp_path, tasks=TASKS)
    counts = [tensor for tensor in last_weights(tmp_path).values() if tensor.dtype == np.int32 and tensor.ndim == 0]
    assert [int(count) for count in counts] == [3]


def test_only_persistent_strategies_have_a_fresh_perturbation_per_truncation():
    stage, weights = Stage("pes", 10, 20, 1, 10, truncation=10, sigma=0.1), jnp.zeros(3)
    jobs = [Job(0, 0, np.asarray(jax.random.key_data(jax.random.key(0))), 1, number, None) for number in range(2)]
    for name, fresh in (("pes", True), ("nres", False)):
        first, second = (np.asarray(estimators.get(name).perturbed(weights, stage, job)) for job in jobs)
        assert (not np.array_equal(first, second)) == fresh
