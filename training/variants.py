"""One recipe for every learned sampler that ships beside `l2e`, so that what differs between them is what they are.

python training/variants.py NAME [--out training/NAME]     NAME is one of VARIANTS; run again, it goes on

`l2e-control` is L2E itself by this recipe: what the others are to be compared with.
"""

import argparse
import dataclasses
from pathlib import Path

from roamax import meta
from roamax.meta import Stage, TrainConfig

SMALL = "fashion_mnist-half/mlp:hidden=32"
"""One data set and the two smallest networks, after the small distribution of the paper's ablation."""


def recipe(only: str = "mlp", **changed) -> TrainConfig:
    """Backpropagation through short unrolls, longer ones, and truncations of long ones, on perceptrons."""
    return TrainConfig(
        tasks="cpu",
        stages=(
            Stage("tbptt", 60, 150, 6, 10, pairs=2, tasks=2, learning_rate=0.003, step_size=8e-5**0.5, only=only),
            Stage("tbptt", 60, 400, 8, 25, pairs=2, tasks=2, learning_rate=0.001, step_size=2e-5**0.5, only=only),
            Stage("tbptt", 80, 3000, 10, 50, truncation=100, pairs=4, tasks=4, learning_rate=0.001, only=only),
        ),
        friction=0.1,
        clip_norm=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_every=20,
        valid_problems=6,
        valid_steps=2000,
        valid_thinning=100,
        valid_only=only,
        **changed,
    )


VARIANTS = {
    "l2e-control": recipe(),
    "l2e-ce": recipe(objective="ce"),
    "l2e-small": recipe(SMALL),
    "kinetic-l2e": recipe(sampler="kinetic_l2e"),
    "precond-l2e": recipe(sampler="precond_l2e"),
    "meta-sgmcmc": dataclasses.replace(
        meta.PRESETS["meta-sgmcmc"],
        tasks="cpu",
        stages=(Stage("tbptt", 300, 2000, num_draws=5, thinning=10, truncation=50, learning_rate=3e-4, only="mlp"),),
        valid_only="mlp",
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
    meta.train(VARIANTS[arguments.name], arguments.out or Path(__file__).parent / arguments.name)


if __name__ == "__main__":
    main()
