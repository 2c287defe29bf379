"""The families of samplers that can be meta-trained, by name."""

from collections.abc import Callable
from typing import Any

from roamax.errors import lookup
from roamax.meta.config import TrainConfig
from roamax.samplers.l2e import l2e_family
from roamax.types import LearnedSampler


def make_family(config: TrainConfig, step_size: float) -> LearnedSampler:
    """The family that `config` names, at a step size."""
    settings = {
        "step_size": step_size,
        "friction": config.friction,
        "temperature": config.temperature,
        "output_scale": config.output_scale,
    }
    return lookup(_FAMILIES, config.sampler, "sampler")(config, settings)


_FAMILIES: dict[str, Callable[[TrainConfig, dict[str, Any]], LearnedSampler]] = {
    "l2e": lambda config, settings: l2e_family(**settings, passes=config.passes),
}
