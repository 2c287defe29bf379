"""Comparison of `roam` with Adam on tasks, from the same initial positions and batches.

python training/roam/evaluate.py --tasks half small --cycles 2000x1 2000x5 --sweep PEAK=0.01:0.02

For each task and each number of cycles it prints the NLL, mean over seeds, of `roam` and of three uses of Adam with
cosine decay in as many steps: one network, ten snapshots of the last 30 % of the run, and snapshots at the ends of as
many cycles; with new starts, such as after every 5 cycles with `--cycles 2000x25/5`, also an ensemble of as many
members. Each has the best of five learning rates by validation data. `--test` adds the test data.
"""

import argparse
import contextlib
import importlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from runs import Kind, adam, draws, finite, members, mlp, nll, task_of

from roamax import pretrained, roam_family
from roamax.tasks import TaskSpec
from roamax.types import Sampler

TASKS = {
    "mnist": TaskSpec("mnist", "mlp", {"hidden": [100, 100]}),
    "half": mlp("fashion_mnist", [32], 40_000, halve=True),
    "small": mlp("mnist", [64], 2_000, halve=True),
    "wide": mlp("fashion_mnist", [256, 256], 20_000, 128, halve=True),
    "deep": mlp("fashion_mnist", [64, 64, 64, 64], 40_000, halve=True),
    "cifar": mlp("cifar10", [128], 8_000, halve=True),
    "conv": TaskSpec("fashion_mnist", "cnn", {"channels": 8}, halve=True, train_size=40_000, batch_size=64),
    "cnn": TaskSpec("fashion_mnist", "cnn_fashion"),
    "cifar_cnn": TaskSpec("cifar10", "cnn_cifar", halve=True, train_size=40_960),
    "line": TaskSpec("regression_1d_gap", "mlp_regression", {"hidden": [100, 100], "noise_scale": 0.1}),
}
MODULE = importlib.import_module("roamax.samplers.learned._roam_plan")
RATES = (1e-3, 3e-3, 6e-3, 1e-2, 2e-2)


class Method(NamedTuple):
    """A function of a rate and a posterior that returns a sampler, the rates to try, and when draws are taken."""

    make: Callable[[Any, Any], Sampler]
    rates: tuple[float, ...]
    ends: list[int]
    uses: dict[str, slice]
    """Which of the draws are averaged, by the name of the row."""


def compare(kind: Kind, seeds: list[int], methods: list[Method], parts: list[str]) -> dict[str, dict[str, Any]]:
    """Return the NLL of each row, its best rate by the first part of the data, and the CPU seconds of one run."""
    task = task_of(kind.spec)
    keys = jax.random.wrap_key_data(jnp.stack([jax.random.key_data(jax.random.key(seed)) for seed in seeds]))
    held_out = [getattr(task, part) for part in parts]
    split = np.cumsum([len(y) for _, y in held_out])[:-1]
    joined = jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *held_out)
    found = {}
    for method in methods:

        def run(row, train, held_out, method=method):
            rate, key = row
            logs = draws(method.make(rate, task.posterior), task, method.ends, key, train, held_out)
            return {
                use: jnp.stack([nll(part[which]) for part in jnp.split(logs, split, axis=1)])
                for use, which in method.uses.items()
            }

        rows = jnp.repeat(jnp.asarray(method.rates, jnp.float32), len(seeds)), jnp.tile(keys, len(method.rates))
        every = jax.jit(lambda rows, *data, run=run: jax.lax.map(lambda row: run(row, *data), rows))
        compiled = every.lower(rows, task.train, joined).compile()
        begun = time.process_time()
        results = jax.device_get(compiled(rows, task.train, joined))
        seconds = (time.process_time() - begun) / len(rows[0])
        for use, losses in results.items():
            losses = finite(losses).reshape(len(method.rates), len(seeds), len(parts))
            best = int(np.argmin(losses[:, :, 0].mean(1)))
            found[use] = {part: losses[best, :, i].round(4).tolist() for i, part in enumerate(parts)}
            by_rate = dict(zip(method.rates, losses[:, :, 0].mean(1).round(4).tolist(), strict=True))
            found[use] |= {"rate": method.rates[best], "by_rate": by_rate, "seconds": round(seconds, 2)}
    return found


def adams(kind: Kind, rates: tuple[float, ...] = RATES) -> list[Method]:
    """Return Adam over the whole run, as one network and as ten snapshots, and, if there are several, in cycles."""
    steps = kind.steps
    tail = [round(steps * part) for part in np.linspace(0.7, 1, 11)[1:]]
    uses = {"Adam, one network": slice(-1, None), "Adam, snapshots": slice(None)}
    whole = Method(lambda rate, posterior: adam(posterior, rate, steps), rates, tail, uses)
    cycles = Method(
        lambda rate, posterior: adam(posterior, rate, kind.cycle), rates, ends_of(kind), {"Adam, cycles": slice(None)}
    )
    found = [whole, cycles] if kind.cycles > 1 else [whole]
    if kind.cycles_per_start is not None:
        task, length = task_of(kind.spec), kind.cycle * kind.cycles_per_start
        ensemble = Method(
            lambda rate, posterior: members(adam(posterior, rate, length), task, length),
            rates,
            list(range(length, steps + 1, length)),
            {"Adam, ensemble": slice(None)},
        )
        found.append(ensemble)
    return found


def ends_of(kind: Kind) -> list[int]:
    return [kind.cycle * (i + 1) for i in range(kind.cycles)]


def roams(kind: Kind, weights: Any, variant: str, temperatures: list[float]) -> list[Method]:
    """Return `roam` with a draw at the end of each cycle, at each temperature.

    Args:
        kind: The task, and the cycles.
        weights: Of the scheduler, or None.
        variant: A constant of its module and values for it, such as `PEAK=0.01:0.02`, as the rates to try.
        temperatures: A method for each.
    """
    constant, _, values = variant.partition("=")

    def method(temperature: float) -> Method:
        def make(value: Any, posterior: Any) -> Sampler:
            if constant:
                setattr(MODULE, constant, value)
            settings = {"cycle_length": kind.cycle, "cycles_per_start": kind.cycles_per_start, "averaging": 0.0}
            return roam_family(**settings, temperature=temperature).bind(weights, posterior)

        label = f"roam {constant}".strip() + ("" if temperature == 1 else f", T = {temperature:g}")
        rates = tuple(map(float, values.split(":"))) if constant else (0.0,)
        return Method(make, rates, ends_of(kind), {label: slice(None)})

    return [method(temperature) for temperature in temperatures]


@contextlib.contextmanager
def changed(constants: list[str]) -> Iterator[None]:
    """Change constants of `roam`'s module, each as `PEAK=0.02`, and put back all of them afterwards."""
    before = {name: value for name, value in vars(MODULE).items() if name.isupper()}
    for name, value in (word.split("=") for word in constants):
        setattr(MODULE, name, type(before[name])(value))
    yield
    vars(MODULE).update(before)


def main() -> None:
    """Print a table, and add a line per row to a log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS)[:7])
    parser.add_argument("--cycles", nargs="+", default=["2000x1"], help="length x number / cycles per start")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--temperatures", nargs="*", type=float, default=[1.0])
    parser.add_argument("--set", nargs="+", default=[], help="constants of _roam_plan.py, such as PEAK=0.02 DECAY=0.1")
    parser.add_argument("--sweep", nargs="+", default=[""], help="values of one constant, such as PEAK=0.01:0.02")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--rates", nargs="*", type=float, default=RATES, help="learning rates of Adam; none: no Adam")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    weights = None if arguments.weights is None else pretrained.read(arguments.weights).meta_params
    parts = ["valid", "test"] if arguments.test else ["valid"]
    for name in arguments.tasks:
        for words in arguments.cycles:
            kind = Kind(TASKS[name], *map(int, words.replace("/", "x").split("x")))

            def show(methods: list[Method], name=name, words=words, kind=kind) -> None:
                for label, row in compare(kind, arguments.seeds, methods, parts).items():
                    means = "  ".join(f"{part} {np.mean(row[part]):.4f}" for part in parts)
                    rate = f"  {row['by_rate']}" if len(row["by_rate"]) > 1 else ""
                    print(f"{name:6} {words:10} {label:28} {means}  {row['seconds']:.1f} s{rate}", flush=True)
                    if arguments.log is not None:
                        with arguments.log.open("a") as file:
                            file.write(json.dumps({"task": name, "cycles": words, "row": label} | row) + "\n")

            if arguments.rates:
                show(adams(kind, tuple(arguments.rates)))
            for variant in arguments.sweep:
                with changed(arguments.set):
                    show(roams(kind, weights, variant, arguments.temperatures))


if __name__ == "__main__":
    main()
