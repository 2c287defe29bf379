"""Configs by name: the paper's, its small ablation and its baseline, one for two cores, and one that is soon over."""

import math

from roamax.meta.config import Stage, TrainConfig

PRESETS: dict[str, TrainConfig] = {
    "paper": TrainConfig(),
    "small": TrainConfig(tasks="small"),
    "meta-sgmcmc": TrainConfig(
        sampler="meta_sgmcmc",
        objective="kl",
        chains=2,
        stages=(Stage("tbptt", 1000, 5000, num_draws=5, thinning=10, truncation=50, learning_rate=3e-4),),
        step_size=1e-3,
        valid_steps=5000,
    ),
    "cpu": TrainConfig(
        tasks="cpu",
        # Short unrolls, whole, teach a sampler to move at all. Long ones, which go on from one outer step to the next,
        # teach it what short ones do not show: that few data are fitted soon, and what to do from there on.
        stages=(
            Stage("tbptt", 60, 150, 6, 10, pairs=2, tasks=2, learning_rate=0.003, step_size=8e-5**0.5, only="mlp"),
            Stage("tbptt", 60, 400, 8, 25, pairs=2, tasks=2, learning_rate=0.001, step_size=2e-5**0.5, only="mlp"),
            Stage("tbptt", 600, 4000, 10, 50, truncation=100, pairs=4, tasks=4, learning_rate=0.001, only="mlp"),
            Stage("tbptt", 600, 4000, 10, 50, truncation=100, pairs=4, tasks=4, learning_rate=0.0003, only="mlp"),
        ),
        friction=0.1,
        clip_norm=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_every=50,
        valid_problems=12,
        valid_thinning=150,
    ),
    "smoke": TrainConfig(
        tasks="smoke",
        # Evolution strategies and validation run the same unroll, so that little has to be compiled.
        stages=(
            Stage("tbptt", 20, 60, 4, 5, learning_rate=0.003, only="hidden=16"),
            Stage("es", 10, 120, 4, 10, learning_rate=0.001, pairs=2, only="hidden=16"),
        ),
        step_size=math.sqrt(8e-5),
        friction=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_steps=120,
        valid_draws=4,
        valid_thinning=10,
        valid_every=5,
        valid_only="hidden=16",
    ),
}
"""The presets of `roamax meta-train`; every number of them can be replaced with `dataclasses.replace`."""
