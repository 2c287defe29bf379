"""Precond-L2E: an ablation of L2E that learns the matrices D and Q of the recipe instead of the kinetic energy."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import check, finite
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers.learned import _network
from roamax.samplers.learned._groups import Groups
from roamax.samplers.learned._recipe import Matrices, recipe_step
from roamax.samplers.learned._scalars import Scalars
from roamax.samplers.learned._slopes import outputs_and_slopes
from roamax.samplers.learned.l2e import DECAYS
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar, Weights

DEFAULTS = {"step_size": math.sqrt(2e-5), "friction": 0.05, "output_scale": 0.1}
"""Settings for weights without a card."""


class PrecondL2EState(NamedTuple):
    """The position, its momentum, running averages of the gradient per group, and the number of steps taken."""

    position: Params
    momentum: Params
    averages: jax.Array
    step: jax.Array


def precond_l2e(
    posterior: Posterior,
    meta_params: MetaParams | Weights = "pretrained",
    *,
    step_size: Scalar | None = None,
    friction: Scalar | None = None,
    temperature: Scalar = 1.0,
    output_scale: Scalar | None = None,
    curvature: bool = True,
    decays: Sequence[float] = DECAYS,
) -> Sampler:
    """Return the recipe's dynamics with learned diagonal matrices Q = 1 + q and D = |C + d|:

        r     <- r - epsilon (Q grad U + D r - T Gamma_r) + N(0, 2 D epsilon T)
        theta <- theta + epsilon (Q r + T Gamma_theta)
        Gamma_theta = -dQ/dr,   Gamma_r = dQ/dtheta + dD/dr    (diagonals)

    q and d are the outputs, times `output_scale`, of one network with the size and the nine inputs of L2E's; with all
    weights 0 this is SGHMC. The diagonals in Gamma come from Jacobian-vector products with random signs v: the mean of
    v * (J v) is the diagonal of J, and its noise comes only from coupling between parameters. The
    momentum starts from N(0, T I) with the T of the first step.

    Guarantee: if Q and D are functions of theta and r, then in the limit of small steps the chain samples the
    posterior, whatever the weights. The gradient is a function of theta, and Gamma accounts for it. Running averages
    are not: they hold the past, of which Gamma knows only the latest contribution, so the guarantee is lost to the
    extent that Q and D depend on them. `decays=()` leaves them out.

    Args:
        posterior: The posterior to sample.
        meta_params: The weights, as in `l2e`.
        step_size: epsilon; None takes it, like `friction` and `output_scale`, from the weights' card, or else from
            `DEFAULTS`.
        friction: C.
        temperature: T; 1 samples the posterior.
        output_scale: The factor of q and d.
        curvature: Whether Gamma accounts for the gradient's dependence on theta, at the cost of a Hessian-vector
            product per step; False is biased.
        decays: The decays of the running averages of the gradient.

    Returns:
        The sampler.
    """
    weights = Weights.of(meta_params)
    _network.check_mlp(weights.meta_params, widths(decays), weights.source)
    family = precond_l2e_family(
        **weights.settings(DEFAULTS, step_size=step_size, friction=friction, output_scale=output_scale),
        temperature=temperature,
        curvature=curvature,
        decays=decays,
    )
    return family.bind(weights.meta_params, posterior)


def widths(decays: Sequence[float]) -> tuple[int, ...]:
    """Return the widths of the network for these running averages."""
    check(isinstance(decays, Sequence) and not isinstance(decays, str), "decays", "be a list of numbers", decays)
    for decay in decays:
        finite(decay, "decays", least=0, below=1)
    return 3 + len(decays), 32, 32, 2


def precond_l2e_family(
    *,
    step_size: Scalar,
    friction: Scalar,
    temperature: Scalar = 1.0,
    output_scale: Scalar = DEFAULTS["output_scale"],
    curvature: bool = True,
    decays: Sequence[float] = DECAYS,
) -> LearnedSampler:
    """Return the family of `precond_l2e` samplers, indexed by their weights, for meta-training.

    Args:
        step_size: epsilon.
        friction: C.
        temperature: T; 1 samples the posterior.
        output_scale: The factor of q and d.
        curvature: As in `precond_l2e`.
        decays: The decays of the running averages of the gradient.

    Returns:
        Functions that draw weights, and that bind weights to a posterior.
    """
    scalars = Scalars(step_size=step_size, friction=friction, temperature=temperature, output_scale=output_scale)
    network_widths = widths(decays)

    def bind(meta_params: MetaParams, posterior: Posterior) -> Sampler:
        _network.check_mlp(meta_params, network_widths, "meta_params")

        def init(key: Key, position: Params) -> PrecondL2EState:
            layout = Groups.of(position)
            averages = jnp.zeros((len(decays), *layout.shape), layout.dtype)
            start = jnp.zeros((), jnp.int32)
            momentum = trees.stationary_momentum(key, position, scalars.at(start)[2])
            return PrecondL2EState(position, momentum, averages, start)

        def step(key: Key, state: PrecondL2EState, batch: Batch) -> tuple[PrecondL2EState, Info]:
            noise_key, sign_key = jax.random.split(key)
            signs = jax.tree.map(jnp.sign, trees.normal_like(sign_key, state.position))
            energy, gradient, moved = _gradient_along(posterior, state.position, batch, signs if curvature else None)
            layout = Groups.of(state.position)
            decay = jnp.asarray(decays, layout.dtype)[:, None, None]
            epsilon, friction, temperature, scale = scalars.at(state.step)
            friction, scale = jnp.asarray(friction, layout.dtype), jnp.asarray(scale, layout.dtype)
            weights = _network.cast(meta_params, layout.dtype)
            theta, r, v = map(layout.pack, (state.position, state.momentum, signs))
            mean_gradient, mean_moved = (layout.pack(tree) / posterior.num_data for tree in (gradient, moved))

            averages = decay * state.averages + (1 - decay) * mean_gradient[None]
            features = mean_gradient, theta, r, averages
            # Each feature is normalised alone, so that all can move at once: r along itself, the others along theta.
            moves = mean_moved, v, v, (1 - decay) * mean_moved[None]
            normalised, shifts = jax.jvp(lambda *xs: [layout.normalised(x) for x in xs], features, moves)

            def packed_matrices(outputs: jax.Array, slopes: jax.Array, shifts: list[jax.Array]) -> list[jax.Array]:
                q, d = 1 + scale * outputs[0], friction + scale * outputs[1]
                each = [*shifts[:3], *shifts[3]]
                of_q, of_d = ([scale * slope * shift for slope, shift in zip(x, each, strict=True)] for x in slopes)
                q_by_r, d_by_r = of_q.pop(2), jnp.sign(d) * of_d[2]
                return [q, jnp.abs(d), -v * q_by_r, v * (sum(of_q) + d_by_r)]

            packed = _apart(packed_matrices, *outputs_and_slopes(weights, normalised), shifts)
            matrices = Matrices(*map(layout.unpack, packed))
            position, momentum = recipe_step(
                noise_key, state.position, state.momentum, gradient, matrices, epsilon, temperature
            )
            return PrecondL2EState(position, momentum, averages, state.step + 1), Info(energy)

        settings = {
            "name": "precond_l2e",
            **scalars.settings,
            "curvature": curvature,
            "decays": list(decays),
            "weights": _network.checksum(meta_params),
        }
        return Sampler(init, step, settings=settings, posterior=posterior)

    return LearnedSampler(lambda key: _network.init_mlp(key, network_widths), bind)


def _gradient_along(
    posterior: Posterior, theta: Params, batch: Batch, direction: Params | None
) -> tuple[jax.Array, Params, Params]:
    """Return energy, gradient, and the gradient's derivative along `direction`, zeros if that is None."""
    if direction is None:
        energy, gradient = posterior.energy_and_grad(theta, batch)
        return energy, gradient, trees.zeros_like(gradient)
    (energy, gradient), (_, moved) = jax.jvp(lambda x: posterior.energy_and_grad(x, batch), (theta,), (direction,))
    return energy, gradient, moved


def _apart(function: Callable[..., Any], *args: Any) -> Any:
    """Return `function(*args)`, which on CPUs is compiled apart from what uses it.

    Fused into the loops over single tensors, sums over groups take several times as long. XLA fuses nothing out of a
    branch, if it does not see that its condition always holds.
    """
    if jax.default_backend() != "cpu":
        return function(*args)
    always = jax.lax.optimization_barrier(jnp.bool_(True))
    results = jax.eval_shape(function, *args)
    return jax.lax.cond(always, function, lambda *_: trees.zeros_like(results), *args)
