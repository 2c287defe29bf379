"""One recipe for every learned sampler that ships beside `l2e`, so that what differs between them is what they are.

python training/variants.py NAME [--out training/NAME]     NAME is one of VARIANTS; run again, it goes on

`l2e-control` is L2E itself by this recipe: what the others are to be compared with.
"""

import argparse
import dataclasses
from pathlib import Path

from roamax import meta
from roamax.meta import Stage, TrainConfig
from roamax.tasks import TaskDistribution, TaskSpec


def tasks(small: bool = False) -> TaskDistribution:
    """Perceptrons at 14x14: three data sets, two networks, many and few examples.

    `small` has one of each, after the small distribution of the paper's ablation. Equal sizes compile once.
    """
    specs = [
        TaskSpec(data, "mlp", {"hidden": hidden}, halve=True, train_size=size, batch_size=64)
        for data, hidden, size in (
            ("fashion_mnist", [32], 50_000),
            ("mnist", [32], 50_000),
            ("mnist", [32, 32], 50_000),
            ("fashion_mnist", [32, 32], 50_000),
            ("fashion_mnist", [32], 1_000),
            ("mnist", [32], 1_000),
            ("bloodmnist", [32], 10_000),
        )
    ]
    return TaskDistribution("variants", tuple(specs[:1] if small else specs))


def recipe(**changed) -> TrainConfig:
    """Backpropagation through short unrolls, longer ones, and truncations of long ones, on perceptrons."""
    return TrainConfig(
        tasks="training/variants.py",
        stages=(
            Stage("tbptt", 60, 150, 6, 10, pairs=2, tasks=2, learning_rate=0.003, step_size=8e-5**0.5),
            Stage("tbptt", 60, 400, 8, 25, pairs=2, tasks=2, learning_rate=0.001, step_size=2e-5**0.5),
            Stage("tbptt", 80, 3000, 10, 50, truncation=100, pairs=4, tasks=4, learning_rate=0.001),
        ),
        friction=0.1,
        clip_norm=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_every=20,
        valid_problems=6,
        valid_steps=2000,
        valid_thinning=100,
        **changed,
    )


VARIANTS = {
    "l2e-control": recipe(),
    "l2e-ce": recipe(objective="ce"),
    "l2e-small": recipe(),
    "kinetic-l2e": recipe(sampler="kinetic_l2e"),
    "precond-l2e": recipe(sampler="precond_l2e"),
    "meta-sgmcmc": dataclasses.replace(
        meta.PRESETS["meta-sgmcmc"],
        tasks="training/variants.py",
        stages=(Stage("tbptt", 300, 2000, num_draws=5, thinning=10, truncation=50, learning_rate=3e-4),),
        valid_problems=6,
        valid_steps=2000,
        valid_thinning=100,
    ),
}


def main() -> None:
    """Train one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(VARIANTS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or Path(__file__).parent / arguments.name
    meta.train(VARIANTS[arguments.name], out, tasks=tasks(small=arguments.name == "l2e-small"))


if __name__ == "__main__":
    main()
