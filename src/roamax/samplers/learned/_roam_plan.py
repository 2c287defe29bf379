"""The plan of a step of `roam`: how far each tensor moves, by hand-made rules and by the learned scheduler."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.samplers.learned import _network
from roamax.types import MetaParams

WIDTHS = (16, 20, 4)
"""Features of a tensor, hidden units, and the scheduler's outputs: step, friction, look-ahead, damping."""
PEAK, DECAY, DAMPING, FORGETTING = 1e-2, 0.2, 1e-2, 1e-2
"""Without the scheduler: the largest step, the momentum's decay, the damping of the preconditioner, and the weight of
a new gradient in its running average. Found by hand on validation data (training/roam.md)."""
SAMPLING_DECAY = 0.05
"""The momentum's decay in the sampling part; SGHMC's variance is off by half of it."""
REFERENCE_FAN_IN, LARGEST_FACTOR = 300, 2.0
"""The fan-in at which the factor of a matrix's step is 1, and its bound: filters of convolutions have few inputs."""
REFERENCE_SIZE, SIZE_POWER = 30_000, 0.25
"""The number of parameters at which the factor of all steps is 1, and how fast it falls with that number."""
WARM_START = 0.5
"""Cycles after the first start from this fraction of the peak."""
AVERAGED_PART, AVERAGED_AT = 0.3, 0.3
"""The last part of an exploration whose positions are averaged by default, if any, and the fraction of the peak that
steps have there."""
LARGEST_RATE = 0.2
"""A step of an exploration with noise relaxes at most this fraction of the way to equilibrium."""
NOISE_OF_BATCHES = 0.2
"""A step of the sampling part is so short that the noise of batches heats it by at most half of this."""
ENOUGH = 4.0
"""This many relaxation times are taken as enough to reach equilibrium."""
LONGEST_SIDE = 64
"""A matrix whose sides are both longer, or longer than half a batch, is made flat in blocks, so that this costs about
as much as its gradient."""
SMALLEST = 1e-8
"""Added to the root mean square of a gradient, as in Adam."""
SCALE_FREE, FEWEST = 0.03, 2
"""A matrix whose `radial` is below the first, such as a filter in front of a normalisation, does not count for the
depth of a network. That is at least the second if there are so many: the scheduler was trained on no fewer."""


class Sizes(NamedTuple):
    """The numbers of examples in the data and in a batch, of parameters, and of steps per cycle."""

    data: int
    batch: int
    parameters: int
    cycle: int

    @property
    def largest_rate(self) -> float:
        """The fraction of the way to equilibrium that a step may go, for stability and for the noise of batches."""
        return min(1 / (SAMPLING_DECAY * self.parameters), NOISE_OF_BATCHES * self.batch / self.data)

    @property
    def settling(self) -> float:
        """The degree, from 0 to 1, to which a fifth of a cycle can reach equilibrium."""
        reach = self.cycle / 5 * self.largest_rate
        return reach**8 / (ENOUGH**8 + reach**8)

    @property
    def rate(self) -> float:
        """The fraction of the way to equilibrium that a step of the sampling part goes."""
        return self.settling * self.largest_rate

    @property
    def heat(self) -> float:
        """The fraction of the temperature at which exploration runs; 0 if small, which saves drawing the noise."""
        return self.settling if self.settling > 0.1 else 0.0

    @property
    def longest_side(self) -> int:
        """The rows or columns of a block that is made flat, which costs up to 7 side / (3 batch) of a gradient."""
        return min(LONGEST_SIDE, max(8, self.batch // 2))

    @property
    def factor(self) -> float:
        """The factor of all steps of an exploration without noise: large networks take shorter ones."""
        by_size = (REFERENCE_SIZE / max(1, self.parameters)) ** SIZE_POWER
        return min(2.0, max(0.5, by_size)) if self.heat == 0 else 1.0


class Clock(NamedTuple):
    """The place of a step in its cycle, the steps of a cycle that explore, the gradients averaged since the start,
    whether this is the first cycle since then, and the last steps of an exploration whose positions are averaged."""

    explores: jax.Array
    place: jax.Array
    explored: int
    seen: jax.Array
    is_first: jax.Array
    averaged: int

    @property
    def forgetting(self) -> jax.Array:
        """The weight of a new gradient in running averages, which stand still while a cycle samples."""
        return jnp.where(self.explores, FORGETTING, 0.0)

    @property
    def weight(self) -> jax.Array:
        """The divisor of running averages, which started at 0."""
        return 1 - (1 - FORGETTING) ** self.seen.astype(jnp.float32)


class Tensor(NamedTuple):
    """A leaf of the parameters: its numbers, and root mean squares over them."""

    position: jax.Array
    momentum: jax.Array
    gradient: jax.Array
    squares: jax.Array
    weight: jax.Array
    """The divisor of the squares, which started at 0."""
    stiffness: jax.Array
    rms_gradient: jax.Array
    rms_position: jax.Array
    rms_momentum: jax.Array
    radial: jax.Array
    """The mean square of the product of position and likelihood's gradient, as a multiple of that of independent
    vectors of their lengths: 0 where the likelihood does not depend on the length of the position."""

    @property
    def fan_in(self) -> int:
        return max(1, math.prod(self.position.shape[:-1])) if self.is_matrix else 1

    @property
    def fan_out(self) -> int:
        return max(1, self.position.shape[-1]) if self.is_matrix else max(1, self.position.size)

    @property
    def is_matrix(self) -> bool:
        return self.position.ndim >= 2


class Plan(NamedTuple):
    """A tensor's l, a and n, and the terms added to sqrt(v) and to v."""

    rate: jax.Array
    decay: jax.Array
    look_ahead: jax.Array
    damping: jax.Array
    floor: jax.Array


def plans(meta_params: MetaParams | None, sizes: Sizes, clock: Clock, tensors: list[Tensor]) -> list[Plan]:
    """Return the plan of each tensor's step."""
    dtype = tensors[0].stiffness.dtype
    averaged = clock.averaged if sizes.heat == 0 else 0
    decayed = jnp.minimum(clock.place.astype(dtype) / max(1, clock.explored - averaged), 1.0)
    lowest = AVERAGED_AT if averaged else 0.0
    cosine = lowest + (1 - lowest) * 0.5 * (1 + jnp.cos(jnp.pi * decayed))
    by_width = sizes.factor * jnp.asarray([_by_width(t) for t in tensors], dtype)
    rms_gradient = jnp.stack([t.rms_gradient for t in tensors]).astype(dtype) + SMALLEST
    stiffness = jnp.stack([t.stiffness / t.weight for t in tensors]).astype(dtype)
    # In terms of the curvature of U, which gradients of batches show as N B v, and of that of the prior.
    floor = stiffness / (sizes.data * sizes.batch)
    unit = 1 / (sizes.batch * jnp.sqrt(rms_gradient**2 + floor))

    outputs = jnp.zeros((WIDTHS[-1], len(tensors)), dtype)
    # The scheduler was trained where exploration is without noise, and acts only there.
    if meta_params is not None and sizes.heat == 0:
        weights = _network.cast(meta_params, dtype)
        features = _features(sizes, clock, tensors, PEAK * by_width * cosine, rms_gradient)
        outputs = jnp.where(clock.explores, _network.apply_mlp(weights, features), 0.0)
    outputs = 3 * jnp.tanh(outputs / 3)
    peak = jnp.where(clock.is_first, PEAK, WARM_START * PEAK)
    largest = LARGEST_RATE * unit if sizes.heat > 0 else jnp.inf
    rate = jnp.clip(peak * by_width * cosine * jnp.exp(outputs[0]), sizes.rate * unit, largest)
    plans = Plan(
        rate=jnp.where(clock.explores, rate, sizes.rate * unit),
        decay=jnp.where(clock.explores, jnp.minimum(DECAY * jnp.exp(outputs[1]), 0.9), SAMPLING_DECAY),
        look_ahead=jnp.tanh(outputs[2]),
        damping=DAMPING * jnp.exp(outputs[3]) * rms_gradient,
        floor=jnp.where(clock.explores, 0.0, floor),
    )
    return [Plan(*(numbers[i].astype(t.momentum.dtype) for numbers in plans)) for i, t in enumerate(tensors)]


def _by_width(tensor: Tensor) -> float:
    """Return the factor of a tensor's step: matrices with many inputs take shorter ones."""
    return min(LARGEST_FACTOR, math.sqrt(REFERENCE_FAN_IN / tensor.fan_in)) if tensor.is_matrix else 1.0


def _features(
    sizes: Sizes, clock: Clock, tensors: list[Tensor], rates: jax.Array, rms_gradient: jax.Array
) -> jax.Array:
    """Return sixteen numbers per tensor, from -3 to 2, shape (16, tensors).

    The bounds are about those of the tasks in training: beyond them nothing is known, so the scheduler does not
    extrapolate.
    """
    dtype = rates.dtype
    log_of = {
        name: jnp.log(jnp.stack([getattr(t, name) for t in tensors]).astype(dtype) + SMALLEST)
        for name in ("rms_position", "rms_momentum")
    }
    fan_in, fan_out, size = (
        jnp.asarray([math.log(number(t)) for t in tensors], dtype)
        for number in (lambda t: t.fan_in, lambda t: t.fan_out, lambda t: max(1, t.position.size))
    )
    place = clock.place.astype(dtype)
    ones = jnp.ones(len(tensors), dtype)
    # The size of a momentum to which gradients contribute nothing but noise; above it, they agree with one another.
    noise_alone = 0.5 * jnp.log(0.5 * (rates + SMALLEST) * sizes.data * rms_gradient)
    explored = jnp.minimum(place / clock.explored, 1.0) - 0.5
    length = min((math.log(sizes.cycle) - 7) / 2, 0.4)
    ratio = min(max((math.log(sizes.data / sizes.batch) - 4) / 2, -1.0), 1.5)
    matrices = [t for t in tensors if t.is_matrix]
    deep = sum(jnp.where(t.radial / t.weight < SCALE_FREE, 0.0, 1.0).astype(dtype) for t in matrices)
    depth = jnp.minimum(jnp.log(jnp.maximum(deep, max(1, min(FEWEST, len(matrices))))), 2.0)
    return jnp.stack(
        [
            ones * explored,
            ones * (jnp.log1p(place) / 5 - 1),
            ones * length,
            jnp.where(clock.is_first, ones, 0.0),
            jnp.minimum((fan_in - 4) / 2, 2.0),
            jnp.minimum((fan_out - 4) / 2, 1.0),
            jnp.asarray([float(t.is_matrix) for t in tensors], dtype),
            ones * ratio,
            ones * min(max((math.log(sizes.parameters) - 9) / 2, -1.5), 1.5),
            jnp.maximum(log_of["rms_position"] + fan_in / 2, -6.0) / 2,
            jnp.clip((jnp.log(rms_gradient) + size / 2 + 2) / 2, -2.0, 2.0),
            jnp.clip(log_of["rms_momentum"] - noise_alone, -2.0, 2.0),
            ones * depth,
            ones * explored * length,
            ones * explored * ratio,
            ones * explored * depth,
        ]
    )
