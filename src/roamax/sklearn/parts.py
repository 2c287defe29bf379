"""What the scikit-learn estimators are put together from: scaling, a network, a prior and a sampler that suit the data.

Functions are made once for the same settings, so that a second fit to data of the same shape compiles nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import models, priors
from roamax.errors import check
from roamax.models import Model
from roamax.posterior import Posterior
from roamax.samplers.registry import named_sampler
from roamax.sampling.draws import Draws
from roamax.tasks import Task
from roamax.types import Key, Params, Sampler

ROWS = 256, 1024
"""Predictions are made for so many inputs at once, a program for each of the two sizes."""


class Defaults(NamedTuple):
    """What stands for None in an estimator's arguments."""

    temperature: float
    prior: float


class Scaling(NamedTuple):
    """A mean and a standard deviation for each feature or target."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, standardize: bool = True) -> "Scaling":
        """The moments of `values` over rows; a constant keeps its scale."""
        shape = values.shape[1:]
        if not standardize:
            return cls(np.zeros(shape), np.ones(shape))
        mean, scale = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
        # The rounding error of a constant's mean is no spread.
        constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, scale))

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Standardised values, in single precision."""
        return ((values - self.mean) / self.scale).astype(np.float32)

    def back(self, values: np.ndarray) -> np.ndarray:
        """Standardised values in their own units."""
        return values.astype(np.float64) * self.scale + self.mean


def default_hidden(num_data: int) -> tuple[int, ...]:
    """The widths of the default network: a second layer pays where there are data for it."""
    return (100,) if num_data < 1000 else (100, 100)


def network(model: Model | str | None, hidden: Sequence[int], outputs: int, *, classes: bool) -> Model:
    """The network: the default, one of the zoo by name, or one's own."""
    if isinstance(model, Model):
        return model
    check(model is None or isinstance(model, str), "model", "be a roamax.models.Model, a name or None", model)
    name = model or ("mlp" if classes else "mlp_regression")
    known = models.options(name)
    wanted = {"num_classes": outputs, "outputs": outputs, "hidden": tuple(hidden)}
    return models.get(name, **{option: value for option, value in wanted.items() if option in known})


@cache
def default_prior(scale: float) -> Callable[[Params], jax.Array]:
    """The prior for a number: see `roamax.priors.fan_in_gaussian`."""
    return priors.fan_in_gaussian(scale=scale)


def build_sampler(
    sampler: str | Sampler | Callable[[Posterior], Sampler],
    task: Task,
    num_steps: int,
    num_samples: int,
    options: Mapping[str, Any],
) -> Sampler:
    """The sampler for a task: by its name, from a function of the posterior, or as it is."""
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


def joined(first: Draws, second: Draws) -> Draws:
    """The draws of the same chains, one run after the other."""
    parts = first.positions, second.positions
    return Draws.from_positions(jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts))


def filled_up(x: np.ndarray) -> np.ndarray:
    """Rows repeated up to a round number, so that few programs serve all numbers of inputs."""
    rows = next((rows for rows in ROWS if len(x) <= rows), -(-len(x) // ROWS[-1]) * ROWS[-1])
    return x[np.minimum(np.arange(rows), len(x) - 1)]


def mixture_quantiles(means: np.ndarray, stds: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of equal mixtures of Gaussians along the first axis, (..., levels), by bisection of their CDF."""
    from scipy.special import ndtr, ndtri

    # A quantile of a mixture lies between the least and the greatest of its members' own.
    own = means[..., None] + stds[..., None] * ndtri(levels)
    low, high = own.min(axis=0), own.max(axis=0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = np.mean(
            [ndtr((middle - m[..., None]) / s[..., None]) for m, s in zip(means, stds, strict=True)], axis=0
        )
        low, high = np.where(below < levels, middle, low), np.where(below < levels, high, middle)
    return 0.5 * (low + high)
