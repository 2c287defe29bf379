"""Learning to Explore: stochastic gradient MCMC whose kinetic energy is a neural network."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax import trees
from roamax.errors import check
from roamax.posterior import Posterior
from roamax.samplers import networks
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar

WIDTHS = (9, 32, 32, 2)
DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)


class L2EState(NamedTuple):
    """Position, momentum, the gradient's running averages and the number of steps taken."""

    position: Params
    momentum: Params
    averages: Params
    step: jax.Array


def l2e_family(
    *,
    step_size: Scalar,
    friction: Scalar,
    temperature: Scalar = 1.0,
    output_scale: Scalar = 1e-3,
    passes: int = 2,
) -> LearnedSampler:
    """L2E samplers indexed by their weights."""
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = as_schedule(friction, "friction")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    scale_at = as_schedule(output_scale, "output_scale")
    check(passes in (1, 2), "passes", "be 1 or 2", passes)

    def init(key: Key) -> MetaParams:
        return networks.init_mlp(key, WIDTHS)

    def bind(meta_params: MetaParams, posterior: Posterior) -> Sampler:
        networks.check_mlp(meta_params, WIDTHS, "meta_params")

        def init_state(key: Key, position: Params) -> L2EState:
            averages = jax.tree.map(lambda leaf: jnp.zeros((len(DECAYS), *jnp.shape(leaf)), leaf.dtype), position)
            return L2EState(position, trees.zeros_like(position), averages, jnp.zeros((), jnp.int32))

        def move(theta, r, averages, gradient, noise, epsilon, c, scale, temperature):
            dtype = theta.dtype
            shape = theta.shape
            weights = jax.tree.map(lambda w: jnp.asarray(w, dtype), meta_params)
            epsilon, c, scale, temperature = (jnp.asarray(s, dtype) for s in (epsilon, c, scale, temperature))
            theta, r, gradient, noise = (x.reshape(-1) for x in (theta, r, gradient, noise))
            decays = jnp.asarray(DECAYS, dtype)[:, None]
            mean_gradient = gradient / posterior.num_data
            averages = decays * averages.reshape(len(DECAYS), -1) + (1 - decays) * mean_gradient[None, :]

            def network(r):
                features = jnp.concatenate([jnp.stack([mean_gradient, theta, r]), averages])
                mean_square = jnp.sum(features**2, axis=1, keepdims=True) / max(r.size, 1)
                return scale * networks.apply_mlp(weights, features * jax.lax.rsqrt(mean_square + 1e-5))

            alpha, beta = network(r)
            r = r - epsilon * (gradient + alpha + c * beta) + jnp.sqrt(2 * c * epsilon * temperature) * noise
            if passes == 2:
                beta = network(r)[1]
            theta = theta + epsilon * beta
            return theta.reshape(shape), r.reshape(shape), averages.reshape(len(DECAYS), *shape)

        def step(key: Key, state: L2EState, batch: Batch) -> tuple[L2EState, Info]:
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            hyper = [at(state.step) for at in (epsilon_at, friction_at, scale_at, temperature_at)]
            noise = trees.normal_like(key, state.position)
            trees_ = (state.position, state.momentum, state.averages, gradient, noise)
            treedef = jax.tree.structure(state.position)
            moved = [move(*leaves, *hyper) for leaves in zip(*map(jax.tree.leaves, trees_), strict=True)]
            position, momentum, averages = (treedef.unflatten([m[i] for m in moved]) for i in range(3))
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
        return Sampler(init_state, step, settings=settings)

    return LearnedSampler(init, bind)


def l2e(
    posterior: Posterior,
    meta_params: MetaParams,
    *,
    step_size: Scalar = math.sqrt(2e-5),
    friction: Scalar = 0.05,
    temperature: Scalar = 1.0,
    output_scale: Scalar = 1e-3,
    passes: int = 2,
) -> Sampler:
    """The L2E sampler of given weights."""
    family = l2e_family(
        step_size=step_size, friction=friction, temperature=temperature, output_scale=output_scale, passes=passes
    )
    return family.bind(meta_params, posterior)
