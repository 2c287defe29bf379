"""Evolution strategies on the last layer of given weights, over runs as long as a user's.

python training/last_layer.py WEIGHTS OUT [--steps 300] [--squared-step-size 2e-6]

Backpropagation learns features quickly and is biased about how far to go with them. The last layer, 66 numbers, decides
how far; for so few, losses alone are enough. The tasks have many inputs to a unit, where too long a step shows.
"""

import argparse
import math
from pathlib import Path

from roamax import meta
from roamax.meta import Stage, TrainConfig
from roamax.tasks import TaskDistribution, TaskSpec


def tasks() -> TaskDistribution:
    """Perceptrons with 784 and with 196 inputs, many and few examples."""
    specs = (
        TaskSpec("fashion_mnist", "mlp", {"hidden": [16]}, train_size=50_000),
        TaskSpec("mnist", "mlp", {"hidden": [16]}, train_size=50_000),
        TaskSpec("fashion_mnist", "mlp", {"hidden": [32]}, halve=True, train_size=1_000),
        TaskSpec("mnist", "mlp", {"hidden": [32]}, halve=True, train_size=1_000),
        TaskSpec("bloodmnist", "mlp", {"hidden": [32]}, halve=True, train_size=10_000),
    )
    return TaskDistribution("last-layer", specs)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--squared-step-size", type=float, default=2e-6)
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--sigma", type=float, default=0.02)
    parser.add_argument("--sampler", default="l2e")
    parser.add_argument("--objective", default="bma")
    parser.add_argument("--layers", default="layer2")
    arguments = parser.parse_args()
    stage = Stage(
        "es", arguments.steps, 2000, 10, 150, pairs=5, tasks=5, sigma=arguments.sigma,
        learning_rate=arguments.learning_rate, layers=arguments.layers,
    )  # fmt: skip
    config = TrainConfig(
        sampler=arguments.sampler, objective=arguments.objective, tasks="training/last_layer.py", stages=(stage,),
        weights=str(arguments.weights), step_size=math.sqrt(arguments.squared_step_size), friction=0.1,
        output_scale=0.1, valid_every=10, valid_problems=10, valid_steps=2000, valid_thinning=150,
    )  # fmt: skip
    meta.use_cpu_devices(2)
    meta.train(config, arguments.out, tasks=tasks())


if __name__ == "__main__":
    main()
