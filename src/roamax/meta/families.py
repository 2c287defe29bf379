"""The families of samplers that can be meta-trained, by name, and their initial weights."""

import inspect
import re
from typing import Any

import jax

from roamax import pretrained
from roamax.errors import check
from roamax.meta.config import TrainConfig
from roamax.numerics import trees
from roamax.samplers import registry
from roamax.types import Key, LearnedSampler, MetaParams


def settings(config: TrainConfig) -> dict[str, Any]:
    """Return the run's settings of its family of samplers, with which the weights are to be used."""
    known = inspect.signature(registry.find(config.sampler).load_family()).parameters
    return {name: getattr(config, name) for name in known if hasattr(config, name)}


def make_family(config: TrainConfig, step_size: float) -> LearnedSampler:
    """Return the family that `config` names, with a given step size."""
    return registry.find(config.sampler).load_family()(**{**settings(config), "step_size": step_size})


def initial_weights(config: TrainConfig, family: LearnedSampler, key: Key) -> MetaParams:
    """Return the weights that the run starts from, or random ones with output layers scaled by `init_scale`."""
    drawn = family.init(key)
    if config.weights is None:
        names = trees.named_leaves(drawn)
        scaled = [leaf * config.init_scale if _is_output(name, names) else leaf for name, leaf in names.items()]
        return jax.tree.unflatten(jax.tree.structure(drawn), scaled)
    given = trees.named_leaves(pretrained.resolve(config.weights, config.sampler).meta_params)
    expected = trees.named_leaves(drawn)
    check(given.keys() == expected.keys(), "weights", f"hold {', '.join(expected)}", ", ".join(given) or "nothing")
    for name, leaf in expected.items():
        check(given[name].shape == leaf.shape, "weights", f"hold {name} of shape {leaf.shape}", given[name].shape)
    return jax.tree.unflatten(jax.tree.structure(drawn), [given[name] for name in expected])


def _is_output(name: str, names: Any) -> bool:
    """Return whether a leaf belongs to the last layer of its network."""
    found = re.search(r"layer(\d+)", name)
    return found is not None and name.replace(found[0], f"layer{int(found[1]) + 1}") not in names
