"""Meta-training: the inner loop vs. a straightforward one, and the recipe's cost.

pairs    Inner steps per second of an antithetic pair, counting both members, vs. a straightforward implementation with
         the same convolution: one member after the other, ten steps per compiled call, batches gathered by NumPy, the
         positions of all steps kept. Mark: 3 times as fast.
recipe   Gradient evaluations to reach a validation loss on perceptrons of the cpu tasks: backpropagation through short
         unrolls and then evolution strategies over the full length, vs. evolution strategies alone, for every loss
         that the former reached. Mark: a tenth.

Contestants take turns within a round, and the fastest round counts. Two devices vs. one, and memory vs. inner steps,
are measured by the suite.
"""

import dataclasses
import math
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.pairs import DRAWS, network_tasks, pair_config, pair_runner
from benchmarks.timing import take_turns
from roamax import meta, tasks
from roamax.host import files
from roamax.meta import Stage, TrainConfig, log
from roamax.meta.families import make_family
from roamax.samplers.learned.l2e import DECAYS

PERCEPTRONS = "mnist-half/mlp:hidden=32:"
"""Tasks of the recipe: three data sets with 500, 2,000 and all examples, and one network, to compile little."""
NETWORKS = {"4 channels x 1 layer": (4, 1), "8 channels x 3 layers": (8, 3)}


class Straightforward:
    """A straightforward implementation of an antithetic pair, with the package's convolution."""

    def __init__(self, config, distribution):
        self.config, self.stage = config, config.stages[0]
        self.task = tasks.build(distribution[0])
        self.train = jax.tree.map(np.asarray, self.task.train)
        self.weights = make_family(config, config.step_size).init(jax.random.key(0))
        self.ten_steps = jax.jit(self._ten_steps)
        self.log_density = jax.jit(lambda theta: self.task.posterior.log_likelihood(theta, self.task.valid))

    def __call__(self):
        sigma = self.stage.sigma
        noise = jax.tree.map(lambda w: sigma * np.random.default_rng(0).normal(size=w.shape), self.weights)
        plus, minus = (
            self._loss(jax.tree.map(lambda w, n, sign=sign: w + jnp.float32(sign * n), self.weights, noise))
            for sign in (1, -1)
        )
        return jax.tree.map(lambda n: n * (plus - minus) / (2 * sigma**2), noise)

    def _loss(self, weights):
        rng = np.random.default_rng(1)
        theta = self.task.init(jax.random.key(0))
        state = (theta, jax.tree.map(jnp.zeros_like, theta), [jax.tree.map(jnp.zeros_like, theta) for _ in DECAYS])
        kept = []
        for call in range(self.stage.inner_steps // 10):
            rows = rng.integers(0, len(self.train[1]), (10, self.task.batch_size))
            batches = tuple(array[rows] for array in self.train)
            state, positions = self.ten_steps(weights, state, batches, jax.random.key(call))
            kept.append(positions)
        chain = jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)
        every = self.stage.thinning
        places = range(self.stage.inner_steps - 1, self.stage.inner_steps - every * DRAWS - 1, -every)
        log_densities = [self.log_density(jax.tree.map(lambda leaf, i=i: leaf[i], chain)) for i in places]
        average = jax.nn.logsumexp(jnp.stack(log_densities), axis=0) - math.log(DRAWS)
        return float(-jnp.mean(average))

    def _ten_steps(self, weights, state, batches, key):
        def body(state, inputs):
            state = self._step(weights, state, *inputs)
            return state, state[0]

        return jax.lax.scan(body, state, (batches, jax.random.split(key, 10)))

    def _step(self, weights, state, batch, key):
        theta, r, averages = state
        epsilon, c, scale = self.config.step_size, self.config.friction, self.config.output_scale
        posterior = self.task.posterior
        _, gradient = posterior.energy_and_grad(theta, batch)
        mean = jax.tree.map(lambda g: g / posterior.num_data, gradient)
        averages = [
            jax.tree.map(lambda a, g, d=d: d * a + (1 - d) * g, a, mean) for d, a in zip(DECAYS, averages, strict=True)
        ]

        def outputs(r):
            def leaf(*features):
                features = jnp.stack([f * jax.lax.rsqrt(jnp.mean(f**2) + 1e-5) for f in features], axis=-1)
                hidden = jax.nn.relu(features @ weights["layer0"]["w"] + weights["layer0"]["b"])
                hidden = jax.nn.relu(hidden @ weights["layer1"]["w"] + weights["layer1"]["b"])
                return scale * (hidden @ weights["layer2"]["w"] + weights["layer2"]["b"])

            return jax.tree.map(leaf, mean, theta, r, *averages)

        keys = jax.tree.unflatten(jax.tree.structure(r), list(jax.random.split(key, len(jax.tree.leaves(r)))))
        r = jax.tree.map(
            lambda r, g, out, k: (
                r
                - epsilon * (g + out[..., 0] + c * out[..., 1])
                + math.sqrt(2 * c * epsilon) * jax.random.normal(k, r.shape)
            ),
            r, gradient, outputs(r), keys,
        )  # fmt: skip
        theta = jax.tree.map(lambda t, out: t + epsilon * out[..., 1], theta, outputs(r))
        return theta, r, averages


def measure_pairs(rounds, steps):
    rows = []
    for name, network in NETWORKS.items():
        config, distribution = pair_config(steps), network_tasks(*network)
        contestants = {"roamax": pair_runner(config, distribution), "plain": Straightforward(config, distribution)}
        taken = take_turns(contestants, rounds)
        best = {who: min(seconds) for who, seconds in taken.items()}
        member_ms = {who: seconds / (2 * steps) * 1e3 for who, seconds in best.items()}
        rows.append({"network": name, "ms per step and member": member_ms, "ratio": best["plain"] / best["roamax"]})
        print(f"{name:22s} {member_ms['roamax']:7.2f} ms per step and member, straightforward "
              f"{member_ms['plain']:7.2f}; {rows[-1]['ratio']:.2f} times as fast")  # fmt: skip
    return rows


def recipe_configs():
    """Return the staged recipe and evolution strategies alone, on perceptrons of the cpu tasks."""
    shared = TrainConfig(
        tasks="cpu", step_size=math.sqrt(2e-5), friction=0.1, output_scale=0.1, init_scale=0.1,
        valid_only=PERCEPTRONS, valid_problems=6, valid_every=10, valid_steps=1000,
    )  # fmt: skip
    short = Stage("tbptt", 15, 150, 6, 10, learning_rate=0.006, step_size=math.sqrt(8e-5), only=PERCEPTRONS)
    whole = Stage("es", 20, 1000, 10, 50, learning_rate=0.01, only=PERCEPTRONS)
    staged = dataclasses.replace(shared, valid_every=5, stages=(short, whole))
    return staged, dataclasses.replace(shared, stages=(whole,))


def measure_recipe(runs):
    staged, alone = recipe_configs()
    with tempfile.TemporaryDirectory() as passing:
        folder = runs or Path(passing)
        lows = new_lows(validations(meta.train(staged, folder / "staged").out))
        curve, steps = [], max(20, math.ceil(steps_done(folder / "alone") / 20) * 20)
        while not curve or (min(curve)[0] > lows[-1][0] and curve[-1][1] < 10 * lows[-1][1]):
            jax.clear_caches()  # Each call compiles again, and the system limits the programs of a process.
            stage = dataclasses.replace(alone.stages[0], outer_steps=steps)
            curve = validations(meta.train(dataclasses.replace(alone, stages=(stage,)), folder / "alone").out)
            steps += 20
    rows = []
    for loss, gradients in lows:
        there = min((spent for reached, spent in curve if reached <= loss), default=None)
        rows.append({"validation": loss, "gradients": gradients, "alone": there, "alone in all": curve[-1][1]})
        said = f"{there:,}, {there / gradients:.1f} times as many" if there else f"more than {curve[-1][1]:,}"
        print(f"validation loss {loss:.3f}: staged {gradients:,} gradients, evolution strategies alone {said}")
    return rows


def new_lows(curve):
    """Return the points of a curve, except the first, that are lower than all before them."""
    return [point for number, point in enumerate(curve[1:], 1) if point[0] < min(loss for loss, _ in curve[:number])]


def steps_done(out):
    """Return the number of outer steps of a run, 0 where there is none."""
    path = out / "log.csv"
    return int(log.read_rows(path)[-1].step) if path.exists() else 0


def validations(out):
    """Return the validation losses of a run, each with the gradient evaluations spent by then."""
    rows = [row for row in log.read_rows(out / "log.csv") if row.validation != ""]
    return [(float(row.validation), int(row.inner_gradients)) for row in rows]


def compare(
    parts: tuple[Literal["pairs", "recipe"], ...] = ("pairs", "recipe"),
    rounds: int = 3,
    steps: int = 100,
    runs: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
) -> None:
    """Compare meta-training with a straightforward loop, and its recipe with evolution strategies.

    The part `recipe` needs the data of the cpu tasks and takes hours; leave it
    out with --parts pairs.

    Example:
        python -m benchmarks meta --parts pairs

    Args:
        parts: What to measure.
        rounds: Turns per contestant of `pairs`, after one to warm up.
        steps: Inner steps of `pairs`.
        runs: A folder for the runs of `recipe`; those already there resume.
        out: A JSON file to write the numbers to.
    """
    meta.use_cpu_devices(2)
    measured = {"pairs": lambda: measure_pairs(rounds, steps), "recipe": lambda: measure_recipe(runs)}
    results = {part: measured[part]() for part in parts}
    if out is not None:
        files.write_json(out, results)
