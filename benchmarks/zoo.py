"""Steps and first steps of the learned samplers, vs. SGHMC, pSGLD and Adam, on the networks that users run."""

import shutil
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from benchmarks import apart
from benchmarks.timing import Spread, both_clocks, take_turns
from roamax import models
from roamax.errors import CardWarning
from roamax.host.machine import keep_to_core, usable_cores
from roamax.models.registry import MODELS
from roamax.numerics import trees
from roamax.sampling.batches import batch_source
from roamax.sampling.chains import Chains, chain_keys
from roamax.sampling.named import named_sampler
from roamax.tasks import Task, make_task
from roamax.types import Sampler

TURN_SECONDS = 0.15
"""How long a turn of SGHMC is."""
MANY = 2**30
ROWS = 32
"""Batches of data; images and texts of noise take the same time as real ones."""
REFERENCE = "SGHMC"
SAMPLERS: dict[str, dict[str, Any]] = {
    REFERENCE: {"name": "sghmc"},
    "pSGLD": {"name": "psgld"},
    "Adam": {"name": "ensemble", "learning_rate": 1e-3, "options": {"optimizer": "adam"}},
    "roam": {"name": "roam"},
    "L2E": {"name": "l2e"},
    "L2E, one pass": {"name": "l2e", "options": {"passes": 1}},
}
ROAM_AT_MOST = 1.25
FIRST_AT_MOST = {"L2E": 2.0}
"""Marks for the CPU seconds to a first step in a new process, relative to SGHMC."""


class Network(NamedTuple):
    """A network, its inputs, and the mark for a step of L2E relative to SGHMC."""

    model: str
    options: dict[str, Any]
    shape: tuple[int, ...]
    batch: int
    l2e_at_most: float | None = None

    @property
    def marks(self) -> dict[str, float]:
        """The marks by sampler."""
        found = {"roam": ROAM_AT_MOST}
        return found if self.l2e_at_most is None else found | dict.fromkeys(("L2E", "L2E, one pass"), self.l2e_at_most)

    def task(self) -> Task:
        """Return a task on noise."""
        model = models.get(self.model, **self.options)
        rng, count = np.random.default_rng(0), ROWS * self.batch
        x: Any = rng.random((count, *self.shape), np.float32)
        if MODELS[self.model].tokens:
            x = rng.integers(1, 1000, (count, *self.shape), dtype=np.int32)
        real = "regression" in self.model
        y = rng.standard_normal(count, np.float32) if real else rng.integers(0, 2, count)
        return make_task(self.model, model, (x, y), (x, y), (x, y), batch_size=self.batch)


NETWORKS = {
    "MLP 13-50-50-1": Network("mlp_regression", {"hidden": [50, 50]}, (13,), 32, 3.0),
    "MLP 196-32-10": Network("mlp", {"hidden": [32]}, (14, 14, 1), 64, 3.0),
    "MLP 784-100-100-10": Network("mlp", {"hidden": [100, 100]}, (28, 28, 1), 128, 3.0),
    "CNN, 4 channels": Network("cnn", {"channels": 4}, (28, 28, 1), 128),
    "cnn_fashion, 16 channels": Network("cnn_fashion", {}, (28, 28, 1), 128, 1.25),
    "CNN, 32 channels": Network("cnn", {"channels": 32, "bottleneck": 20}, (28, 28, 1), 128),
    "CNN-LSTM": Network("cnn_lstm", {"vocabulary": 1000}, (100,), 32),
    "ResNet-8": Network("resnet8_frn", {}, (32, 32, 3), 128),
    "ResNet-20": Network("resnet20_frn", {}, (32, 32, 3), 128, 1.08),
}


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what was measured against each mark: `what`, `number`, the bound `at_most`, and whether it `holds`."""
    found = []
    for row in rows:
        name, sampler = row["network"], row["sampler"]
        if name not in NETWORKS:  # Results of another version.
            continue
        where = f"{name}, {row['cores']} core{'s' if row['cores'] > 1 else ''}"
        if sampler in NETWORKS[name].marks:
            bound = NETWORKS[name].marks[sampler]
            found.append((f"step of {sampler} against {REFERENCE}, {where}", row["ratio"]["median"], bound, row))
        if sampler in FIRST_AT_MOST and "cold_seconds" in row:
            number = row["cold_cpu_seconds"] / reference(rows, row)["cold_cpu_seconds"]
            found.append((f"first step of {sampler} against {REFERENCE}, {name}", number, FIRST_AT_MOST[sampler], row))
    names = ("what", "number", "at_most", "row")
    return [{**dict(zip(names, one, strict=True)), "holds": one[1] <= one[2]} for one in found]


def reference(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of SGHMC that a row is compared with."""
    wanted = row["network"], row["cores"], REFERENCE
    return next(one for one in rows if (one["network"], one["cores"], one["sampler"]) == wanted)


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measure each network in processes of its own, on all cores and on one; return a row per sampler, network, cores.

    Of two processes, the first finds no compiled program on disk, and measures first steps too.
    """
    rows = []
    for name in NETWORKS:
        with tempfile.TemporaryDirectory() as cache:
            rows += apart.call(steps_of, name, rounds, cache)
            if usable_cores() > 1:
                rows += apart.call(steps_of, name, rounds, cache, True)
    return rows


def steps_of(name: str, rounds: int, cache: str, one_core: bool = False) -> list[dict[str, Any]]:
    """Measure the steps of all samplers on one network in this process, and unless on `one_core` their first steps."""
    if one_core:
        keep_to_core(0)
    warnings.simplefilter("ignore", CardWarning)
    task = NETWORKS[name].task()
    firsts = {} if one_core else {label: _first_steps(task, sampler, cache) for label, sampler in SAMPLERS.items()}
    _cache_in(cache)
    chains = {label: _Chain(task, _sampler(task, named)) for label, named in SAMPLERS.items()}
    steps = _steps_per_turn(chains[REFERENCE])
    found = take_turns({label: partial(chain.advance, steps) for label, chain in chains.items()}, rounds, both_clocks)
    rows = []
    for label, turns in found.items():
        wall, cpu = zip(*turns, strict=True)
        ratio = [own / other for own, (other, _) in zip(wall, found[REFERENCE], strict=True)]
        rows.append(
            {
                "network": name,
                "parameters": trees.size(chains[label].position),
                "batch": NETWORKS[name].batch,
                "cores": usable_cores(),
                "sampler": label,
                "seconds": median(wall) / steps,
                "cpu_seconds": median(cpu) / steps,
                "ratio": Spread.of(ratio)._asdict(),
                **firsts.get(label, {}),
            }
        )
    return rows


class _Chain:
    """A chain in the program that `roamax.sample` runs."""

    def __init__(self, task: Task, sampler: Sampler):
        keys = chain_keys(jax.random.key(0), 1)
        states = jax.vmap(sampler.init)(keys.state, jax.vmap(task.init)(keys.position))
        source = batch_source(task.train, task.batch_size, MANY, replacement=False, sweeps=sampler.sweeps)
        self._chains, self._step = Chains(sampler, keys, states, source), 0

    def advance(self, steps: int) -> None:
        """Take so many steps."""
        stop = self._step + steps
        while self._step < stop:
            self._step = self._chains.advance(self._step, stop)
        assert self._chains.divergence(self._step) is None

    @property
    def position(self) -> Any:
        """Where the chain is."""
        return self._chains.positions


def _sampler(task: Task, named: dict[str, Any]) -> Sampler:
    return named_sampler(**named, posterior=task.posterior, num_steps=10_000, num_samples=5, init=task.init,
                         batch_size=task.batch_size, regression=task.is_regression)  # fmt: skip


def _first_steps(task: Task, named: dict[str, Any], cache: str) -> dict[str, float]:
    """Measure the time from a task to a chain's first step, without and with compiled programs on disk."""

    def first() -> None:
        _Chain(task, _sampler(task, named)).advance(1)

    with tempfile.TemporaryDirectory() as own:
        _cache_in(own)
        cold = both_clocks(first)
        jax.clear_caches()
        warm = both_clocks(first)
        jax.clear_caches()
        shutil.copytree(own, cache, dirs_exist_ok=True)
    names = ("cold_seconds", "cold_cpu_seconds", "warm_seconds", "warm_cpu_seconds")
    return dict(zip(names, (*cold, *warm), strict=True))


def _cache_in(folder: str) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()


def _steps_per_turn(chain: _Chain) -> int:
    """Return the number of steps in which a chain takes about `TURN_SECONDS`."""
    chain.advance(1)
    steps, seconds = 1, 0.0
    while seconds < TURN_SECONDS / 2:
        begun = time.perf_counter()
        chain.advance(steps)
        seconds = time.perf_counter() - begun
        steps *= 2
    return max(1, round(steps / 2 * TURN_SECONDS / seconds))
