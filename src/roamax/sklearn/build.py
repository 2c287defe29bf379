"""The network, the prior, the data and the sampler for an estimator's arguments.

The same settings give the same function objects, scalars are arguments of the compiled program, and the number of rows
is one of few: a second fit with other settings, or to slightly fewer rows, compiles nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, wraps
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import models, priors
from roamax.errors import check
from roamax.models import Model
from roamax.models.model import widths as widths
from roamax.posterior import Posterior
from roamax.samplers import registry
from roamax.sampling.named import named_sampler
from roamax.sampling.shared import Kind, shared
from roamax.tasks import Task
from roamax.types import Batch, Key, Params, Sampler

SHARED = ("sgld", "psgld", "sghmc")
"""Samplers whose scalars are arguments of one program."""
SCALARS = ("step_size", "friction", "temperature")
FEWEST_ROWS, ROWS_PER_DOUBLING = 16, 4
"""Numbers of rows grow from the first by this many sizes per doubling: at most a fifth of them are copies."""


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


class Rows(NamedTuple):
    """Training rows with weights: the log-likelihood of a row counts as often as its weight says."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray


def in_few_sizes(rows: Rows) -> Rows:
    """Repeat the first rows until their number is one of few; copies share the weight of their row."""
    length = len(rows.x)
    size = FEWEST_ROWS
    while size < length:
        size = math.ceil(FEWEST_ROWS * 2 ** (round(ROWS_PER_DOUBLING * math.log2(size / FEWEST_ROWS) + 1) / 4))
    taken = np.arange(size) % length
    copies = np.bincount(taken, minlength=length)
    return Rows(rows.x[taken], rows.y[taken], (rows.weight / copies)[taken])


@cache
def weighted(log_likelihood: Callable[[Params, Batch], jax.Array]) -> Callable[[Params, Batch], jax.Array]:
    """Return the log-likelihood of `Rows`."""

    @wraps(log_likelihood)
    def of_rows(params: Params, batch: Batch) -> jax.Array:
        x, y, weight = batch
        return weight * log_likelihood(params, (x, y))

    return of_rows


def build_sampler(
    sampler: str | Sampler | Callable[[Posterior], Sampler],
    posterior: Posterior,
    task: Task,
    prior: float | None,
    num_steps: int,
    num_samples: int,
    options: Mapping[str, Any],
) -> Sampler:
    """Build the sampler of a posterior from its name or a function; a `Sampler` is returned as it is.

    Args:
        sampler: What the estimator was given.
        posterior: The posterior to sample.
        task: The task that it comes from.
        prior: The scale of the default prior; None if the prior is another.
        num_steps: The length of the run.
        num_samples: Draws per chain.
        options: Settings of a sampler given by name.
    """
    if isinstance(sampler, Sampler):
        return sampler
    if not isinstance(sampler, str):
        check(callable(sampler), "sampler", "be a name, a roamax.Sampler or a function of a posterior", sampler)
        return _from_function(sampler, posterior)
    own = dict(options)
    rate = own.pop("learning_rate", None)
    arguments = (sampler, posterior, task.init, task.batch_size, task.is_regression, num_steps, num_samples, rate)
    chosen = tuple(sorted(own.items()))
    try:
        hash(chosen)
    except TypeError:
        return _by_name.__wrapped__(*arguments, chosen)
    built = _by_name(*arguments, chosen)
    return _shared(built, posterior, prior) if sampler in SHARED else built


def _shared(sampler: Sampler, posterior: Posterior, prior: float | None) -> Sampler:
    """Return the sampler with its scalars, and the scale of the prior, as arguments of its program."""
    scalars = {name: value for name, value in sampler.settings.items() if name in SCALARS and isinstance(value, float)}
    fixed = {name: value for name, value in sampler.settings.items() if name not in {*scalars, "name"}}
    if not {*fixed}.isdisjoint(SCALARS):  # A schedule.
        return sampler
    scale = {} if prior is None else {"scale": prior}
    make_prior = _always(posterior.log_prior) if prior is None else priors.fan_in_gaussian
    make = registry.find(sampler.settings["name"]).load()
    kind = Kind(make, posterior.log_likelihood, make_prior, posterior.num_data, tuple(fixed.items()))
    return shared(sampler, kind, scalars, scale)


@cache
def _always(log_prior: Callable[[Params], jax.Array]) -> Callable[[], Callable[[Params], jax.Array]]:
    return lambda: log_prior


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
    batch_size: int,
    regression: bool,
    num_steps: int,
    num_samples: int,
    learning_rate: float | None,
    options: tuple[tuple[str, Any], ...],
) -> Sampler:
    return named_sampler(
        name,
        posterior,
        num_steps=num_steps,
        num_samples=num_samples,
        init=init,
        batch_size=batch_size,
        regression=regression,
        learning_rate=learning_rate,
        options=dict(options),
    )
