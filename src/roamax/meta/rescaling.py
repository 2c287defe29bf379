"""Tasks in rescaled coordinates, so that one task teaches what many of different widths would.

A learned sampler sees features that are normalised within a tensor, so the length of its steps does not depend on the
scale of the parameters. The right length does, and users' networks are wider than those of meta-training. So each
tensor theta of an unroll becomes theta' = theta / f, with f drawn log-uniformly from [1 / rescale, rescale]. The
posterior stays the same; the sampler has to infer from its gradients how far to move.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from roamax.posterior import Posterior
from roamax.types import Key, Params


def coordinates(
    posterior: Posterior, rescale: float, key: Key, like: Params
) -> tuple[Posterior, Callable[[Params], Params]]:
    """Return the posterior as a function of theta', and the map from theta to theta'; `like` has theta's structure."""
    if rescale == 1:
        return posterior, lambda params: params
    leaves, structure = jax.tree.flatten(like)
    exponents = jax.random.uniform(key, (len(leaves),), minval=-1.0, maxval=1.0) * math.log(rescale)
    factors = structure.unflatten([jnp.exp(e).astype(leaf.dtype) for e, leaf in zip(exponents, leaves, strict=True)])

    def back(params: Params) -> Params:
        return jax.tree.map(jnp.multiply, params, factors)

    rescaled = dataclasses.replace(
        posterior,
        log_likelihood=lambda params, batch: posterior.log_likelihood(back(params), batch),
        log_prior=lambda params: posterior.log_prior(back(params)),
    )
    return rescaled, lambda params: jax.tree.map(jnp.divide, params, factors)
