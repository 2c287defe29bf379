"""Learning to Explore: stochastic gradient MCMC whose kinetic energy is a neural network."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from roamax.errors import check, whole
from roamax.posterior import Posterior
from roamax.samplers.learned import _kernel, _network
from roamax.samplers.learned._groups import Groups
from roamax.samplers.learned._scalars import Scalars
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar, Weights

WIDTHS = (9, 32, 32, 2)
DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
DEFAULTS = {"step_size": math.sqrt(2e-5), "friction": 0.05, "output_scale": 1e-3}
"""Settings for weights without a card: those of the paper's runs on Fashion-MNIST and CIFAR-10."""


class L2EState(NamedTuple):
    """The position, its momentum and six running averages of its gradient per group, and the number of steps taken."""

    position: Params
    momentum: jax.Array
    averages: jax.Array
    step: jax.Array


def l2e(
    posterior: Posterior,
    meta_params: MetaParams | Weights = "pretrained",
    *,
    step_size: Scalar | None = None,
    friction: Scalar | None = None,
    temperature: Scalar = 1.0,
    output_scale: Scalar | None = None,
    passes: int = 2,
    mesh: Mesh | None = None,
) -> Sampler:
    """Return SGHMC with a learned kinetic energy g(theta, r), whose gradients alpha and beta a network computes.

        r     <- r - epsilon [grad U(theta) + alpha(theta, r) + C beta(theta, r)] + N(0, 2 C epsilon T)
        theta <- theta + epsilon beta(theta, r)

    The second line evaluates the network again, at the new momentum; with `passes=1` it reuses beta from the first
    line, at half the cost. The network has nine inputs per parameter: grad U / N, theta, r and six running averages of
    grad U / N with decays from .1 to .9999, each divided by its root mean square over the tensor. Its outputs are
    multiplied by `output_scale`. The momentum starts from N(0, T I) with the T of the first step.

    Guarantee: if alpha and beta are the gradients of one function g for which the integral of exp(-g(theta, r)) over r
    does not depend on theta, the chain samples the posterior in the limit of small steps, as SGHMC does. Nothing
    enforces this condition: the network's inputs include the past of the chain, and it was trained for predictions. In
    general the stationary distribution is unknown, and with random weights the chain may diverge.
    `roamax.diagnostics.stationarity` measures the bias of given weights on a known target. `precond_l2e`,
    `meta_sgmcmc` and, with `differentiate_gradient=True`, `kinetic_l2e` do have guarantees, at a price.

    Args:
        posterior: The posterior to sample.
        meta_params: The weights; `roamax.l2e` also takes a safetensors file, the name of a set that ships with the
            package, or "pretrained" for the recommended set.
        step_size: epsilon; None takes it, like `friction` and `output_scale`, from the weights' card, or else from
            `DEFAULTS`, the paper's values.
        friction: C.
        temperature: T; 1 samples the posterior.
        output_scale: The factor of alpha and beta.
        passes: The number of network evaluations per step, 1 or 2.
        mesh: Devices that share the momentum, the averages and the network's work: each holds an equal number of groups
            of 64 parameters. The position is replicated, and results are the same as on one device.

    Returns:
        The sampler.
    """
    weights = Weights.of(meta_params)
    _network.check_mlp(weights.meta_params, WIDTHS, weights.source)
    family = l2e_family(
        **weights.settings(DEFAULTS, step_size=step_size, friction=friction, output_scale=output_scale),
        temperature=temperature,
        passes=passes,
        mesh=mesh,
    )
    return family.bind(weights.meta_params, posterior)


def l2e_family(
    *,
    step_size: Scalar,
    friction: Scalar,
    temperature: Scalar = 1.0,
    output_scale: Scalar = DEFAULTS["output_scale"],
    passes: int = 2,
    mesh: Mesh | None = None,
) -> LearnedSampler:
    """Return the family of `l2e` samplers, indexed by their weights, for meta-training.

    Args:
        step_size: epsilon.
        friction: C.
        temperature: T; 1 samples the posterior.
        output_scale: The factor of alpha and beta.
        passes: The number of network evaluations per step, 1 or 2.
        mesh: Devices that share the work, as in `l2e`.

    Returns:
        Functions that draw weights, and that bind weights to a posterior.
    """
    scalars = Scalars(step_size=step_size, friction=friction, temperature=temperature, output_scale=output_scale)
    passes = whole(passes, "passes", 1, 2)
    check(mesh is None or isinstance(mesh, Mesh), "mesh", "be a jax.sharding.Mesh", mesh)

    def bind(meta_params: MetaParams, posterior: Posterior) -> Sampler:
        _network.check_mlp(meta_params, WIDTHS, "meta_params")

        def init(key: Key, position: Params) -> L2EState:
            layout = Groups.of(position, mesh)
            start = jnp.zeros((), jnp.int32)
            temperature = jnp.asarray(scalars.at(start)[2], layout.dtype)
            momentum = layout.without_filling(jnp.sqrt(temperature) * layout.noise(key))
            return L2EState(position, momentum, jnp.zeros((len(DECAYS), *layout.shape), layout.dtype), start)

        def step(key: Key, state: L2EState, batch: Batch) -> tuple[L2EState, Info]:
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            layout, r = Groups.of(state.position, mesh), state.momentum
            epsilon, friction, temperature, scale = (jnp.asarray(x, layout.dtype) for x in scalars.at(state.step))
            mean_gradient = layout.pack(gradient) / posterior.num_data
            averages, network = _bound_network(meta_params, scale, layout, state, mean_gradient)

            noise = jnp.sqrt(2 * friction * epsilon * temperature) * layout.noise(key)
            base = r - epsilon * (posterior.num_data * mean_gradient) + noise
            kick = Move(base, -epsilon, -epsilon * friction)
            drift = Move(layout.pack(state.position), jnp.zeros_like(epsilon), epsilon)
            if passes == 1:
                kicked, moved = network(r, [kick, drift])
                momentum = layout.without_filling(kicked)
            else:
                momentum = layout.without_filling(*network(r, [kick]))
                (moved,) = network(momentum, [drift])
            position = layout.unpack(moved)
            return L2EState(position, momentum, averages, state.step + 1), Info(energy)

        settings = {
            "name": "l2e",
            **scalars.settings,
            "passes": passes,
            "weights": _network.checksum(meta_params),
        }
        return Sampler(init, step, settings=settings, posterior=posterior)

    return LearnedSampler(lambda key: _network.init_mlp(key, WIDTHS), bind)


class Move(NamedTuple):
    """The update base + of_alpha * alpha + of_beta * beta."""

    base: jax.Array
    of_alpha: jax.Array
    of_beta: jax.Array


def _bound_network(
    meta_params: MetaParams, output_scale: jax.Array, layout: Groups, state: L2EState, mean_gradient: jax.Array
) -> tuple[jax.Array, Callable[[jax.Array, Sequence[Move]], tuple[jax.Array, ...]]]:
    """Return the running averages with the new gradient, and the network as a function of the momentum.

    The function returns the results of one or two moves. Alpha and beta are combined in the network's last layer, so
    that each move needs one output only.
    """
    theta = layout.pack(state.position)
    decays = jnp.asarray(DECAYS, layout.dtype)[:, None, None]
    averages = decays * state.averages + (1 - decays) * mean_gradient[None]
    weights = _network.cast(meta_params, layout.dtype)
    gradient_scale, theta_scale, average_scales = map(layout.inverse_rms, (mean_gradient, theta, averages))

    def network(r: jax.Array, moves: Sequence[Move]) -> tuple[jax.Array, ...]:
        scales = jnp.concatenate([jnp.stack([gradient_scale, theta_scale, layout.inverse_rms(r)]), average_scales])
        mix = output_scale * jnp.array([[move.of_alpha for move in moves], [move.of_beta for move in moves]])
        mixed = {name: weights["layer2"][name] @ mix for name in ("w", "b")}
        inputs = _kernel.Inputs([mean_gradient, theta, r, averages], scales, [move.base for move in moves])
        return _kernel.apply_to_shares(layout.mesh, weights | {"layer2": mixed}, inputs, state.step)

    return averages, network
