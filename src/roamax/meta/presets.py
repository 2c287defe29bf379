"""Configs by name: the paper's, its small ablation, one for two cores, and one that is over in a minute."""

import math

from roamax.meta.config import Stage, TrainConfig

PRESETS: dict[str, TrainConfig] = {
    "paper": TrainConfig(),
    "small": TrainConfig(tasks="small"),
    "cpu": TrainConfig(
        tasks="cpu",
        stages=(
            Stage("tbptt", 300, 150, 6, 10, pairs=2, learning_rate=0.003, step_size=math.sqrt(8e-5)),
            Stage("tbptt", 300, 400, 8, 25, pairs=2, learning_rate=0.001),
            Stage("es", 1000, 1000, 10, 50, pairs=4, tasks=2, learning_rate=0.001),
        ),
        step_size=math.sqrt(2e-5),
        friction=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_steps=1000,
        valid_problems=8,
    ),
    "smoke": TrainConfig(
        tasks="smoke",
        stages=(
            Stage("tbptt", 8, 60, 4, 5, learning_rate=0.003, pairs=2),
            Stage("es", 8, 120, 4, 10, learning_rate=0.003, pairs=2),
            Stage("pes", 8, 120, 4, 10, truncation=30, learning_rate=0.003, pairs=2),
        ),
        step_size=math.sqrt(8e-5),
        friction=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_steps=120,
        valid_draws=4,
        valid_thinning=10,
        valid_every=4,
    ),
}
"""The presets of `roamax meta-train`; every number of them can be replaced with `dataclasses.replace`."""
