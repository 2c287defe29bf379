"""Full-batch HMC and NUTS by blackjax, as `Sampler`s: the reference for all others."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import InputError, check, finite, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class HMCState(NamedTuple):
    """The position, the state of the step-size adaptation, the number of steps taken, and the mass matrix's state."""

    position: Params
    adaptation: Any
    step: jax.Array
    mass: Any = ()


def hmc(
    posterior: Posterior,
    *,
    num_integration_steps: int = 20,
    step_size: Scalar = 0.01,
    adaptation_steps: int = 300,
    target_acceptance: float = 0.8,
    inverse_mass_matrix: jax.Array | None = None,
    temperature: Scalar = 1.0,
) -> Sampler:
    """Return Hamiltonian Monte Carlo with a Metropolis test, exact for exp(-U / T).

    Requires the full batch (`batch_size=None` in `roamax.sample`). Steps during adaptation never become draws.

    Args:
        posterior: The posterior to sample.
        num_integration_steps: The number of leapfrog steps, each one gradient over all data, per step of the chain.
        step_size: epsilon of the leapfrog integrator, the initial one if it is adapted.
        adaptation_steps: The number of steps during which dual averaging adapts the step size; 0 keeps it fixed.
        target_acceptance: The acceptance probability that adaptation aims at.
        inverse_mass_matrix: The diagonal, (d,), or a dense matrix, (d, d), for the raveled parameters; None is the
            identity.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """
    num_integration_steps = whole(num_integration_steps, "num_integration_steps")

    def build() -> Callable:
        from blackjax.mcmc import hmc as blackjax_hmc

        return partial(blackjax_hmc.build_kernel(), num_integration_steps=num_integration_steps)

    extra = {"name": "hmc", "num_integration_steps": num_integration_steps}
    return _metropolis(
        posterior, build, extra, step_size, adaptation_steps, target_acceptance, inverse_mass_matrix, temperature
    )


def nuts(
    posterior: Posterior,
    *,
    step_size: Scalar = 0.01,
    adaptation_steps: int = 300,
    target_acceptance: float = 0.8,
    inverse_mass_matrix: jax.Array | None = None,
    temperature: Scalar = 1.0,
) -> Sampler:
    """Return HMC that chooses the length of each trajectory itself (Hoffman and Gelman, 2014).

    Requires the full batch (`batch_size=None` in `roamax.sample`). Steps during adaptation never become draws; they
    adapt the step size and, in windows that double in length as in Stan, a diagonal mass matrix.

    Args:
        posterior: The posterior to sample.
        step_size: As in `hmc`, like the other arguments.
        adaptation_steps: The number of steps that adapt step size and mass matrix; 0 keeps both fixed.
        target_acceptance: The acceptance probability that adaptation aims at.
        inverse_mass_matrix: The diagonal, (d,), or a dense matrix, (d, d), for the raveled parameters, which is not
            adapted; None adapts a diagonal.
        temperature: T; 1 samples the posterior.

    Returns:
        The sampler.
    """

    def build() -> Callable:
        from blackjax.mcmc import nuts as blackjax_nuts

        return blackjax_nuts.build_kernel()

    extra = {"name": "nuts"}
    if whole(adaptation_steps, "adaptation_steps", 0) and inverse_mass_matrix is None:
        extra["mass_matrix"] = "adapted in windows"
    return _metropolis(
        posterior, build, extra, step_size, adaptation_steps, target_acceptance, inverse_mass_matrix,
        temperature,
    )  # fmt: skip


def _metropolis(
    posterior: Posterior,
    build: Callable[[], Callable],
    extra: dict[str, Any],
    step_size: Scalar,
    adaptation_steps: int,
    target_acceptance: float,
    inverse_mass_matrix: jax.Array | None,
    temperature: Scalar,
) -> Sampler:
    epsilon_at = as_schedule(step_size, "step_size")
    adaptation_steps = whole(adaptation_steps, "adaptation_steps", 0)
    matrix = None if inverse_mass_matrix is None else _as_matrix(inverse_mass_matrix)
    adapts = adaptation_steps > 0
    if adapts and callable(step_size):
        raise InputError(f"`adaptation_steps` must be 0 when `step_size` is a schedule; got {adaptation_steps}.")
    target_acceptance = finite(target_acceptance, "target_acceptance", above=0, below=1)
    temperature_at = as_schedule(temperature, "temperature")
    adapts_mass = "mass_matrix" in extra

    def adaptation() -> tuple[Callable, Callable, Callable]:
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return dual_averaging_adaptation(target_acceptance)

    def init(key: Key, position: Params) -> HMCState:
        dtype = jnp.result_type(*jax.tree.leaves(position))
        enough = extra["name"] != "nuts" or jnp.finfo(dtype).bits >= 32
        check(enough, "init_position", "be in single or double precision for nuts", dtype)
        if matrix is not None:
            size = trees.size(position)
            good = matrix.shape in ((size,), (size, size))
            check(good, "inverse_mass_matrix", f"have shape {(size,)} or {(size, size)}", matrix.shape)
        start = adaptation()[0](epsilon_at(jnp.zeros((), jnp.int32)))
        # blackjax's weakly typed scalars would become strongly typed after the first step and compile it twice.
        mass = _mass_adaptation()[0](trees.size(position)) if adapts_mass else ()
        start, mass = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), (start, mass))
        return HMCState(position, start, jnp.zeros((), jnp.int32), mass)

    def step(key: Key, state: HMCState, batch: Batch) -> tuple[HMCState, Info]:
        length = trees.leading_length(batch, "batch")
        check(
            length == posterior.num_data, "batch_size", f"be the whole data set, {posterior.num_data}, or None", length
        )
        # blackjax mixes dtypes and ranks in ways that strict promotion settings reject.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return move(key, state, batch)

    def move(key: Key, state: HMCState, batch: Batch) -> tuple[HMCState, Info]:
        from blackjax.mcmc.hmc import init as start_trajectory

        temperature = temperature_at(state.step)
        _, update, final = adaptation()
        adapting = state.step < adaptation_steps
        adapted_size = jnp.where(adapting, jnp.exp(state.adaptation.log_step_size), final(state.adaptation))
        epsilon = adapted_size if adapts else epsilon_at(state.step)
        dtype = jnp.result_type(*jax.tree.leaves(state.position))
        metric = jnp.ones(trees.size(state.position), dtype) if matrix is None else jnp.asarray(matrix, dtype)
        if adapts_mass:
            metric = state.mass.inverse_mass_matrix.astype(dtype)

        def log_density(position: Params) -> jax.Array:
            return -posterior.energy(position, batch) / jnp.asarray(temperature, dtype)

        start = start_trajectory(state.position, log_density)
        end, info = build()(key, start, log_density, jnp.asarray(epsilon, dtype), metric)
        adapted = update(state.adaptation, info.acceptance_rate), state.mass
        if adapts_mass:
            adapted = adapt_mass(*adapted, end.position, state.step)
        adapted, mass = jax.tree.map(
            lambda new, old: jnp.where(adapting, new.astype(old.dtype), old), adapted, (state.adaptation, state.mass)
        )
        energy = -start.logdensity * jnp.asarray(temperature, dtype)
        told = Info(energy, info.acceptance_rate, info.is_divergent)
        return HMCState(end.position, adapted, state.step + 1, mass), told

    def adapt_mass(size: Any, mass: Any, position: Params, step: jax.Array) -> tuple[Any, Any]:
        """Estimate the mass matrix in slow windows; at the end of each, use it, and adapt the step size anew."""
        from blackjax.adaptation.window_adaptation import build_schedule

        first_size, _, last_size = adaptation()
        _, observe, estimate = _mass_adaptation()
        is_slow, ends = jnp.asarray(build_schedule(adaptation_steps))[step]
        mass = _where(is_slow == 1, observe(mass, position), mass)
        done = first_size(last_size(size)), estimate(mass)
        return _where(ends == 1, done, (size, mass))

    settings = {
        **extra,
        "step_size": describe(step_size),
        "adaptation_steps": adaptation_steps,
        "target_acceptance": target_acceptance,
        "inverse_mass_matrix": None if matrix is None else jnp.asarray(matrix).tolist(),
        "temperature": describe(temperature),
    }
    return Sampler(init, step, lambda steps_taken: steps_taken > adaptation_steps, settings, posterior=posterior)


def _mass_adaptation() -> tuple[Callable, Callable, Callable]:
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation

    return mass_matrix_adaptation(is_diagonal_matrix=True)


def _where(condition: jax.Array, chosen: Any, otherwise: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, otherwise)


def _as_matrix(value: Any) -> np.ndarray:
    try:
        matrix = np.asarray(value, float)
    except (TypeError, ValueError):
        matrix = np.full(1, np.nan)
    check(bool(np.isfinite(matrix).all()), "inverse_mass_matrix", "be an array of finite numbers", value)
    return matrix
