"""Kinetic-L2E: a learned mean of the momentum, and so a kinetic energy that exists by construction."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import lookup
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers.learned import _network
from roamax.samplers.learned._groups import Groups
from roamax.samplers.learned._scalars import Scalars
from roamax.samplers.learned._slopes import outputs_and_slopes
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar, Weights

WIDTHS = (2, 32, 32, 1)
DEFAULTS = {"step_size": math.sqrt(2e-5), "friction": 0.05, "output_scale": 1e-3}
"""Settings for weights without a card."""


class KineticL2EState(NamedTuple):
    """The position, its momentum (before the first step, its distance to the mean), and the number of steps taken."""

    position: Params
    momentum: Params
    step: jax.Array


def kinetic_l2e(
    posterior: Posterior,
    meta_params: MetaParams | Weights = "pretrained",
    *,
    step_size: Scalar | None = None,
    friction: Scalar | None = None,
    temperature: Scalar = 1.0,
    output_scale: Scalar | None = None,
    differentiate_gradient: bool = False,
    form: str | None = None,
) -> Sampler:
    """Return SGHMC with p(r | theta) = N(f(theta), I), where f is a network applied to every parameter.

    The kinetic energy g(theta, r) = |r - f(theta)|^2 / 2 has, with J the Jacobian of f, the gradients

        grad_theta g = -J' (r - f),     grad_r g = r - f

    and a step is

        r     <- r - epsilon [grad U + grad_theta g + C (r - f)] + N(0, 2 C epsilon T)
        theta <- theta + epsilon (r - f)

    with the *new* momentum in the second line. The inputs of f are theta and grad U / N, each divided by its root mean
    square over the tensor; its output is multiplied by `output_scale`. J' (r - f) is a vector-Jacobian product through
    the network and the root mean squares, which couple the parameters of a tensor. The momentum starts from
    N(f(theta), T I) with the T of the first step.

    Guarantee: the integral of exp(-g) over r is the same for every theta, so in the limit of small steps the chain
    samples the posterior, whatever the weights, provided that J is the full Jacobian. f depends on theta through the
    gradient as well: `differentiate_gradient=True` accounts for that and is exact. The default treats the gradient as a
    constant, as is usual for learned optimizers, which is cheap, but biased to the extent that f depends on it.

    `form="paper"` is the update as the paper prints it, with J' f in place of grad_theta g and the *old* momentum in
    the second line. It keeps no known distribution: neither term belongs to the kinetic energy above.

    Args:
        posterior: The posterior to sample.
        meta_params: The weights, as in `l2e`.
        step_size: epsilon; None takes it, like `friction` and `output_scale`, from the weights' card, or else from
            `DEFAULTS`.
        friction: C.
        temperature: T; 1 samples the posterior.
        output_scale: The factor of f.
        differentiate_gradient: Whether J includes the gradient's dependence on theta, at the cost of a Hessian-vector
            product per step.
        form: "consistent", the equations above, or "paper"; None is the form that the weights were trained in.

    Returns:
        The sampler.
    """
    weights = Weights.of(meta_params)
    _network.check_mlp(weights.meta_params, WIDTHS, weights.source)
    family = kinetic_l2e_family(
        **weights.settings(DEFAULTS, step_size=step_size, friction=friction, output_scale=output_scale),
        temperature=temperature,
        differentiate_gradient=differentiate_gradient,
        form=weights.card.get("form", "consistent") if form is None else form,
    )
    return family.bind(weights.meta_params, posterior)


def kinetic_l2e_family(
    *,
    step_size: Scalar,
    friction: Scalar,
    temperature: Scalar = 1.0,
    output_scale: Scalar = DEFAULTS["output_scale"],
    differentiate_gradient: bool = False,
    form: str = "consistent",
) -> LearnedSampler:
    """Return the family of `kinetic_l2e` samplers, indexed by their weights, for meta-training.

    Args:
        step_size: epsilon.
        friction: C.
        temperature: T; 1 samples the posterior.
        output_scale: The factor of f.
        differentiate_gradient: As in `kinetic_l2e`.
        form: As in `kinetic_l2e`.

    Returns:
        Functions that draw weights, and that bind weights to a posterior.
    """
    scalars = Scalars(step_size=step_size, friction=friction, temperature=temperature, output_scale=output_scale)
    is_papers = lookup({"consistent": False, "paper": True}, form, "form")

    def bind(meta_params: MetaParams, posterior: Posterior) -> Sampler:
        _network.check_mlp(meta_params, WIDTHS, "meta_params")

        def init(key: Key, position: Params) -> KineticL2EState:
            start = jnp.zeros((), jnp.int32)
            return KineticL2EState(position, trees.stationary_momentum(key, position, scalars.at(start)[2]), start)

        def step(key: Key, state: KineticL2EState, batch: Batch) -> tuple[KineticL2EState, Info]:
            epsilon, friction, temperature, scale = scalars.at(state.step)
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            layout = Groups.of(state.position)
            weights, scale = _network.cast(meta_params, layout.dtype), jnp.asarray(scale, layout.dtype)

            def features_at(theta: Params) -> list[jax.Array]:
                moving = posterior.energy_and_grad(theta, batch)[1] if differentiate_gradient else gradient
                mean_gradient = trees.linear((1 / posterior.num_data, moving))
                return [layout.normalised(layout.pack(tree)) for tree in (theta, mean_gradient)]

            features, pull_back = jax.vjp(features_at, state.position)
            (output,), (slopes,) = outputs_and_slopes(weights, features)
            f = layout.unpack(scale * output)
            # f needs a batch, which the start does not have: the first step adds it.
            r = trees.linear((1.0, state.momentum), (jnp.where(state.step == 0, 1.0, 0.0), f))
            velocity = trees.linear((1.0, r), (-1.0, f))
            # J' goes back through the network parameter by parameter, and from there through the root mean squares.
            push = scale * layout.pack(trees.linear((-1.0, f)) if is_papers else velocity)
            (towards_mean,) = pull_back([slope * push for slope in slopes])
            momentum = trees.linear(
                (1.0, r),
                (-epsilon, gradient),
                (epsilon, towards_mean),
                (-epsilon * friction, velocity),
                (jnp.sqrt(2 * friction * epsilon * temperature), trees.normal_like(key, state.position)),
            )
            position = trees.linear((1.0, state.position), (epsilon, r if is_papers else momentum), (-epsilon, f))
            return KineticL2EState(position, momentum, state.step + 1), Info(energy)

        settings = {
            "name": "kinetic_l2e",
            **scalars.settings,
            "differentiate_gradient": differentiate_gradient,
            # Run folders of before `form` have none.
            **({"form": form} if is_papers else {}),
            "weights": _network.checksum(meta_params),
        }
        return Sampler(init, step, settings=settings, posterior=posterior)

    return LearnedSampler(lambda key: _network.init_mlp(key, WIDTHS), bind)
