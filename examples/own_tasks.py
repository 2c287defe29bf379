"""Meta-training on custom tasks, and sampling with the result.

A task is data, a network and a prior. This example learns a sampler on small networks for two moons, then uses it on a
network that it has not seen. A minute of training makes a sampler for problems like these, not a general one:
docs/meta-training.md says what that takes.

    python examples/own_tasks.py
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

import jax

import roamax
from roamax.meta import PRESETS, Stage
from roamax.tasks import TaskDistribution, make_task


def moons(name, hidden):
    """Return a task from arrays: the sampler trains on the first pair, is scored on the second, tested on the third."""
    data = roamax.data.load("two_moons")
    train, valid = (data.x_train[:800], data.y_train[:800]), (data.x_train[800:], data.y_train[800:])
    model = roamax.models.get("mlp", num_classes=2, hidden=hidden)
    return make_task(name, model, train, valid, (data.x_test, data.y_test), batch_size=32)


def main(quick=False):
    tasks = TaskDistribution("moons", (moons("narrow", [16]), moons("deep", [8, 8])))
    unroll = {"inner_steps": 120, "num_samples": 4, "thinning": 10}
    stages = (
        Stage("tbptt", 40, **unroll, learning_rate=0.003),
        Stage("es", 3 if quick else 40, **unroll, learning_rate=0.001, pairs=2, only="narrow"),
    )
    # The other settings are those of the preset, such as small random initial weights.
    config = dataclasses.replace(PRESETS["smoke"], stages=stages[quick:], valid_only="narrow", held_out=200)
    with tempfile.TemporaryDirectory() as folder:
        trained = roamax.meta.train(config, folder, tasks=tasks)
        print(f"validation loss of the best weights: {trained.loss:.3f}")
        # Step size, friction and output scale come from the card next to the file.
        task = moons("wide", [64])
        sampler = roamax.l2e(task.posterior, Path(folder) / "weights.safetensors")
        draws = roamax.sample(jax.random.key(1), sampler, task.init, task.train, batch_size=task.batch_size,
                              burn_in=100, num_samples=5, thinning=20)  # fmt: skip
    x, y = task.test
    accuracy = roamax.metrics.accuracy(roamax.predict(task.apply, draws, x), y)
    print(f"on a network that it has not seen: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
