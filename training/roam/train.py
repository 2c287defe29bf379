"""Meta-training of `roam`'s scheduler by evolution strategies on many short runs of small networks.

python training/roam/train.py [--out training/roam] [--minutes 60] [--seed 0]

Run again, it resumes from its state.

Each outer step draws a few kinds of tasks and runs antithetic pairs of perturbed weights on them, vectorised, with the
same initial positions and batches. A pair counts by the relative difference of its two losses, clipped, so that no
task dominates. The loss is the NLL, on held-out data, of the average over the ends of cycles. Now and then weights
are validated on larger networks and longer cycles than were trained on, as the ratio of their NLL to that of Adam with
cosine decay, in its best use and with the best of five learning rates. `log.jsonl` has one line per outer step.
"""

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from evaluate import adams, compare, ends_of, roams
from runs import Kind, draws, finite, mlp, nll, task_of

from roamax import roam_family
from roamax.host import files
from roamax.numerics import trees
from roamax.tasks import TaskSpec

SIGMA, LEARNING_RATE, PAIRS, KINDS, CLIP = 0.12, 0.02, 8, 3, 0.1
VALIDATE_EVERY, SEEDS_VALIDATED = 50, (1000,)
HELD_OUT = 2000
"""Held-out examples by which runs are compared."""
LAYERS = "layer1"
"""The part that is trained: the output layer, on hidden units as they were drawn."""


KINDS_TRAINED = (
    Kind(mlp("digits", [32], 1000), 400),
    Kind(mlp("digits", [256], 500, 32), 250),
    Kind(mlp("mnist", [16], 40_000, halve=True), 1500),
    Kind(mlp("mnist", [64], 2_000, halve=True), 600),
    Kind(mlp("mnist", [32], 20_000), 500),
    Kind(mlp("fashion_mnist", [32], 40_000, halve=True), 1000),
    Kind(mlp("fashion_mnist", [16], 2_000, halve=True), 300, 3),
    Kind(mlp("fashion_mnist", [128], 20_000, 128, halve=True), 400),
    Kind(mlp("fashion_mnist", [32, 32, 32], 10_000, 32, halve=True), 800),
    Kind(mlp("cifar10", [32], 8_000, halve=True), 400),
    Kind(TaskSpec("mnist", "cnn", {"channels": 4}, halve=True, train_size=20_000, batch_size=32), 200),
)
KINDS_VALIDATED = (
    Kind(TaskSpec("mnist", "mlp", {"hidden": [100, 100]}), 1000),
    Kind(mlp("fashion_mnist", [256, 256], 20_000, halve=True), 500),
    Kind(mlp("fashion_mnist", [64, 64, 64, 64], 40_000, halve=True), 2000),
    Kind(mlp("mnist", [128], 5_000, halve=True), 1000, 3),
)


@functools.cache
def runner(kind: Kind):
    """Return a compiled function of stacked weights and a key that computes the loss of each."""
    task = task_of(kind.spec)
    family = roam_family(cycle_length=kind.cycle, temperature=0.0)

    def run(weights: Any, key: Any, train: Any, valid: Any) -> jax.Array:
        return nll(draws(family.bind(weights, task.posterior), task, ends_of(kind), key, train, valid))

    return jax.jit(jax.vmap(run, in_axes=(0, None, None, None)))


def losses(kind: Kind, weights: Any, key: Any) -> np.ndarray:
    task = task_of(kind.spec)
    valid = jax.tree.map(lambda array: array[:HELD_OUT], task.valid)
    return finite(runner(kind)(weights, key, task.train, valid))


@functools.cache
def adam_loss(kind: Kind, seeds: tuple[int, ...]) -> np.ndarray:
    """Return the NLL of Adam with cosine decay for each seed, as one network or as snapshots of cycles."""
    found = compare(kind, list(seeds), adams(kind), ["valid"])
    return np.asarray(min((row["valid"] for row in found.values()), key=np.mean))


def validate(weights: Any) -> dict[str, float]:
    """Return the ratio of NLL to that of the best use of Adam, for each problem."""
    found = {}
    for kind in KINDS_VALIDATED:
        (row,) = compare(kind, list(SEEDS_VALIDATED), roams(kind, weights, "", [0.0]), ["valid"]).values()
        found[kind.name] = float(np.exp(np.mean(np.log(row["valid"] / adam_loss(kind, SEEDS_VALIDATED)))))
    return found


def outer_step(weights: Any, key: Any) -> tuple[Any, float]:
    """Return an estimate of the gradient of the mean log-loss, and the mean of the losses' logarithms."""
    kinds_key, noise_key, run_key = jax.random.split(key, 3)
    chosen = jax.random.choice(kinds_key, len(KINDS_TRAINED), (KINDS,), replace=False)
    leaves, treedef = jax.tree.flatten(weights)
    total, logs = [jnp.zeros_like(leaf) for leaf in leaves], []
    for place, index in enumerate(np.asarray(chosen)):
        keys = jax.random.split(jax.random.fold_in(noise_key, place), len(leaves))
        drawn = [jax.random.normal(k, (PAIRS, *leaf.shape)) for k, leaf in zip(keys, leaves, strict=True)]
        noise = jax.tree.leaves(trees.masked(treedef.unflatten(drawn), LAYERS))
        stacked = [jnp.concatenate([leaf + SIGMA * n, leaf - SIGMA * n]) for leaf, n in zip(leaves, noise, strict=True)]
        found = losses(KINDS_TRAINED[index], treedef.unflatten(stacked), jax.random.fold_in(run_key, place))
        log = np.log(found)
        difference = np.clip(log[:PAIRS] - log[PAIRS:], -CLIP, CLIP) / (2 * SIGMA * PAIRS * KINDS)
        total = [t + jnp.tensordot(jnp.asarray(difference, n.dtype), n, 1) for t, n in zip(total, noise, strict=True)]
        logs.append(float(np.mean(log)))
    return treedef.unflatten(total), float(np.mean(logs))


def main() -> None:
    """Train until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path, log = arguments.out / "state.safetensors", arguments.out / "log.jsonl"
    weights = roam_family(cycle_length=100).init(jax.random.key(arguments.seed))
    weights["layer1"] = trees.zeros_like(weights["layer1"])
    state = {"weights": weights, "m": trees.zeros_like(weights), "v": trees.zeros_like(weights),
             "average": weights, "step": np.zeros((), np.int32), "best": np.full((), np.inf, np.float32)}  # fmt: skip
    if path.exists():
        found = files.read_tensors(path)
        names = trees.named_leaves(state)
        state = jax.tree.unflatten(jax.tree.structure(state), [found[name.replace("/", ".")] for name in names])
    started = time.monotonic()
    while time.monotonic() - started < 60 * arguments.minutes:
        step = int(state["step"])
        record: dict[str, Any] = {"step": step}
        if step % VALIDATE_EVERY == 0 and step > 0:
            record["validation"] = validate(state["average"])
            ratio = float(np.exp(np.mean(np.log(list(record["validation"].values())))))
            record["ratio"] = ratio
            if ratio < float(state["best"]):
                state["best"] = np.asarray(ratio, np.float32)
                save(arguments.out / "weights.safetensors", state["average"])
        begun = time.process_time()
        gradient, record["log_loss"] = outer_step(
            state["weights"], jax.random.fold_in(jax.random.key(arguments.seed), step)
        )
        state = update(state, gradient)
        record["cpu_seconds"] = round(time.process_time() - begun, 2)
        with log.open("a") as file:
            file.write(json.dumps(record) + "\n")
        save(path, state)


def update(state: dict[str, Any], gradient: Any) -> dict[str, Any]:
    """Return the state after a step of Adam, with a running average of the weights, which is what is validated."""
    t = int(state["step"]) + 1
    m = trees.linear((0.9, state["m"]), (0.1, gradient))
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], gradient)
    scale = LEARNING_RATE / (1 - 0.9**t)
    move = lambda w, m, v: w - scale * m / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8)  # noqa: E731
    weights = jax.tree.map(move, state["weights"], m, v)
    average = trees.linear((0.95, state["average"]), (0.05, weights))
    return {**state, "weights": weights, "m": m, "v": v, "average": average, "step": np.asarray(t, np.int32)}


def save(path: Path, tree: Any) -> None:
    tensors = {name.replace("/", "."): np.asarray(leaf) for name, leaf in trees.named_leaves(tree).items()}
    files.write_bytes(path, files.pack_tensors(tensors))


if __name__ == "__main__":
    main()
