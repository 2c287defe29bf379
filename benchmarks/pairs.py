"""Antithetic pairs of meta-training: perturbations, both unrolls, and the gradient."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import apart
from benchmarks.timing import Contest, Mark
from roamax import models, tasks
from roamax.meta.config import Stage, TrainConfig
from roamax.meta.engines import LocalEngine
from roamax.meta.families import initial_weights, make_family
from roamax.meta.outer import estimate, new_slots

DRAWS = 2


def network_tasks(channels: int, depth: int, count: int = 4096) -> tasks.TaskDistribution:
    """Return a task like the paper's on images of noise, which take the same time."""
    rng = np.random.default_rng(0)
    parts = [(rng.random((n, 28, 28, 1), np.float32), rng.integers(0, 10, n)) for n in (count, 128, 128)]
    model = models.get("cnn", channels=channels, depth=depth)
    return tasks.TaskDistribution("noise", (tasks.make_task(f"noise/cnn:{channels}x{depth}", model, *parts),))


def pair_config(steps: int) -> TrainConfig:
    """Return a configuration of evolution strategies with one pair over unrolls of `steps`."""
    return TrainConfig(stages=(Stage("es", 1, steps, DRAWS, steps // (2 * DRAWS)),))


def pair_runner(
    config: TrainConfig, distribution: tasks.TaskDistribution, devices: Sequence[Any] | None = None
) -> Callable[[], Any]:
    """Return a turn of one antithetic pair."""
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


def cost_of_pair(steps: int) -> dict[str, float]:
    """Measure the seconds of a compiled pair, and the peak memory of this process."""
    run = pair_runner(pair_config(steps), network_tasks(4, 1))
    run()
    begun = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begun, "megabytes": apart.peak_megabytes()}
