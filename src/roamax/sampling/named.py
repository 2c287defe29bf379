"""Samplers by name, with settings in terms of stochastic gradient descent, for the command line and estimators."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import jax

from roamax import pretrained
from roamax.errors import InputError, finite, flag, nearest, shown, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers import registry
from roamax.samplers.registry import Record, Run, Terms
from roamax.types import Key, Params, Sampler


@cache
def builder(record: Record) -> Callable[..., Sampler]:
    """Return the function of `roamax` that makes a sampler; that of a learned one also takes its weights by name."""
    return record.load() if record.family is None else pretrained.resolving(record.load())


def named_sampler(
    name: str,
    posterior: Posterior,
    *,
    num_steps: int,
    num_samples: int,
    init: Callable[[Key], Params],
    batch_size: int | None,
    regression: bool = False,
    learning_rate: float | None = None,
    momentum_decay: float = 0.1,
    argument: str = "learning_rate",
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Sampler:
    """Return the sampler of that name for a run of about `num_steps` steps and `num_samples` draws.

    A sampler in cycles gets one cycle per draw, or fewer and longer ones if it needs them (`Record.cycles`), and an
    ensemble one member per draw.

    Args:
        name: A name of `roamax.samplers.registry`.
        posterior: The posterior to sample.
        num_steps: The length of the run.
        num_samples: Draws per chain.
        init: A function of a key that returns an initial position.
        batch_size: Examples per minibatch; None is all.
        regression: Whether the defaults are those of a Gaussian likelihood.
        learning_rate: A learning rate on the mean loss; None for the sampler's default.
        momentum_decay: One minus the momentum.
        argument: The name of the learning rate in errors.
        options: Settings of the sampler itself, which override those derived from the learning rate.
    """
    record = registry.find(name)
    num_samples = whole(num_samples, "num_samples")
    _check_options(name, options, inspect.signature(record.load()).parameters)
    default = record.learning_rate(regression)
    steps_per_draw = num_steps // num_samples
    derived: dict[str, Any] = {}
    if record.draws == "cycle":
        derived |= record.cycles(run_of(num_steps, num_samples, posterior, init, batch_size, regression))
    if "cycle_length" in options:  # Starts were counted in cycles of another length.
        derived.pop("cycles_per_start", None)
    if default is not None:
        rate = finite(default if learning_rate is None else learning_rate, argument, above=0)
        decay = finite(momentum_decay, "momentum_decay", above=0, most=1)
        derived |= record.settings(Terms(rate, decay, posterior.num_data, steps_per_draw, init))
    elif learning_rate is not None:
        raise InputError(f"`{argument}` must not be given for {name}, which does not take one; got {learning_rate}.")
    return builder(record)(posterior, **{**derived, **options})


def run_of(
    num_steps: int,
    num_samples: int,
    posterior: Posterior,
    init: Callable[[Key], Params],
    batch_size: int | None,
    regression: bool,
) -> Run:
    """Return the facts that the cycles of a run are chosen by; its arguments are those of `named_sampler`."""
    parameters = trees.size(jax.eval_shape(init, jax.random.key(0)))
    num_data = posterior.num_data
    return Run(num_steps, num_samples, num_data, batch_size or num_data, parameters, regression)


def _check_options(name: str, options: Mapping[str, Any], taken: Mapping[str, inspect.Parameter]) -> None:
    known = [setting for setting in taken if setting != "posterior"]
    for setting, value in options.items():
        if setting not in known:
            raise InputError(f"`{shown(setting, 80)}` must be a setting of {name}: {nearest(setting, known)}")
        if isinstance(taken[setting].default, bool):
            flag(value, setting)


def draw_options(name: str, burn_in: int, thinning: int, batch_size: int | None) -> dict[str, Any]:
    """Return the options of `sample` for a sampler of that name.

    Args:
        name: A name of `roamax.samplers.registry`.
        burn_in: Steps before the first draw, for a sampler that can draw at every step.
        thinning: Steps between draws, for such a sampler.
        batch_size: Examples per minibatch, for a sampler that takes minibatches.
    """
    record = registry.find(name)
    own = record.draws == "step"
    return {
        "burn_in": burn_in if own else 0,
        "thinning": thinning if own else 1,
        "batch_size": None if record.full_batch else batch_size,
    }
