"""The energy and its gradient from log-likelihood and log-prior; the only module that handles their scale."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from roamax.errors import check, whole
from roamax.numerics.trees import leading_length
from roamax.types import Batch, NoData, Params


@dataclass(frozen=True)
class Posterior:
    """An unnormalised posterior over any pytree of parameters.

    The energy is on full-data scale,

        U(theta) = -(N / |B|) sum_{i in B} log p(y_i | x_i, theta) - log p(theta),

    so that its minibatch gradient is an unbiased estimate of the gradient over all data.

    Args:
        log_likelihood: A function of (params, batch) that returns one number per example of the batch.
        log_prior: A function of params that returns one number.
        num_data: N, the number of training examples.
    """

    log_likelihood: Callable[[Params, Batch], jax.Array]
    log_prior: Callable[[Params], jax.Array]
    num_data: int

    @classmethod
    def from_log_density(cls, log_density: Callable[[Params], jax.Array]) -> "Posterior":
        """Make a posterior from its log-density alone, to be sampled with `data=None`.

        Args:
            log_density: A function of params that returns one number, log p(theta) up to a constant.

        Returns:
            The posterior, U(theta) = -log_density(theta).
        """
        check(callable(log_density), "log_density", "be a function of params", log_density)
        return cls(_no_likelihood, log_density, num_data=1)

    def __post_init__(self) -> None:
        check(callable(self.log_likelihood), "log_likelihood", "be a function of (params, batch)", self.log_likelihood)
        check(callable(self.log_prior), "log_prior", "be a function of params", self.log_prior)
        object.__setattr__(self, "num_data", whole(self.num_data, "num_data"))

    def energy(self, params: Params, batch: Batch) -> jax.Array:
        """Return the energy of `params`, estimated from `batch`, on full-data scale."""
        takes_data = self.log_likelihood is not _no_likelihood
        given = "None" if isinstance(batch, NoData) else "arrays"
        check(takes_data or given == "None", "data", "be None for a posterior made from its log-density", given)
        check(not takes_data or given != "None", "data", "be given for a posterior with a likelihood", given)
        length = leading_length(batch, "batch")
        check(length <= self.num_data, "num_data", f"be at least the length of a batch, {length}", self.num_data)
        log_likelihood = _shaped(self.log_likelihood(params, batch), (length,), "log_likelihood", "per example, ")
        return -(self.num_data / length) * jnp.sum(log_likelihood) - _shaped(self.log_prior(params), (), "log_prior")

    def energy_and_grad(self, params: Params, batch: Batch) -> tuple[jax.Array, Params]:
        """Return the energy and its gradient, both on full-data scale."""
        return jax.value_and_grad(self.energy)(params, batch)


def _no_likelihood(params: Params, batch: Batch) -> jax.Array:
    return jnp.zeros((1,), jnp.result_type(*jax.tree.leaves(params)))


def _shaped(value: Any, shape: tuple[int, ...], argument: str, each: str = "") -> Any:
    """Return what a function of the user's returned, if it has this shape; a flat prior may return 0.0."""
    found = () if isinstance(value, int | float) else getattr(value, "shape", type(value).__name__)
    check(found == shape, argument, f"return one number {each}of shape {shape}", found)
    return value
