"""Roam: SGHMC in cycles, with a preconditioned exploration that may be learned and nothing to tune."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import check, finite, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers.learned import _network
from roamax.samplers.learned._flat import flattened, rms
from roamax.samplers.learned._groups import SHRINK
from roamax.samplers.learned._roam_plan import (
    AVERAGED_AT,
    AVERAGED_PART,
    SMALLEST,
    WIDTHS,
    Clock,
    Plan,
    Sizes,
    Tensor,
    plans,
)
from roamax.schedules import Cycle, as_schedule, describe
from roamax.types import Batch, Info, Key, LearnedSampler, MetaParams, Params, Sampler, Scalar, Weights


class RoamState(NamedTuple):
    """The position, its momentum, running averages, and the number of steps taken.

    `squares` are averages of squared gradients of the mean energy; `stiffness` those of the prior's curvature and
    `radial` those of `Tensor.radial`, one number per tensor. All are constant while a cycle samples. `origin` has the
    mean and the standard deviation of each tensor before the first step. `average` is that of positions in the last
    part of an exploration; None if none is taken.
    """

    position: Params
    momentum: Params
    squares: Params
    stiffness: jax.Array
    radial: jax.Array
    origin: jax.Array
    average: Params | None
    step: jax.Array


def roam(
    posterior: Posterior,
    meta_params: MetaParams | Weights | None = "pretrained",
    *,
    cycle_length: int,
    exploration_ratio: float = 0.9,
    temperature: Scalar = 1.0,
    draws_per_cycle: int = 1,
    cycles_per_start: int | None = None,
    averaging: float | None = None,
) -> Sampler:
    """Return SGHMC with a diagonal preconditioner, in cycles that first explore and then sample, without a step size.

        r     <- (1 - a) r - q grad U(theta) + N(0, 2 a T)
        theta <- theta + q [r - s n a (q grad U(theta) + r)],    q^2 = a l / (N (sqrt(v) + mu rms(v)))

    with v a running average of (grad U / N)^2. In the first `exploration_ratio` of each cycle, s is 1 and v follows the
    gradient. The step l is that of Adam with a cosine: 0.01 min(2, sqrt(300 / fan-in)) at its peak, half of that in all
    cycles but the first, and, with noise, at most what relaxes a parameter by a fifth of the way to equilibrium. With
    weights, a network of 20 units reads sixteen numbers per tensor (the place in the cycle, the widths of the tensor,
    the sizes of its parameters, gradient and momentum, the depth of the network without layers whose length does not
    matter, the size of the data) and returns the factors by which l, the decay a and the damping mu differ from these
    values, and the look-ahead n, which is otherwise 0; it acts only where exploration is without noise.

    Where exploration is without noise (see below), l is multiplied by (30,000 / d)^(1/4), with d the number of
    parameters, but at least by 1/2 and at most by 2. The step of a matrix is then made flat: its singular values become
    nearly equal and its norm stays, by two steps of the iteration of Muon (Jordan et al., 2024), each with a polynomial
    of its own. So all directions of a matrix move at the same speed, not only those of its largest gradients.

    In the rest of a cycle, from which draws come, s is 0, and a, v, mu and l are constant: this is exactly SGHMC in the
    coordinates theta / q. Its momentum is drawn from N(0, T) at the start of that part. There v includes the curvature
    of the prior, and l is such that q^2 times the curvature that the size of gradients shows is 1 / d. That is stable
    for any Gaussian, since no eigenvalue exceeds the trace; l is smaller where the noise of batches would add more than
    a tenth to the temperature.

    A cycle that is too short to reach equilibrium with such steps would fill its draws with noise that does not average
    out. With R the relaxation times in a fifth of a cycle, the step of the sampling part and the temperature of
    exploration are multiplied by R^8 / (4^8 + R^8). So a small network with long cycles is sampled at temperature T,
    and the short cycle of a large network ends near an optimum.

    Draws of such a network stay in one basin: cycles do not leave it. With `cycles_per_start`, the chain then starts
    anew after that many cycles, from normal numbers with the mean and the standard deviation that each tensor had at
    first. That suits an initial position that is random, not one that was trained. A chain that reaches equilibrium
    needs no new starts and makes none.

    With `averaging`, the cosine of an exploration without noise ends before its last part, at 0.3 of the peak, where l
    stays, and the sampling part starts from the average of the positions in that part (Izmailov et al., 2018). By
    default, so does a network with more parameters than there are examples, which a cosine to 0 lets overfit.

    Guarantee: that of SGHMC within the sampling part of a cycle, once it has reached equilibrium. The short cycles of a
    large network do not reach it, and their draws are then those of a snapshot ensemble.

    Args:
        posterior: The posterior to sample.
        meta_params: The weights of the scheduler, as in `l2e`; None is the hand-made schedule.
        cycle_length: The number of steps per cycle.
        exploration_ratio: The fraction of a cycle that explores.
        temperature: T; 1 samples the posterior.
        draws_per_cycle: The number of draws, spread evenly over the sampling part of a cycle; the last is at its end.
        cycles_per_start: The number of cycles after which the chain starts anew; None is never.
        averaging: The fraction of an exploration whose positions are averaged; 0 follows the cosine. None is 0.3 if
            there are more parameters than examples, and 0 otherwise.

    Returns:
        The sampler.
    """
    weights = Weights.of(meta_params)
    if weights.meta_params is not None:
        _network.check_mlp(weights.meta_params, WIDTHS, weights.source)
    family = roam_family(
        cycle_length=cycle_length,
        exploration_ratio=exploration_ratio,
        temperature=temperature,
        draws_per_cycle=draws_per_cycle,
        cycles_per_start=cycles_per_start,
        averaging=averaging,
    )
    return family.bind(weights.meta_params, posterior)


def roam_family(
    *,
    cycle_length: int,
    exploration_ratio: float = 0.9,
    temperature: Scalar = 1.0,
    draws_per_cycle: int = 1,
    cycles_per_start: int | None = None,
    averaging: float | None = None,
) -> LearnedSampler:
    """Return the family of `roam` samplers, indexed by their weights, for meta-training.

    Args:
        cycle_length: The number of steps per cycle.
        exploration_ratio: The fraction of a cycle that explores.
        temperature: T; 1 samples the posterior.
        draws_per_cycle: The number of draws per cycle, as in `roam`.
        cycles_per_start: The number of cycles after which the chain starts anew, as in `roam`.
        averaging: The fraction of an exploration whose positions are averaged, as in `roam`.

    Returns:
        Functions that draw weights, and that bind weights, or None for the hand-made schedule, to a posterior.
    """
    cycle = Cycle(cycle_length, exploration_ratio, draws_per_cycle)
    explored = cycle.exploration_steps
    check(explored > 0, "exploration_ratio", "leave at least one step of a cycle to explore", exploration_ratio)
    cycles_per_start = None if cycles_per_start is None else whole(cycles_per_start, "cycles_per_start")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    if averaging is not None:
        finite(averaging, "averaging", least=0, most=1)
    cold = not callable(temperature) and float(temperature) == 0

    def bind(meta_params: MetaParams | None, posterior: Posterior) -> Sampler:
        if meta_params is not None:
            _network.check_mlp(meta_params, WIDTHS, "meta_params")

        def averaged_steps(position: Params) -> int:
            # A density without data, which counts as one example, cannot be overfitted.
            by_default = AVERAGED_PART if 1 < posterior.num_data < trees.size(position) else 0.0
            return math.ceil((by_default if averaging is None else averaging) * explored)

        def init(key: Key, position: Params) -> RoamState:
            zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _wide(leaf)), position)
            leaves = jax.tree.leaves(zeros)
            dtype = jnp.result_type(*leaves)
            origin = jnp.stack([_mean_and_deviation(leaf.astype(dtype)) for leaf in jax.tree.leaves(position)])
            by_tensor, average = jnp.zeros((len(leaves),), dtype), zeros if averaged_steps(position) else None
            return RoamState(position, zeros, zeros, by_tensor, by_tensor, origin, average, jnp.zeros((), jnp.int32))

        def step(key: Key, state: RoamState, batch: Batch) -> tuple[RoamState, Info]:
            batch_size, place = trees.leading_length(batch, "batch"), state.step % cycle_length
            sizes = Sizes(posterior.num_data, batch_size, trees.size(state.position), cycle_length)
            explores, cycles = cycle.explores(state.step), state.step // cycle_length
            averaged = averaged_steps(state.position)
            if cycles_per_start is not None and sizes.heat == 0:
                cycles = cycles % cycles_per_start
                anew = (place == 0) & (cycles == 0) & (state.step > 0)
                state = jax.lax.cond(anew, functools.partial(_started_anew, key), lambda state: state, state)
            energy, gradient = posterior.energy_and_grad(state.position, batch)
            seen = cycles * explored + jnp.minimum(place + 1, explored)
            clock = Clock(explores, place, explored, seen, cycles == 0, averaged)
            tensors = _tensors(state, gradient, jax.grad(posterior.log_prior)(state.position), sizes, clock)
            planned = plans(meta_params, sizes, clock, tensors)

            heat = temperature_at(state.step) * jnp.where(explores, sizes.heat, 1.0)
            noise = [None] * len(tensors) if cold else jax.tree.leaves(_noise(key, heat, state.momentum))
            starts = place == explored
            moved = [_move(*parts, heat, starts, sizes.data) for parts in zip(tensors, planned, noise, strict=True)]
            treedef = jax.tree.structure(state.position)
            moves, momentum, squares = (treedef.unflatten(part) for part in zip(*moved, strict=True))
            if sizes.heat == 0:
                flatten = functools.partial(flattened, longest_side=sizes.longest_side)
                moves = jax.lax.cond(explores, flatten, lambda moves: moves, moves)
            position = jax.tree.map(lambda theta, move: theta + move.astype(theta.dtype), state.position, moves)
            average = state.average
            if averaged and sizes.heat == 0:
                average, position = _averaged(average, position, place - (explored - averaged), averaged)
            stiffness, radial = (jnp.stack([getattr(t, name) for t in tensors]) for name in ("stiffness", "radial"))
            after = RoamState(position, momentum, squares, stiffness, radial, state.origin, average, state.step + 1)
            return after, Info(energy)

        settings = {
            "name": "roam",
            "cycle_length": cycle_length,
            "exploration_ratio": exploration_ratio,
            "temperature": describe(temperature),
            "draws_per_cycle": draws_per_cycle,
            "cycles_per_start": cycles_per_start,
            # Run folders of before `averaging` have none, and those of before `averaged_at` averaged at the peak.
            **({"averaging": averaging, "averaged_at": AVERAGED_AT} if averaging != 0 else {}),
            "weights": None if meta_params is None else _network.checksum(meta_params),
        }
        return Sampler(init, step, cycle.ends_in_draw, settings, posterior=posterior)

    return LearnedSampler(lambda key: _network.init_mlp(key, WIDTHS), bind)


def _averaged(average: Params, position: Params, place: jax.Array, count: int) -> tuple[Params, Params]:
    """Return the average of `count` positions from place 0 on, and the position, which in the end is the average."""
    is_counted, is_last = (place >= 0) & (place < count), place == count - 1

    def both(mean: jax.Array, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = jnp.where(is_counted, 1 / (place + 1).astype(mean.dtype), 0)
        mean = mean + weight * (theta.astype(mean.dtype) - mean)
        return mean, jnp.where(is_last, mean.astype(theta.dtype), theta)

    pairs = [both(*leaves) for leaves in zip(*map(jax.tree.leaves, (average, position)), strict=True)]
    treedef = jax.tree.structure(position)
    return treedef.unflatten([mean for mean, _ in pairs]), treedef.unflatten([theta for _, theta in pairs])


def _started_anew(key: Key, state: RoamState) -> RoamState:
    """Return the state of a chain at a new random position, without a momentum or a past."""
    leaves, treedef = jax.tree.flatten(state.position)
    noise = jax.tree.leaves(trees.normal_like(jax.random.fold_in(key, 1), state.position))
    drawn = [
        (origin[0] + origin[1] * numbers.astype(origin.dtype)).astype(leaf.dtype)
        for origin, numbers, leaf in zip(state.origin, noise, leaves, strict=True)
    ]
    zeros = trees.zeros_like(state.momentum)
    none = jnp.zeros_like(state.stiffness)
    return state._replace(position=treedef.unflatten(drawn), momentum=zeros, squares=zeros, stiffness=none, radial=none)


def _tensors(state: RoamState, gradient: Params, prior_gradient: Params, sizes: Sizes, clock: Clock) -> list[Tensor]:
    """Return the leaves with the new gradient in their running averages."""
    tensors, forgetting, weight = [], clock.forgetting, clock.weight
    trees_of_leaves = state.position, state.momentum, gradient, state.squares, prior_gradient
    for i, (theta, r, g, v, p) in enumerate(zip(*map(jax.tree.leaves, trees_of_leaves), strict=True)):
        dtype = r.dtype
        g, theta, p = g.astype(dtype) / sizes.data, theta.astype(dtype), p.astype(dtype)
        v = v + forgetting.astype(dtype) * (g * g - v)
        mean, product, rms_position, rms_prior = _means(v, theta, g + p / sizes.data, p)
        corrected = weight.astype(dtype)
        rms_gradient = jnp.sqrt(mean / corrected)
        independent = rms_position * rms_gradient / math.sqrt(max(1, theta.size))
        # The ratio is 1, not 0, for a tensor of zeros.
        alignment = jnp.square((jnp.abs(product) + SMALLEST**2) / (independent + SMALLEST**2))
        new = jnp.stack([rms_prior / (rms_position + SMALLEST), alignment]).astype(state.stiffness.dtype)
        old = jnp.stack([state.stiffness[i], state.radial[i]])
        stiffness, radial = old + forgetting.astype(old.dtype) * (new - old)
        tensors.append(Tensor(theta, r, g, v, corrected, stiffness, rms_gradient, rms_position, rms(r), radial))
    return tensors


def _mean_and_deviation(x: jax.Array) -> jax.Array:
    mean = jnp.sum(x) / max(1, x.size)
    return jnp.stack([mean, rms(x - mean)])


def _means(
    squares: jax.Array, theta: jax.Array, gradient: jax.Array, prior: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the means of the first array and of the product of the next two, and the RMS of the second and the last.

    As one array, because XLA calls a function per sum, which takes longer than a sum over a small tensor.
    """
    theta, gradient, prior = SHRINK * theta, SHRINK * gradient, SHRINK * prior
    stacked = jnp.stack([squares, theta * gradient, jnp.square(theta), jnp.square(prior)]).reshape(4, -1)
    mean, product, of_theta, of_prior = jnp.sum(stacked, axis=1) / max(1, squares.size)
    return mean, product / SHRINK**2, jnp.sqrt(of_theta) / SHRINK, jnp.sqrt(of_prior) / SHRINK


def _noise(key: Key, heat: jax.Array, momentum: Params) -> Params:
    """Return standard normal numbers, or zeros, which cost less, where `heat` is 0."""
    return jax.lax.cond(heat > 0, lambda: trees.normal_like(key, momentum), lambda: trees.zeros_like(momentum))


def _move(
    tensor: Tensor, plan: Plan, noise: jax.Array | None, heat: jax.Array, starts: jax.Array, num_data: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the step of a tensor, its new momentum, and its running average."""
    r = tensor.momentum
    root = jnp.sqrt(tensor.squares / tensor.weight + plan.floor) + plan.damping
    q = jnp.sqrt(plan.decay * plan.rate / num_data / root)
    kick = q * num_data * tensor.gradient
    # The sampling part starts with a momentum from its stationary distribution.
    r = jnp.where(starts, 0, 1 - plan.decay) * r - kick
    if noise is not None:
        r = r + jnp.sqrt(heat.astype(r.dtype) * jnp.where(starts, 1, 2 * plan.decay)) * noise
    ahead = plan.look_ahead * plan.decay
    return q * ((1 - ahead) * r - ahead * kick), r, tensor.squares


def _wide(leaf: jax.Array) -> jnp.dtype:
    """Return double precision if a leaf has it, else single: running averages in half precision would not move."""
    return jnp.dtype(jnp.float64 if leaf.dtype == jnp.float64 else jnp.float32)
