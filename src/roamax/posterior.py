"""The energy and its gradient from log-likelihood and log-prior; the only module that handles their scale."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from roamax.errors import check
from roamax.numerics.trees import leading_length
from roamax.types import Batch, Params


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

    def __post_init__(self) -> None:
        check(callable(self.log_likelihood), "log_likelihood", "be a function of (params, batch)", self.log_likelihood)
        check(callable(self.log_prior), "log_prior", "be a function of params", self.log_prior)
        check(
            self.num_data == int(self.num_data) and self.num_data >= 1,
            "num_data",
            "be a whole number >= 1",
            self.num_data,
        )

    def energy(self, params: Params, batch: Batch) -> jax.Array:
        """Return the energy of `params`, estimated from `batch`, on full-data scale."""
        length = leading_length(batch, "batch")
        check(length <= self.num_data, "num_data", f"be at least the length of a batch, {length}", self.num_data)
        log_likelihood = self.log_likelihood(params, batch)
        check(
            log_likelihood.shape == (length,),
            "log_likelihood",
            f"return one number per example, shape {(length,)}",
            log_likelihood.shape,
        )
        return -(self.num_data / length) * jnp.sum(log_likelihood) - self.log_prior(params)

    def energy_and_grad(self, params: Params, batch: Batch) -> tuple[jax.Array, Params]:
        """Return the energy and its gradient, both on full-data scale."""
        return jax.value_and_grad(self.energy)(params, batch)
