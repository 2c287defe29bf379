"""The network, the prior and the sampler for an estimator's arguments.

The same settings give the same function objects, so that a second fit to data of the same shape compiles nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax

from roamax import models, priors
from roamax.errors import check
from roamax.models import Model
from roamax.posterior import Posterior
from roamax.sampling.named import named_sampler
from roamax.tasks import Task
from roamax.types import Key, Params, Sampler


class Defaults(NamedTuple):
    """The values that None stands for in an estimator's arguments."""

    temperature: float
    prior: float


def default_hidden(num_data: int) -> tuple[int, ...]:
    """Return the widths of the default network: a second layer pays off with enough data."""
    return (100,) if num_data < 1000 else (100, 100)


def network(model: Model | str | None, hidden: Sequence[int], outputs: int, *, classes: bool) -> Model:
    """Return the network: the default, one from the zoo by name, or a custom one."""
    if isinstance(model, Model):
        return model
    check(model is None or isinstance(model, str), "model", "be a roamax.models.Model, a name or None", model)
    name = model or ("mlp" if classes else "mlp_regression")
    known = models.options(name)
    wanted = {"num_classes": outputs, "outputs": outputs, "hidden": tuple(hidden)}
    return models.get(name, **{option: value for option, value in wanted.items() if option in known})


@cache
def default_prior(scale: float) -> Callable[[Params], jax.Array]:
    """Return `roamax.priors.fan_in_gaussian` with this scale."""
    return priors.fan_in_gaussian(scale=scale)


def build_sampler(
    sampler: str | Sampler | Callable[[Posterior], Sampler],
    task: Task,
    num_steps: int,
    num_samples: int,
    options: Mapping[str, Any],
) -> Sampler:
    """Build the sampler for a task from its name or a function of the posterior; a `Sampler` is returned as it is."""
    if isinstance(sampler, Sampler):
        return sampler
    if not isinstance(sampler, str):
        check(callable(sampler), "sampler", "be a name, a roamax.Sampler or a function of a posterior", sampler)
        return _from_function(sampler, task.posterior)
    arguments = (sampler, task.posterior, task.init, task.is_regression, num_steps, num_samples)
    chosen = tuple(sorted(options.items()))
    try:
        hash(chosen)
    except TypeError:
        return _by_name.__wrapped__(*arguments, chosen)
    return _by_name(*arguments, chosen)


@lru_cache(maxsize=64)
def _from_function(sampler: Callable[[Posterior], Sampler], posterior: Posterior) -> Sampler:
    built = sampler(posterior)
    check(isinstance(built, Sampler), "sampler", "return a roamax.Sampler", type(built).__name__)
    return built


@lru_cache(maxsize=64)
def _by_name(
    name: str,
    posterior: Posterior,
    init: Callable[[Key], Params],
    regression: bool,
    num_steps: int,
    num_samples: int,
    options: tuple[tuple[str, Any], ...],
) -> Sampler:
    return named_sampler(
        name,
        posterior,
        num_steps=num_steps,
        num_samples=num_samples,
        init=init,
        regression=regression,
        **dict(options),
    )
