"""Meta-training of `roam`'s scheduler by evolution strategies on many short runs of small networks.

python training/roam/train.py [--out training/roam/run] [--steps 500] [--minutes 60] [--seed 0]

Run again, it resumes from its state.

Of the scheduler's 424 numbers, those of the output layer are trained. The hidden layer is made by hand: sixteen units
pass on a feature each, with mean 0 and deviation 1 over runs of the hand-made sampler, and four are bends of the
schedule. So the start is the hand-made sampler, and a number has the same effect in every direction, which a hidden
layer as drawn does not give.

Each outer step takes some of the kinds of tasks and runs antithetic pairs of perturbed weights on them, from the same
initial positions and with the same batches. A pair counts by the difference of the logarithms of its losses, clipped,
so that no task dominates. The loss is the NLL, on held-out data, of the average over the ends of cycles. Now and then
the running average of the weights is validated on larger networks than were trained on. `log.jsonl` has one line per
outer step.
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
from evaluate import TASKS, compare, ends_of, roams
from runs import Kind, draws, finite, mlp, nll, task_of

from roamax import roam_family
from roamax.host import files
from roamax.numerics import trees
from roamax.samplers.learned._roam_plan import WIDTHS
from roamax.tasks import TaskSpec

PAIRS, KINDS, CLIP = 2, 7, 0.03
"""Pairs per kind, kinds per outer step, and the largest difference of a pair that counts."""
LEARNING_RATE, SHRINKING = 0.1, 0.02
"""The step of Adam in units of a perturbation, at first, and the pull to the hand-made sampler relative to it."""
OF_BIAS, OF_WEIGHTS = np.asarray([0.2, 0.2, 0.2, 0.4]), np.asarray([0.08, 0.08, 0.0, 0.0])
OF_DECAY = 0, 1, 6, 9, 10, 11
"""Deviations of perturbations, by output, and the features that the decay depends on. Look-ahead and damping are the
same everywhere: their dependence on features had no gradient that could be told from noise."""
VALIDATE_EVERY, SEEDS_VALIDATED = 300, (1000, 1001)
HELD_OUT = 3000
"""Held-out examples by which runs are compared."""
OFFSET = 4.0
"""Added to the units that pass on a feature, so that they are never below 0."""
CENTRE = np.asarray([0.0, 0.0, -0.2, 0.8, -1.1, -0.6, 0.5, 0.4, -0.2, -0.5, 0.6, -0.6, 1.0, 0.0, 0.0, 0.0])
SCALE = np.asarray([0.3, 0.3, 0.4, 0.4, 1.0, 0.5, 0.5, 0.9, 0.6, 0.8, 0.9, 1.0, 0.4, 0.15, 0.3, 0.3])


def cnn(data: str, channels: int, depth: int, size: int, **options: Any) -> TaskSpec:
    options = {"channels": channels, "depth": depth, **options}
    return TaskSpec(data, "cnn", options, halve=True, train_size=size, batch_size=32)


def whole_cnn(data: str, channels: int, size: int, bottleneck: int) -> TaskSpec:
    options = {"channels": channels, "depth": 1, "bottleneck": bottleneck}
    return TaskSpec(data, "cnn", options, train_size=size, batch_size=64)


def line(hidden: list[int], batch: int, **options: Any) -> TaskSpec:
    options = {"hidden": hidden, "noise_scale": 0.1, **options}
    return TaskSpec("regression_1d", "mlp_regression", options, train_size=900, batch_size=batch)


KINDS_TRAINED = (
    Kind(mlp("digits", [32], 1000), 800),
    Kind(mlp("digits", [64, 64], 1000, 32), 1000),
    Kind(mlp("mnist", [16], 40_000, halve=True), 2000),
    Kind(mlp("mnist", [64], 5_000, halve=True), 1000),
    Kind(mlp("mnist", [32], 50_000, 128), 800),
    Kind(mlp("mnist", [32, 32], 50_000, halve=True), 500, 3),
    Kind(mlp("mnist", [32, 32, 32, 32], 50_000, 32, halve=True), 1500),
    Kind(mlp("fashion_mnist", [32], 40_000, halve=True), 2000),
    Kind(mlp("fashion_mnist", [128], 20_000, 128, halve=True), 500),
    Kind(mlp("fashion_mnist", [32, 32, 32], 10_000, 32, halve=True), 1500),
    Kind(mlp("bloodmnist", [32, 16], 10_000, halve=True), 1000),
    Kind(mlp("cifar10", [32], 8_000, 32, halve=True), 1000),
    Kind(line([32, 32], 32), 600),
    Kind(line([64], 32), 1000),
    Kind(line([50, 50], 128, activation="tanh"), 500, 2),
    Kind(cnn("mnist", 4, 1, 20_000), 500),
    Kind(cnn("fashion_mnist", 4, 2, 40_000), 600),
    Kind(cnn("cifar10", 4, 2, 20_000, bottleneck=20), 600),
    Kind(whole_cnn("fashion_mnist", 8, 40_000, 20), 1000),
    Kind(whole_cnn("fashion_mnist", 12, 20_000, 32), 600),
    Kind(whole_cnn("mnist", 12, 40_000, 20), 600),
)
VALIDATED = ("mnist", "wide", "deep", "conv", "line", "cifar_cnn")


def weights_of(numbers: Any) -> Any:
    """Return the scheduler's weights, given the (21, 4) numbers that are trained: a bias, and a row per hidden unit."""
    inputs, hidden, _ = WIDTHS
    w, b = np.zeros((inputs, hidden)), np.zeros(hidden)
    w[np.arange(inputs), np.arange(inputs)] = 1 / SCALE
    b[:inputs] = OFFSET - CENTRE / SCALE
    # The first tenth of a cycle; its second half; the place in it, for matrices only; and gradients that agree.
    w[0, 16], b[16] = -20.0, -8.0
    w[0, 17] = 4.0
    w[0, 18], w[6, 18], b[18] = 3.0, 3.0, -1.5
    w[11, 19] = 2.0
    offsets = jnp.where(jnp.arange(hidden) < inputs, OFFSET, 0.5)
    numbers = jnp.asarray(numbers, jnp.float32)
    return {
        "layer0": {"w": jnp.asarray(w, jnp.float32), "b": jnp.asarray(b, jnp.float32)},
        "layer1": {"w": numbers[1:], "b": numbers[0] - offsets @ numbers[1:]},
    }


def deviations() -> np.ndarray:
    rows = np.tile(OF_WEIGHTS, (WIDTHS[1], 1))
    rows[[unit for unit in range(WIDTHS[1]) if unit not in OF_DECAY], 1] = 0
    return np.concatenate([OF_BIAS[None], rows])


def score(kind: Kind, losses: Any) -> np.ndarray:
    """Return the logarithms of losses, or themselves in regression, where they may be negative."""
    losses = finite(losses)
    return losses if "regression" in kind.spec.model else np.log(losses)


@functools.cache
def runner(kind: Kind):
    """Return a compiled function of stacked numbers and keys that computes the loss of each."""
    task = task_of(kind.spec)
    # The weights that ship were trained so; averaging by default came later.
    family = roam_family(cycle_length=kind.cycle, temperature=0.0, averaging=0.0)

    def run(numbers: Any, key: Any, train: Any, valid: Any) -> jax.Array:
        return nll(draws(family.bind(weights_of(numbers), task.posterior), task, ends_of(kind), key, train, valid))

    return jax.jit(lambda rows, train, valid: jax.lax.map(lambda row: run(*row, train, valid), rows))


def losses(kind: Kind, numbers: Any, keys: Any) -> np.ndarray:
    task = task_of(kind.spec)
    valid = jax.tree.map(lambda array: array[:HELD_OUT], task.valid)
    return score(kind, runner(kind)((jnp.asarray(numbers, jnp.float32), keys), task.train, valid))


def validate(weights: Any, seeds: tuple[int, ...] = SEEDS_VALIDATED) -> dict[str, list[float]]:
    """Return the score on each problem and for each seed."""
    found = {}
    for name in VALIDATED:
        kind = Kind(TASKS[name], 2000)
        (row,) = compare(kind, list(seeds), roams(kind, weights, "", [0.0]), ["valid"]).values()
        found[name] = score(kind, row["valid"]).round(4).tolist()
    return found


def outer_step(numbers: np.ndarray, step: int, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Return an estimate of the gradient of the mean score, per deviation of a perturbation, and what to log."""
    # All kinds in turn, in an order that changes.
    per_round = len(KINDS_TRAINED) // KINDS
    order = np.random.default_rng([seed, step // per_round]).permutation(len(KINDS_TRAINED))
    chosen = order[(step % per_round) * KINDS :][:KINDS]
    rng = np.random.default_rng([seed, step, 1])
    total, log = np.zeros_like(numbers), {}
    for index in chosen:
        noise = rng.normal(size=(PAIRS, *numbers.shape))
        rows = np.concatenate([numbers + deviations() * noise, numbers - deviations() * noise])
        keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), PAIRS)
        found = losses(KINDS_TRAINED[index], rows, jnp.concatenate([keys, keys]))
        difference = (found[:PAIRS] - found[PAIRS:]) / 2
        total += np.tensordot(np.clip(difference, -CLIP, CLIP), noise, 1) / (PAIRS * len(chosen))
        log[str(index)] = [*found.mean(keepdims=True).round(4).tolist(), *difference.round(4).tolist()]
    return total, log


def main() -> None:
    """Train until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "run")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path, log = arguments.out / "state.safetensors", arguments.out / "log.jsonl"
    zeros = np.zeros((1 + WIDTHS[1], WIDTHS[-1]))
    state = {"numbers": zeros, "m": zeros, "v": zeros, "average": zeros, "step": np.zeros((), np.int32)}
    if path.exists():
        state = files.read_tensors(path)
    started = time.monotonic()
    while time.monotonic() - started < 60 * arguments.minutes and int(state["step"]) < arguments.steps:
        step = int(state["step"])
        begun = time.process_time()
        gradient, kinds = outer_step(state["numbers"], step, arguments.seed)
        state = update(state, gradient, 1 - step / arguments.steps)
        record = {"step": step, "kinds": kinds, "cpu_seconds": round(time.process_time() - begun, 2)}
        if (step + 1) % VALIDATE_EVERY == 0:
            record["validation"] = validate(weights_of(state["average"]))
        if (step + 1) % 50 == 0:
            save(arguments.out / f"weights-{step + 1}.safetensors", weights_of(state["average"]))
        with log.open("a") as file:
            file.write(json.dumps(record) + "\n")
        save(path, state)


def update(state: dict[str, Any], gradient: np.ndarray, left: float) -> dict[str, Any]:
    """Return the state after a step of Adam, with a running average of the numbers, which is what is validated.

    Args:
        state: The numbers, the averages of Adam, and the step.
        gradient: Per deviation of a perturbation.
        left: The part of the training that is left, a factor of the step.
    """
    t = int(state["step"]) + 1
    m = 0.9 * state["m"] + 0.1 * gradient
    v = 0.98 * state["v"] + 0.02 * np.square(gradient)
    # One scale for all: the noise of all numbers is alike, and a small gradient is mostly noise.
    size = np.sqrt(np.mean(v) / (1 - 0.98**t)) + 1e-8
    rate = LEARNING_RATE * left
    numbers = (1 - rate * SHRINKING) * state["numbers"] - rate * deviations() * m / size
    average = state["average"] + max(0.03, 1 / t) * (numbers - state["average"])
    return {"numbers": numbers, "m": m, "v": v, "average": average, "step": np.asarray(t, np.int32)}


def save(path: Path, tree: Any) -> None:
    tensors = {name.replace("/", "."): np.asarray(leaf) for name, leaf in trees.named_leaves(tree).items()}
    files.write_bytes(path, files.pack_tensors(tensors))


if __name__ == "__main__":
    main()
