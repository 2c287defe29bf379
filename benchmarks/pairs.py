"""Antithetic pairs of meta-training: perturbations, both unrolls, and the gradient."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import apart
from benchmarks.timing import Contest, Mark
from benchmarks.work import network_flops
from roamax import models, tasks
from roamax.meta.config import Stage, TrainConfig
from roamax.meta.engines import LocalEngine
from roamax.meta.families import initial_weights, make_family
from roamax.meta.outer import estimate, new_slots

DRAWS = 2


def network_tasks(channels: int, depth: int, count: int = 4096) -> tasks.TaskDistribution:
    """Return a task like the paper's on images of noise, which take the same time."""
    return _on_noise("cnn", 28, count, 128, channels=channels, depth=depth)


def _on_noise(name: str, side: int, count: int, batch_size: int, **options: Any) -> tasks.TaskDistribution:
    rng = np.random.default_rng(0)
    parts = [(rng.random((n, side, side, 1), np.float32), rng.integers(0, 10, n)) for n in (count, 128, 128)]
    task = tasks.make_task(f"noise/{name}", models.get(name, **options), *parts, batch_size=batch_size)
    return tasks.TaskDistribution("noise", (task,))


def pair_config(steps: int, pairs: int = 1) -> TrainConfig:
    """Return a configuration of evolution strategies over unrolls of `steps`."""
    return TrainConfig(stages=(Stage("es", 1, steps, DRAWS, steps // (2 * DRAWS), pairs=pairs),))


def pair_runner(
    config: TrainConfig, distribution: tasks.TaskDistribution, devices: Sequence[Any] | None = None
) -> Callable[[], Any]:
    """Return a turn of all antithetic pairs of an outer step."""
    engine = LocalEngine(config, distribution, devices)
    weights = initial_weights(config, make_family(config, config.step_size), jax.random.key(0))
    names = distribution.names()

    def run() -> Any:
        slots = new_slots(config.stages[0], 0)
        return jax.block_until_ready(estimate(engine.run, weights, config, names, jax.random.key(1), 0, slots).gradient)

    return run


def two_devices() -> Contest:
    """Compare a pair on one device with one on two; needs a process with two CPU devices."""
    steps, distribution = 100, network_tasks(8, 3)
    config = pair_config(steps)
    contestants = {
        "one device": pair_runner(config, distribution, jax.local_devices()[:1]),
        "two devices": pair_runner(config, distribution, jax.local_devices()[:2]),
    }
    return Contest("meta-training on one device against two", contestants,
                   Mark("one device", "two devices", at_least=1.7), work=2 * steps)  # fmt: skip


def against_the_limit() -> Contest:
    """Compare meta-training on a tiny task, 32 members per device, with matrix products of as many operations."""
    # Shorter unrolls are cut into loops of two steps, unlike those of training.
    steps, batch, inputs, hidden = 200, 64, 14 * 14, 32
    config = pair_config(steps, pairs=16 * jax.local_device_count())
    run = pair_runner(config, _on_noise("mlp", 14, 4096, batch, hidden=[hidden]))
    first, second = inputs * hidden, hidden * 10
    # Forward, and backward to weights and inputs, though not to those of the first layer.
    gradient = 2 * batch * (2 * first + 3 * second)
    operations = gradient + network_flops() * (first + second + hidden + 10)
    members = 2 * config.stages[0].pairs
    square = jnp.ones((1024, 1024))
    products = round(steps * members * operations / (2 * 1024**3))
    multiply = jax.jit(lambda x: jax.lax.fori_loop(0, products, lambda _, y: 1e-3 * (x @ y), x))
    contestants = {"meta-training": run, "products": lambda: jax.block_until_ready(multiply(square))}
    return Contest("the limit of the machine's matrix products against meta-training of L2E on MLP 196-32-10, 32 "
                   "members per device", contestants, Mark("products", "meta-training", at_least=0.7),
                   work=steps * members)  # fmt: skip


def cost_of_pair(steps: int) -> dict[str, float]:
    """Measure the seconds of a compiled pair, and the peak memory of this process."""
    run = pair_runner(pair_config(steps), network_tasks(4, 1))
    run()
    begun = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begun, "megabytes": apart.peak_megabytes()}
