"""Seconds per epoch of each method, and the ratio to cyclical SGMCMC, measured side by side."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roamax.experiments.findings import Findings
from roamax.experiments.lab import Lab
from roamax.experiments.tables import Table, Value
from roamax.tasks import Task
from roamax.types import Sampler

METHODS = ("cSGMCMC", "Meta-SGMCMC", "L2E")
STEPS, ROUNDS = 10, 5
PAPER = {
    "Fashion-MNIST": (0.20, 0.32, 0.32),
    "CIFAR-10": (1.79, 2.44, 2.64),
    "CIFAR-100": (1.81, 2.45, 2.66),
    "Tiny-ImageNet": (41.12, 47.22, 48.43),
}


def run(lab: Lab) -> Findings:
    """The time of an epoch, from rounds in which every method takes its turn; the spread is over rounds."""
    rows: dict[tuple[str, ...], dict[str, Value]] = {}
    for problem in lab.problems("fashion_mnist", "cifar10", "cifar100", "tiny_imagenet"):
        timers = {method.name: _timer(method.sampler, task) for method, task, _ in lab.methods(problem, METHODS)}
        rounds = [{name: timer() for name, timer in timers.items()} for _ in range(ROUNDS)]
        seconds = {name: [one[name] for one in rounds] for name in timers}
        rows["seconds per epoch", problem.label] = {name: _middle(values) for name, values in seconds.items()}
        if "cSGMCMC" in seconds:
            base = np.asarray(seconds["cSGMCMC"])
            ratios = {name: _middle(np.asarray(values) / base) for name, values in seconds.items()}
            rows["ratio to cSGMCMC", problem.label] = ratios
    paper = {}
    for label, numbers in PAPER.items():
        paper["seconds per epoch", label] = dict(zip(METHODS, map(Value, numbers), strict=True))
        ratios = [Value(number / numbers[0]) for number in numbers]
        paper["ratio to cSGMCMC", label] = dict(zip(METHODS, ratios, strict=True))
    better = {"seconds per epoch": "min", "ratio to cSGMCMC": "min"}
    table = Table("Cost", ("Metric", "Data set"), METHODS, rows, paper, better=better, digits=2)
    return Findings({"cost": table}, seeds=0)


def _timer(sampler: Sampler, task: Task) -> Callable[[], float]:
    """A function that runs `STEPS` steps on one batch, compiled beforehand, and gives the seconds of an epoch."""
    batch = jax.tree.map(lambda array: jnp.asarray(array[: task.batch_size]), task.train)
    key = jax.random.key(0)
    state = sampler.init(key, task.init(key))

    @jax.jit
    def steps(state: Any) -> Any:
        def step(state: Any, step_key: jax.Array) -> tuple[Any, None]:
            return sampler.step(step_key, state, batch)[0], None

        return jax.lax.scan(step, state, jax.random.split(key, STEPS))[0]

    jax.block_until_ready(steps(state))

    def seconds() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(steps(state))
        return (time.perf_counter() - begun) / STEPS * task.posterior.num_data / task.batch_size

    return seconds


def _middle(values: Any) -> Value:
    return Value(float(np.median(values)), float(np.std(values)))
