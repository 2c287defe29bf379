"""Microcanonical Langevin dynamics: MILE on all data, SMILE on minibatches (Sommer et al., 2025 and 2026)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import check, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar

ENERGY_VARIANCE = 5e-4
"""The variance per parameter of the energy's error in a step that MILE aims at."""
MOST_ERROR = 5.0
"""The most that one step's squared error counts for, in units of that variance."""
MEMORY = 0.01
"""The weight of the newest value in SMILE's running averages."""
TAIL, CHANGE = 0.05, 0.02
"""The share of steps after which SMILE changes its step size, and by how much."""
LEAST_NOISE = 0.1
"""The least gradient noise that SMILE scales a parameter by, in units of the root mean square over parameters."""


class Motion(NamedTuple):
    """The position and velocity, and the energy and half a kick that the next step's energy error is counted from."""

    position: Params
    velocity: Params
    energy: jax.Array
    late_work: jax.Array


class MILEState(NamedTuple):
    """The motion, the factor of the step size as adapted so far, the positions' mean and spread, and the step count."""

    motion: Motion
    log_factor: jax.Array
    mean_log_factor: jax.Array
    mean: Params
    spread: jax.Array
    step: jax.Array

    @property
    def position(self) -> Params:
        return self.motion.position


class SMILEState(NamedTuple):
    """The motion, the factor of the step size, moments of the energy's errors and of gradients, and the step count."""

    motion: Motion
    log_factor: jax.Array
    change_mean: jax.Array
    change_square: jax.Array
    gradient_mean: Params
    noise_square: Params
    step: jax.Array

    @property
    def position(self) -> Params:
        return self.motion.position


def mile(
    posterior: Posterior,
    *,
    step_size: Scalar = 0.01,
    friction: Scalar | None = None,
    adaptation_steps: int = 1000,
    temperature: Scalar = 1.0,
) -> Sampler:
    """Return MILE: microcanonical Langevin dynamics on all data, which finds its step size and friction itself.

    The velocity v has a constant length, sqrt(d T); forces only turn it. With g = grad U, e = -g / |g|, u = v / |v|,
    c = e . u and delta = epsilon sqrt(d / T) |g| / (d - 1), a step is

        u     <- (u + e (sinh delta + c (cosh delta - 1))) / (cosh delta + c sinh delta)
        theta <- theta + epsilon / 2 v
        v     <- exp(-epsilon C) v + N(0, T (1 - exp(-2 epsilon C))), rescaled to its length
        theta <- theta + epsilon / 2 v

    No speed can grow, so that no step diverges. It keeps the posterior of two or more parameters, to second order in
    epsilon. Requires the full batch (`batch_size=None` in `roamax.sample`); a step takes one gradient.

    During adaptation epsilon moves until the energy, that of v included, errs by 5e-4 per parameter and step in
    variance; C becomes one over the root mean square deviation of the second half of these steps. Steps during
    adaptation never become draws. From a random start a network needs thousands of steps before its draws predict well:
    its authors start at trained ones.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon, up to the factor that adaptation finds.
        friction: C; None adapts it.
        adaptation_steps: The number of steps of adaptation; 0 keeps the step size fixed, and needs a `friction`.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = None if friction is None else as_schedule(friction, "friction")
    adaptation_steps = whole(adaptation_steps, "adaptation_steps", 0)
    check(adaptation_steps > 0 or friction is not None, "friction", "be given if `adaptation_steps` is 0", friction)
    temperature_at = as_schedule(temperature, "temperature")

    def init(key: Key, position: Params) -> MILEState:
        zero = jnp.zeros(())
        return MILEState(_start(key, position), zero, zero, trees.zeros_like(position), zero, zero.astype(jnp.int32))

    def step(key: Key, state: MILEState, batch: Batch) -> tuple[MILEState, Info]:
        length = trees.leading_length(batch, "batch")
        rule = f"be the whole data set, {posterior.num_data}, or None"
        check(length == posterior.num_data, "batch_size", rule, length)
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        temperature = temperature_at(state.step)
        adapting = state.step < adaptation_steps
        epsilon = epsilon_at(state.step) * jnp.exp(jnp.where(adapting, state.log_factor, state.mean_log_factor))
        # The number of positions in the second half of adaptation so far, this one included; their spread sets C.
        half = adaptation_steps // 2
        counted = jnp.clip(state.step - half + 1, 1, max(1, adaptation_steps - half)).astype(epsilon.dtype)
        deviation = jnp.sqrt(state.spread / counted / trees.size(state.position))
        adapted = 1 / jnp.where(adapting | (deviation == 0), 1.0, deviation)
        rate = adapted if friction_at is None else friction_at(state.step)
        motion, error = _move(key, state.motion, energy, gradient, temperature, epsilon, rate)

        error = jnp.minimum(error**2 / (trees.size(state.position) * ENERGY_VARIANCE), MOST_ERROR)
        number = jnp.maximum(state.step, 1).astype(epsilon.dtype)
        log_factor = state.log_factor + jnp.where(adapting & (state.step > 0), (1 - error) / jnp.sqrt(number), 0.0)
        is_late = adapting & (state.step >= half)
        weight = jnp.where(is_late, 1 / counted, 0.0)
        mean_log_factor = jnp.where(is_late, state.mean_log_factor + weight * (log_factor - state.mean_log_factor),
                                  jnp.where(adapting, log_factor, state.mean_log_factor))  # fmt: skip
        ahead = trees.linear((1.0, state.position), (-1.0, state.mean))
        mean = trees.linear((1.0, state.mean), (weight, ahead))
        behind = trees.linear((1.0, state.position), (-1.0, mean))
        spread = state.spread + jnp.where(is_late, trees.inner(ahead, behind).astype(epsilon.dtype), 0.0)
        return MILEState(motion, log_factor, mean_log_factor, mean, spread, state.step + 1), Info(energy)

    settings = {
        "name": "mile",
        "step_size": describe(step_size),
        "friction": describe(friction),
        "adaptation_steps": adaptation_steps,
        "temperature": describe(temperature),
    }
    return Sampler(init, step, lambda steps_taken: steps_taken > adaptation_steps, settings, posterior=posterior)


def smile(
    posterior: Posterior,
    *,
    step_size: Scalar,
    friction: Scalar,
    adaptation_steps: int = 500,
    preconditioned: bool = True,
    temperature: Scalar = 1.0,
) -> Sampler:
    """Return SMILE: microcanonical Langevin dynamics on minibatches, scaled by the noise of their gradients.

    The steps are those of `mile` in coordinates s theta, where s is the standard deviation of each parameter's gradient
    about its running mean, divided by its root mean square over parameters: noise that is alike in all directions turns
    the velocity at random, as friction does, while noise that is not biases it.

    During adaptation s is estimated, and the step size controlled by |Delta|, the error of the energy from one step to
    the next: it falls by 2 % where |Delta| is among the largest 3.3 % of a gamma distribution fitted to recent ones,
    and grows by 2 % among the smallest 1.7 %. Then both stay fixed, so that draws have one distribution. No step is
    taken back, for none diverges.

    The posterior of two or more parameters is kept in the limit of short steps, to first order in epsilon on
    minibatches. `from_learning_rate` gives `step_size` and `friction`.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon, in the units of `sghmc`, up to the factor that adaptation finds.
        friction: C.
        adaptation_steps: The number of steps of adaptation, which never become draws; 0 adapts nothing.
        preconditioned: Whether s is estimated; False keeps 1.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = as_schedule(friction, "friction")
    adaptation_steps = whole(adaptation_steps, "adaptation_steps", 0)
    temperature_at = as_schedule(temperature, "temperature")

    def init(key: Key, position: Params) -> SMILEState:
        zero, zeros = jnp.zeros(()), trees.zeros_like(position)
        return SMILEState(_start(key, position), zero, zero, zero, zeros, zeros, zero.astype(jnp.int32))

    def step(key: Key, state: SMILEState, batch: Batch) -> tuple[SMILEState, Info]:
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        temperature, friction = temperature_at(state.step), friction_at(state.step)
        scale = _noise_scale(state.noise_square) if preconditioned else None
        epsilon = epsilon_at(state.step) * jnp.exp(state.log_factor)
        motion, error = _move(key, state.motion, energy, gradient, temperature, epsilon, friction, scale)

        adapting = state.step < adaptation_steps
        change = jnp.abs(error)
        # The first error is counted from no step before.
        weight = jnp.where(state.step <= 1, 1.0, MEMORY)
        change_mean = state.change_mean + weight * (change - state.change_mean)
        change_square = state.change_square + weight * (change**2 - state.change_square)
        low, high = (_gamma_quantile(p, state.change_mean, state.change_square) for p in (TAIL / 3, 1 - 2 * TAIL / 3))
        turn = jnp.where(change > high, jnp.log1p(-CHANGE), 0.0) + jnp.where(change < low, jnp.log1p(CHANGE), 0.0)
        known = adapting & (state.step >= 10)
        log_factor = state.log_factor + jnp.where(known, turn, 0.0)

        is_first = state.step == 0
        weight = jnp.where(adapting, jnp.where(is_first, 1.0, MEMORY), 0.0)
        gradient_mean = trees.linear((1 - weight, state.gradient_mean), (weight, gradient))
        square = jax.tree.map(lambda g, m: (g - m) ** 2, gradient, state.gradient_mean)
        weight = jnp.where(is_first, 0.0, weight)
        noise_square = trees.linear((1 - weight, state.noise_square), (weight, square))
        state = SMILEState(motion, log_factor, change_mean, change_square, gradient_mean, noise_square, state.step + 1)
        return state, Info(energy)

    settings = {
        "name": "smile",
        "step_size": describe(step_size),
        "friction": describe(friction),
        "adaptation_steps": adaptation_steps,
        "preconditioned": preconditioned,
        "temperature": describe(temperature),
    }
    return Sampler(init, step, lambda steps_taken: steps_taken > adaptation_steps, settings, posterior=posterior)


def _start(key: Key, position: Params) -> Motion:
    size = trees.size(position)
    check(size >= 2, "init_position", "hold two or more parameters for microcanonical dynamics", size)
    zero = jnp.zeros(())
    return Motion(position, _with_length(trees.normal_like(key, position)), zero, zero)


def _move(
    key: Key,
    motion: Motion,
    energy: jax.Array,
    gradient: Params,
    temperature: jax.Array,
    epsilon: jax.Array,
    friction: jax.Array,
    scale: Params | None = None,
) -> tuple[Motion, jax.Array]:
    """Take one step; return also the error of U / T and the kicks' work since the middle of the last kick."""
    size, path = trees.size(motion.position), epsilon * jnp.sqrt(temperature)
    force = gradient if scale is None else jax.tree.map(jnp.divide, gradient, scale)
    strength = jnp.sqrt(trees.squared_norm(force).astype(epsilon.dtype))
    is_pushed = strength > 0
    along = trees.inner(force, motion.velocity).astype(epsilon.dtype)
    cosine = jnp.clip(-along / (jnp.where(is_pushed, strength, 1.0) * size**0.5), -1.0, 1.0)
    delta = path * size**0.5 * strength / temperature / (size - 1)
    shrink = jnp.exp(-delta)
    # Numerator and denominator times 2 exp(-delta), which does not overflow; the denominator is left to the rescaling.
    push = (1 - shrink) * (1 + shrink + cosine * (1 - shrink)) * size**0.5 / jnp.where(is_pushed, strength, 1.0)
    velocity = _with_length(trees.linear((2 * shrink, motion.velocity), (-push, force)))

    early, turned = _half_kick(cosine, delta / 2, size)
    late, _ = _half_kick(turned, delta / 2, size)
    energy = energy.astype(epsilon.dtype) / temperature
    error = energy - motion.energy + motion.late_work + early

    def drift(position: Params, velocity: Params) -> Params:
        velocity = velocity if scale is None else jax.tree.map(jnp.divide, velocity, scale)
        return trees.linear((1.0, position), (path / 2, velocity))

    position = drift(motion.position, velocity)
    kept = jnp.exp(-epsilon * friction)
    spread = jnp.sqrt(-jnp.expm1(-2 * epsilon * friction))
    velocity = _with_length(trees.linear((kept, velocity), (spread, trees.normal_like(key, velocity))))
    return Motion(drift(position, velocity), velocity, energy, late), error


def _half_kick(cosine: jax.Array, delta: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Return the kinetic energy that a kick adds, and the cosine of the angle to the force after it."""
    shrink = jnp.exp(-2 * delta)
    work = (size - 1) * (delta + jnp.log1p(0.5 * (1 - cosine) * jnp.expm1(-2 * delta)))
    up, down = (1 + cosine), (1 - cosine) * shrink
    return work, (up - down) / jnp.maximum(up + down, jnp.finfo(delta.dtype).tiny)


def _with_length(velocity: Params) -> Params:
    """Return the velocity in units of sqrt(T), with the length sqrt(d) that it always has."""
    size = trees.size(velocity)
    norm = jnp.sqrt(trees.squared_norm(velocity))
    return trees.linear((size**0.5 / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny), velocity))


def _noise_scale(noise_square: Params) -> Params:
    """Return the deviations of the gradient's noise, relative to their root mean square; 1 as long as there is none."""
    mean_square = trees.squared_norm(jax.tree.map(jnp.sqrt, noise_square)) / trees.size(noise_square)

    def relative(square: jax.Array) -> jax.Array:
        ratio = square / jnp.where(mean_square > 0, mean_square, 1.0).astype(square.dtype)
        return jnp.where(mean_square > 0, jnp.maximum(jnp.sqrt(ratio), LEAST_NOISE), 1.0).astype(square.dtype)

    return jax.tree.map(relative, noise_square)


def _gamma_quantile(probability: float, mean: jax.Array, square: jax.Array) -> jax.Array:
    """Return a quantile of the gamma distribution with these moments, by the approximation of Wilson and Hilferty."""
    shape = mean**2 / jnp.maximum(square - mean**2, 1e-6 * mean**2 + 1e-30)
    z = jax.scipy.stats.norm.ppf(probability)
    return mean * jnp.maximum(1 - 1 / (9 * shape) + z / (3 * jnp.sqrt(shape)), 0.0) ** 3
