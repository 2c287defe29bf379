"""The recipes of the learned samplers that ship.

python training/variants.py NAME [--seed 0] [--out training/NAME]     NAME is one of VARIANTS; run again to resume

All are trained on the smallest perceptrons, on MNIST and Fashion-MNIST at 14x14: L2E and its ablations by
backpropagation through 150 and then 400 steps, the others through truncations of long unrolls. Weights are chosen by
runs of 2,000 steps, also on perceptrons with 784 inputs and on few examples; those of L2E with a shorter step.
"""

import argparse
import dataclasses
from functools import partial
from pathlib import Path

from roamax import meta
from roamax.meta import Stage, TrainConfig
from roamax.meta.config import SamplerName
from roamax.tasks import TaskDistribution, TaskSpec


def tasks(small: bool = False) -> TaskDistribution:
    """Return the tasks: those with batches of 64 are for training, the others for validation only.

    With `small`, there is one data set, after the small distribution of the paper's ablation.
    """
    specs = [
        *(TaskSpec(data, "mlp", {"hidden": [32]}, halve=True, train_size=50_000, batch_size=64) for data in DATA),
        *(TaskSpec(data, "mlp", {"hidden": [16]}, train_size=50_000) for data in DATA),
        TaskSpec("fashion_mnist", "mlp", {"hidden": [32]}, halve=True, train_size=1_000),
    ]
    return TaskDistribution("variants", tuple(spec for spec in specs if not small or spec.data == DATA[0]))


def long_tasks() -> TaskDistribution:
    """Return the tasks of the evolution strategies: perceptrons and CNNs of several widths, on three data sets."""
    specs = []
    for data in (*DATA, "bloodmnist"):
        half = partial(TaskSpec, data, halve=True, train_size=10_000 if data == "bloodmnist" else 48_000, batch_size=32)
        specs += [half("mlp", {"hidden": [width]}) for width in (16, 32)]
        specs += [half("cnn", {"channels": channels}) for channels in (4, 8)]
        specs += [TaskSpec(data, "mlp", {"hidden": [16]}, halve=True, train_size=1_000, batch_size=32)]
    specs += [half("cnn", {"channels": 4, "depth": 2})]
    return TaskDistribution("long", tuple(specs))


def paper_tasks() -> TaskDistribution:
    """Return the paper's tasks as far as two cores reach: CNNs on three of its four data sets, at half the resolution.

    Networks have 4 or 8 channels and one or two layers, with and without a shortcut.
    """
    specs = []
    for data in (*DATA, "bloodmnist"):
        half = partial(TaskSpec, data, "cnn", halve=True, train_size=10_000 if data == "bloodmnist" else 48_000)
        for shortcut in ({}, {"residual": True}):
            specs += [half({"channels": channels, **shortcut}, batch_size=64) for channels in (4, 8)]
            specs += [half({"channels": 4, "depth": 2, **shortcut}, batch_size=32)]
    return TaskDistribution("paper-half", tuple(specs))


DATA = "fashion_mnist", "mnist"
TRAINED = "batch_size=64"
TUNED = 2e-6**0.5
"""The step size of SGHMC, tuned to MNIST or Fashion-MNIST."""


def recipe(**changed) -> TrainConfig:
    """Return the `cpu` preset without its evolution strategies, with some settings changed."""
    preset = meta.PRESETS["cpu"]
    stages = tuple(dataclasses.replace(stage, only=TRAINED) for stage in preset.stages[:2])
    return dataclasses.replace(
        preset, **{"tasks": "training/variants.py", "stages": stages, "valid_problems": 8, **changed}
    )


def truncated(learning_rate: float) -> Stage:
    """Return a stage of backpropagation through truncations of 50 steps of long unrolls."""
    return Stage("tbptt", 2000, 2000, 5, 10, truncation=50, pairs=2, tasks=2, learning_rate=learning_rate, only=TRAINED)


def from_sghmc(sampler: SamplerName, output_scale: float) -> TrainConfig:
    """Return the recipe of a sampler that is SGHMC if its network returns zero, with the tuned settings of SGHMC.

    Short unrolls taught such samplers steps that diverge in long ones.
    """
    like = recipe(sampler=sampler, step_size=TUNED, friction=0.1 / TUNED, output_scale=output_scale)
    return dataclasses.replace(like, stages=(truncated(1e-3),), valid_every=100)


LAST_LAYER = Stage("es", 1000, 3000, 10, 150, pairs=9, tasks=9, sigma=0.02, learning_rate=0.003, compared="log",
                   layers="layer2")  # fmt: skip
VARIANTS = {
    "l2e": recipe(),
    "l2e-es": recipe(stages=(LAST_LAYER,), weights="l2e", step_size=5e-7**0.5, valid_problems=16, valid_steps=3000),
    # The paper's recipe but for its tasks, in twice its outer steps, then a shorter step.
    "l2e-paper": TrainConfig(
        tasks="training/variants.py",
        stages=(Stage(outer_steps=2000), Stage(outer_steps=150, learning_rate=0.002)),
        valid_every=50,
        valid_problems=9,
    ),
    "l2e-ce": recipe(objective="ce"),
    "l2e-small": recipe(),
    "kinetic-l2e": from_sghmc("kinetic_l2e", output_scale=1.0),
    "kinetic-l2e-paper": recipe(
        sampler="kinetic_l2e",
        form="paper",
        step_size=2e-7**0.5,
        # The momentum follows f within some 100 steps: within ten, nothing is left to learn.
        friction=0.01 / 2e-7**0.5,
        output_scale=1.0,
        stages=tuple(dataclasses.replace(stage, step_size=None) for stage in recipe().stages),
    ),
    "precond-l2e": from_sghmc("precond_l2e", output_scale=0.1),
    "meta-sgmcmc": dataclasses.replace(
        meta.PRESETS["meta-sgmcmc"],
        tasks="training/variants.py",
        stages=(truncated(3e-3),),
        valid_every=100,
        valid_problems=8,
        valid_steps=2000,
        valid_thinning=150,
    ),
}
DISTRIBUTIONS = {"l2e-es": long_tasks, "l2e-paper": paper_tasks, "l2e-small": partial(tasks, small=True)}
"""The tasks of variants with other tasks than the rest."""


def tasks_of(name: str) -> TaskDistribution:
    """Return the tasks of a variant."""
    return DISTRIBUTIONS.get(name, tasks)()


def main() -> None:
    """Train a variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(VARIANTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    config = dataclasses.replace(VARIANTS[arguments.name], seed=arguments.seed)
    out = arguments.out or Path(__file__).parent / arguments.name
    meta.train(config, out, tasks=tasks_of(arguments.name))


if __name__ == "__main__":
    main()
