"""Antithetic evolution strategies, over whole unrolls or persistent over truncations of them.

They follow the gradient of the smoothed loss E L(phi + eta), eta ~ N(0, sigma^2 I), from losses alone: one pair of
unrolls that differ in the sign of eta, and in nothing else, gives

    g = xi (L(phi + eta) - L(phi - eta)) / (2 sigma^2),

where xi is the sum of the perturbations that the unroll has met so far. Over a whole unroll that is eta itself.
With truncations the loss of each carries the effect of all perturbations before it, which the sum takes into
account: truncated, yet unbiased for the mean of the truncations' losses (persistent evolution strategies, Vicol et
al., 2021). A perturbation that is drawn once for an unroll and kept (noise reuse, Li et al., 2023) makes xi that
one perturbation, and the variance smaller.
"""

from functools import partial

import jax

from roamax.numerics import trees
from roamax.types import Key, MetaParams


def noise_number(estimator: str, truncation: int) -> int:
    """Which of its key's perturbations a truncation runs with."""
    return truncation if estimator == "pes" else 0


@partial(jax.jit, static_argnames="layers")
def perturbed(meta_params: MetaParams, key: Key, scale: jax.Array, number: jax.Array, layers: str = "") -> MetaParams:
    """phi + scale * n, with n ~ N(0, I) the key's perturbation of that number; scale is sigma with a sign.

    Tensors whose names do not contain `layers` stay as they are.
    """
    return trees.linear((1.0, meta_params), (scale, _noise(meta_params, key, number, layers)))


@partial(jax.jit, static_argnames="layers")
def gradient(
    meta_params: MetaParams, key: Key, difference: jax.Array, sigma: jax.Array, count: jax.Array, layers: str = ""
) -> MetaParams:
    """xi * difference / (2 sigma^2), with xi the sum of the key's first `count` perturbations.

    The perturbations are made again from the key: no worker has to send them.
    """

    def add(number: jax.Array, total: MetaParams) -> MetaParams:
        return trees.linear((1.0, total), (sigma, _noise(meta_params, key, number, layers)))

    total = jax.lax.fori_loop(0, count, add, trees.zeros_like(meta_params))
    return trees.linear((difference / (2 * sigma**2), total))


def _noise(meta_params: MetaParams, key: Key, number: jax.Array, layers: str) -> MetaParams:
    return trees.masked(trees.normal_like(jax.random.fold_in(key, number), meta_params), layers)
