"""Learning to Explore: stochastic gradient MCMC whose kinetic energy is a neural network."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax import pretrained, trees
from roamax.errors import check
from roamax.posterior import Posterior
from roamax.samplers import networks
from roamax.samplers.groups import Groups
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar

WIDTHS = (9, 32, 32, 2)
DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
DEFAULTS = {"step_size": math.sqrt(2e-5), "friction": 0.05, "output_scale": 1e-3}
"""Settings for weights without a card: those of the paper's runs on Fashion-MNIST and CIFAR-10."""


class L2EState(NamedTuple):
    """The position, its momentum, six running averages of the gradient by group, and the number of steps taken."""

    position: Params
    momentum: Params
    averages: jax.Array
    step: jax.Array


def l2e(
    posterior: Posterior,
    meta_params: MetaParams | str | Path = "pretrained",
    *,
    step_size: Scalar | None = None,
    friction: Scalar | None = None,
    temperature: Scalar = 1.0,
    output_scale: Scalar | None = None,
    passes: int = 2,
) -> Sampler:
    """SGHMC whose kinetic energy g(theta, r) is learned: a network gives its gradients alpha and beta.

        r     <- r - epsilon [grad U(theta) + alpha(theta, r) + C beta(theta, r)] + N(0, 2 C epsilon T)
        theta <- theta + epsilon beta(theta, r)

    The second line evaluates the network again, at the new momentum; with `passes=1` it takes beta of the
    first line instead, which costs half as much. The network sees nine features of each parameter: grad U / N,
    theta, r and six running averages of grad U / N with decays .1 to .9999, each divided by its root mean
    square over the tensor. Its outputs are multiplied by `output_scale`. The momentum starts at 0.

    `meta_params` are weights, a safetensors file of them, the name of a set that ships with the package, or
    "pretrained" for the one that is meant for use. Settings left out come from the weights' card, or are those
    of the paper (`DEFAULTS`) if there is none.

    What is guaranteed: if alpha and beta are the gradients of one function g for which the integral of
    exp(-g(theta, r)) over r does not depend on theta, the chain samples the posterior in the limit of small
    steps, as SGHMC does. Nothing makes a network keep to that. Its features hold the past, and it was trained
    for predictions, so in general the chain's long-run distribution is *near* no known one; random weights
    may also make it diverge. `roamax.diagnostics.stationarity` measures the bias of given weights on a target
    that is known. `kinetic_l2e`, `precond_l2e` and `meta_sgmcmc` have guarantees, and their prices.
    """
    weights = pretrained.resolve(meta_params, "l2e")
    networks.check_mlp(weights.meta_params, WIDTHS, weights.source)
    family = l2e_family(
        step_size=weights.setting(step_size, "step_size", DEFAULTS),
        friction=weights.setting(friction, "friction", DEFAULTS),
        temperature=temperature,
        output_scale=weights.setting(output_scale, "output_scale", DEFAULTS),
        passes=passes,
    )
    return family.bind(weights.meta_params, posterior)


def l2e_family(
    *,
    step_size: Scalar,
    friction: Scalar,
    temperature: Scalar = 1.0,
    output_scale: Scalar = DEFAULTS["output_scale"],
    passes: int = 2,
) -> LearnedSampler:
    """The samplers that `l2e` makes, as a family indexed by weights: what meta-training searches."""
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = as_schedule(friction, "friction")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    scale_at = as_schedule(output_scale, "output_scale")
    check(passes in (1, 2), "passes", "be 1 or 2", passes)

    def bind(meta_params: MetaParams, posterior: Posterior) -> Sampler:
        networks.check_mlp(meta_params, WIDTHS, "meta_params")

        def init(key: Key, position: Params) -> L2EState:
            layout = Groups.of(position)
            averages = jnp.zeros((len(DECAYS), *layout.shape), layout.dtype)
            return L2EState(position, trees.zeros_like(position), averages, jnp.zeros((), jnp.int32))

        def step(key: Key, state: L2EState, batch: Batch) -> tuple[L2EState, Info]:
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            epsilon, friction, temperature = (at(state.step) for at in (epsilon_at, friction_at, temperature_at))
            mean_gradient = trees.linear((1 / posterior.num_data, gradient))
            averages, network = _network(meta_params, scale_at(state.step), state, mean_gradient)

            # The first pass needs alpha and beta in one sum only: mixed in the last layer, it is one output.
            force = network(state.momentum, 1.0, friction)
            noise_scale = jnp.sqrt(2 * friction * epsilon * temperature)
            noise = trees.normal_like(key, state.position)
            momentum = trees.linear(
                (1.0, state.momentum), (-epsilon, gradient), (-epsilon, force), (noise_scale, noise)
            )
            beta = network(momentum if passes == 2 else state.momentum, 0.0, 1.0)
            position = trees.linear((1.0, state.position), (epsilon, beta))
            return L2EState(position, momentum, averages, state.step + 1), Info(energy)

        settings = {
            "name": "l2e",
            "step_size": describe(step_size),
            "friction": describe(friction),
            "temperature": describe(temperature),
            "output_scale": describe(output_scale),
            "passes": passes,
            "weights": networks.checksum(meta_params),
        }
        return Sampler(init, step, settings=settings)

    return LearnedSampler(lambda key: networks.init_mlp(key, WIDTHS), bind)


def _network(
    meta_params: MetaParams, output_scale: jax.Array, state: L2EState, mean_gradient: Params
) -> tuple[jax.Array, Callable[..., Params]]:
    """The running averages with the new gradient, and (r, a, b) -> a alpha(theta, r) + b beta(theta, r)."""
    layout = Groups.of(state.position)
    gradient, theta = layout.pack(mean_gradient), layout.pack(state.position)
    decays = jnp.asarray(DECAYS, layout.dtype)[:, None, None]
    averages = decays * state.averages + (1 - decays) * gradient[None]
    fixed = [layout.inverse_rms(feature) for feature in (gradient, theta, averages)]
    weights = jax.tree.map(lambda w: jnp.asarray(w, layout.dtype), meta_params)

    def network(momentum: Params, of_alpha: jax.Array | float, of_beta: jax.Array | float) -> Params:
        r = layout.pack(momentum)
        scales = jnp.concatenate([jnp.stack([fixed[0], fixed[1], layout.inverse_rms(r)]), fixed[2]])
        mix = jnp.stack([jnp.asarray(x, layout.dtype) for x in (of_alpha, of_beta)])[:, None]
        mix = mix * jnp.asarray(output_scale, layout.dtype)
        mixed = {name: weights["layer2"][name] @ mix for name in ("w", "b")}
        output = networks.apply_to_groups(
            weights | {"layer2": mixed}, (gradient, theta, r, averages), scales, state.step
        )
        return layout.unpack(output)

    return averages, network
