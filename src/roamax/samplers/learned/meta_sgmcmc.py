"""Meta-SGMCMC (Gong et al., 2019): learned diffusion and curl, the baseline among learned samplers."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import check, finite, lookup
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers.learned import _network
from roamax.samplers.learned._groups import Groups
from roamax.samplers.learned._recipe import Matrices, recipe_step
from roamax.samplers.learned._scalars import Scalars
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar, Weights

WIDTHS = {"q": (2, 10, 1), "d": (3, 10, 1)}
DEFAULTS = {"step_size": math.sqrt(1e-6)}
"""Settings for weights without a card: those of the paper."""
FEW = 4
"""The momentum of tensors with fewer numbers is not normalised."""
Gamma = Literal["autodiff", "finite_difference"]


class MetaSGMCMCState(NamedTuple):
    """The position, its momentum, and the number of steps taken."""

    position: Params
    momentum: Params
    step: jax.Array


def meta_sgmcmc(
    posterior: Posterior,
    meta_params: MetaParams | Weights = "pretrained",
    *,
    step_size: Scalar | None = None,
    temperature: Scalar = 1.0,
    q_clip: float = 5.0,
    d_clip: float = 100.0,
    gamma: Gamma = "autodiff",
) -> Sampler:
    """Return the recipe's dynamics with learned diagonal matrices Q and D, which need no Hessian:

        r     <- r - epsilon (Q grad U + D r - T Gamma_r) + N(0, 2 D epsilon T)
        theta <- theta + epsilon (Q r + T Gamma_theta)
        Gamma_theta = -dQ/dr,   Gamma_r = dQ/dtheta + dD/dr    (diagonals)

    Q = clip(output) comes from a network with 10 hidden units whose inputs are the energy and the momentum, and
    D = clip(|output|) from another that takes the gradient too. Momentum and gradient (grad U / N) are divided by their
    root mean squares over the tensor. The energy is one number for all parameters, which this would turn into 1 or -1,
    so it enters as U / N instead. The momentum of a tensor of fewer than 4 numbers enters as it is: its root mean
    square comes near 0 so often that Gamma would be a spike there, which steps of finite length miss. The
    momentum starts from N(0, T I) with the T of the first step.

    Q depends on theta only through the energy, whose derivative is the gradient at hand, so the diagonals in Gamma are
    exact and cheap: derivatives of the networks, parameter by parameter, times those of their features.

    Guarantee: in the limit of small steps the chain samples the posterior, whatever the weights. With minibatches, the
    noise of energy and gradient inside Q and D adds to that of SGHMC.

    Args:
        posterior: The posterior to sample.
        meta_params: The weights, as in `l2e`.
        step_size: epsilon; None takes it from the weights' card, or else from `DEFAULTS`.
        temperature: T; 1 samples the posterior.
        q_clip: Q is clipped to [-q_clip, q_clip].
        d_clip: D is clipped to [0, d_clip].
        gamma: How the networks are differentiated: "autodiff", or "finite_difference" as by the method's authors.

    Returns:
        The sampler.
    """
    weights = Weights.of(meta_params)
    check_weights(weights.meta_params, weights.source)
    family = meta_sgmcmc_family(
        **weights.settings(DEFAULTS, step_size=step_size),
        temperature=temperature,
        q_clip=q_clip,
        d_clip=d_clip,
        gamma=gamma,
    )
    return family.bind(weights.meta_params, posterior)


def check_weights(meta_params: MetaParams, argument: str) -> None:
    """Check that the weights are those of two networks, `q` and `d`, of the right sizes."""
    names = sorted(meta_params) if isinstance(meta_params, dict) else [type(meta_params).__name__]
    check(names == sorted(WIDTHS), argument, "hold two networks, d and q", ", ".join(names) or "nothing")
    for name, widths in WIDTHS.items():
        _network.check_mlp(meta_params[name], widths, f"{argument}: {name}")


def meta_sgmcmc_family(
    *,
    step_size: Scalar = DEFAULTS["step_size"],
    temperature: Scalar = 1.0,
    q_clip: float = 5.0,
    d_clip: float = 100.0,
    gamma: Gamma = "autodiff",
) -> LearnedSampler:
    """Return the family of `meta_sgmcmc` samplers, indexed by their weights, for meta-training.

    Args:
        step_size: epsilon.
        temperature: T; 1 samples the posterior.
        q_clip: Q is clipped to [-q_clip, q_clip].
        d_clip: D is clipped to [0, d_clip].
        gamma: How the networks are differentiated, as in `meta_sgmcmc`.

    Returns:
        Functions that draw weights, and that bind weights to a posterior.
    """
    scalars = Scalars(step_size=step_size, temperature=temperature)
    q_clip, d_clip = finite(q_clip, "q_clip", above=0), finite(d_clip, "d_clip", above=0)
    slope = lookup({"autodiff": _slope, "finite_difference": _difference}, gamma, "gamma")

    def init_weights(key: Key) -> MetaParams:
        keys = jax.random.split(key, len(WIDTHS))
        return {name: _network.init_mlp(k, widths) for k, (name, widths) in zip(keys, WIDTHS.items(), strict=True)}

    def bind(meta_params: MetaParams, posterior: Posterior) -> Sampler:
        check_weights(meta_params, "meta_params")

        def init(key: Key, position: Params) -> MetaSGMCMCState:
            start = jnp.zeros((), jnp.int32)
            return MetaSGMCMCState(position, trees.stationary_momentum(key, position, scalars.at(start)[1]), start)

        def matrices(energy: jax.Array, gradient: Params, momentum: Params) -> Matrices:
            layout = Groups.of(momentum)
            weights = _network.cast(meta_params, layout.dtype)
            r, mean_gradient = layout.pack(momentum), layout.pack(gradient) / posterior.num_data
            mean_energy = jnp.full(layout.shape, energy.astype(layout.dtype) / posterior.num_data)
            few = np.asarray(layout.sizes)[layout.owners, None] < FEW
            features = jnp.stack(
                [mean_energy, jnp.where(few, r, layout.normalised(r)), layout.normalised(mean_gradient)]
            )

            def q_of(features: jax.Array) -> jax.Array:
                return jnp.clip(_network.apply_mlp(weights["q"], features[:2])[0], -q_clip, q_clip)

            def d_of(features: jax.Array) -> jax.Array:
                return jnp.clip(jnp.abs(_network.apply_mlp(weights["d"], features)[0]), 0, d_clip)

            r_slope = jnp.where(few, 1, layout.normalised_slope(r))
            gamma_theta = -slope(q_of, features, 1) * r_slope
            gamma_r = slope(q_of, features, 0) * mean_gradient + slope(d_of, features, 1) * r_slope
            return Matrices(*map(layout.unpack, (q_of(features), d_of(features), gamma_theta, gamma_r)))

        def step(key: Key, state: MetaSGMCMCState, batch: Batch) -> tuple[MetaSGMCMCState, Info]:
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            learned = matrices(energy, gradient, state.momentum)
            epsilon, temperature = scalars.at(state.step)
            position, momentum = recipe_step(
                key, state.position, state.momentum, gradient, learned, epsilon, temperature
            )
            return MetaSGMCMCState(position, momentum, state.step + 1), Info(energy)

        settings = {
            "name": "meta_sgmcmc",
            **scalars.settings,
            "q_clip": q_clip,
            "d_clip": d_clip,
            "gamma": gamma,
            "weights": _network.checksum(meta_params),
        }
        return Sampler(init, step, settings=settings, posterior=posterior)

    return LearnedSampler(init_weights, bind)


def _slope(function: Callable[[jax.Array], jax.Array], features: jax.Array, index: int) -> jax.Array:
    """Return d function / d features[index] for each parameter, for a function that acts on parameters one by one."""
    direction = jnp.zeros_like(features).at[index].set(1)
    return jax.jvp(function, (features,), (direction,))[1]


def _difference(function: Callable[[jax.Array], jax.Array], features: jax.Array, index: int) -> jax.Array:
    """Return `_slope` as a central difference, whose step balances rounding against curvature."""
    width = jnp.finfo(features.dtype).eps ** (1 / 3)
    ahead, behind = (function(features.at[index].add(sign * width)) for sign in (1, -1))
    return (ahead - behind) / (2 * width)
