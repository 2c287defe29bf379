"""Configs by name: the paper's, its small ablation and its baseline, one for two cores, and one that takes a minute."""

import math

from roamax.meta.config import Stage, TrainConfig

_SMALLEST = "mnist-half/mlp:hidden=32:train_size=50000"
_LAST_LAYER = Stage("es", 1000, 2000, 10, 150, pairs=5, tasks=5, sigma=0.02, learning_rate=0.005, only="mlp",
                    layers="layer2")  # fmt: skip

PRESETS: dict[str, TrainConfig] = {
    "paper": TrainConfig(),
    "small": TrainConfig(tasks="small"),
    "meta-sgmcmc": TrainConfig(
        sampler="meta_sgmcmc",
        objective="kl",
        chains=2,
        stages=(Stage("tbptt", 1000, 5000, num_samples=5, thinning=10, truncation=50, learning_rate=3e-4),),
        step_size=1e-3,
        valid_steps=5000,
    ),
    "cpu": TrainConfig(
        tasks="cpu",
        # Short unrolls with long steps teach a sampler to move at all, longer ones with shorter steps where to move.
        # Both use the smallest networks only: backpropagation on more tasks made worse samplers. Step lengths in long
        # runs, with many inputs or few examples, are left to evolution strategies on the last layer.
        stages=(
            Stage("tbptt", 115, 150, 6, 10, pairs=2, tasks=2, learning_rate=0.003, step_size=8e-5**0.5, only=_SMALLEST),
            Stage("tbptt", 250, 400, 8, 25, pairs=2, tasks=2, learning_rate=0.001, step_size=2e-5**0.5, only=_SMALLEST),
            _LAST_LAYER,
        ),
        step_size=5e-6**0.5,
        friction=0.1,
        output_scale=0.1,
        init_scale=0.1,
        valid_problems=12,
        valid_steps=2000,
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
        valid_samples=4,
        valid_thinning=10,
        valid_every=5,
        valid_only="hidden=16",
    ),
}
"""The presets of `roamax meta-train`; change any setting with `dataclasses.replace`."""
