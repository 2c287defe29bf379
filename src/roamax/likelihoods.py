"""Log-likelihoods for `Posterior(log_likelihood=...)`: of class labels and of real targets."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from roamax.types import Batch, Params


def categorical(apply_fn: Callable[[Params, jax.Array], jax.Array]) -> Callable[[Params, Batch], jax.Array]:
    """The log-likelihood of class labels under the softmax of `apply_fn(params, x)`; a batch is `(x, y)`.

    A label outside the classes gives NaN, which stops a chain, instead of a silent wrong class.
    """

    def log_likelihood(params: Params, batch: Batch) -> jax.Array:
        x, y = batch
        log_probs = jax.nn.log_softmax(apply_fn(params, x))
        labels = jnp.where(y < 0, log_probs.shape[-1], y)
        return jnp.take_along_axis(log_probs, labels[:, None], axis=-1, mode="fill")[:, 0]

    return log_likelihood


def gaussian(
    apply_fn: Callable[[Params, jax.Array], tuple[jax.Array, jax.Array]],
) -> Callable[[Params, Batch], jax.Array]:
    """The log-likelihood of real targets under the mean and scale that `apply_fn(params, x)` gives.

    A batch is `(x, y)`. Targets with several outputs are summed over them; scale broadcasts to the mean.
    """

    def log_likelihood(params: Params, batch: Batch) -> jax.Array:
        x, y = batch
        mean, scale = apply_fn(params, x)
        log_density = jax.scipy.stats.norm.logpdf(y, mean, jnp.broadcast_to(scale, mean.shape))
        return jnp.sum(log_density, axis=tuple(range(1, log_density.ndim)))

    return log_likelihood
