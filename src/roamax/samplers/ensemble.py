"""Deep ensembles (Lakshminarayanan et al., 2017): members trained by optax, each of which is a draw."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from roamax.errors import check, finite, lookup, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import CyclicalCosine, Described, as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class EnsembleState(NamedTuple):
    """The current member's position and optimizer state, and the number of steps taken by all members so far."""

    position: Params
    optimizer: Any
    step: jax.Array


def ensemble(
    posterior: Posterior,
    *,
    member_steps: int,
    init: Callable[[Key], Params] | None = None,
    optimizer: Any = None,
    learning_rate: Scalar = 0.1,
    momentum: float = 0.9,
    temperature: float = 0.0,
) -> Sampler:
    """Return a sampler that trains one member after another, each for `member_steps` on the mean energy U / N.

    The default optimizer is SGD with momentum and a cosine decay of the learning rate to 0; "adam" and "muon" are those
    optimizers with the same decay, and with one member the usual way to train a single network. Muon moves matrices,
    convolution kernels among them, and leaves the rest to Adam. Each member starts from `init(key)`; without `init` it
    starts where the last one ended, with the optimizer reset: a snapshot ensemble. Each trained member is a draw, so
    `roamax.sample` needs neither burn-in nor thinning, and `num_samples` is the number of members.

    At temperature T > 0 the gradient of SGD gets noise N(0, 2 (1 - momentum) T / (N learning_rate)), which makes each
    member an annealed SGHMC chain; T = 0, the default, is plain training.

    Args:
        posterior: The posterior whose energy is minimised.
        member_steps: The number of steps per member.
        init: A function that draws the initial position of a member from a key.
        optimizer: None for SGD, "adam", "muon", or an optax transformation, which has its own learning rate.
        learning_rate: The initial learning rate on the mean energy, which decays to 0 along a cosine, or a schedule
            of a member's steps, which is taken as it is.
        momentum: The momentum of SGD and of Muon, or the decay of Adam's average of gradients.
        temperature: T; must be 0 with any `optimizer` but SGD.

    Returns:
        The sampler.
    """
    import optax

    member_steps, momentum = whole(member_steps, "member_steps"), finite(momentum, "momentum", least=0, below=1)
    as_schedule(learning_rate, "learning_rate")
    temperature = finite(temperature, "temperature", least=0)
    check(init is None or callable(init), "init", "be a function of a key", init)
    check(optimizer is None or temperature == 0, "temperature", "be 0 with a custom `optimizer`", temperature)
    rate_at = learning_rate if callable(learning_rate) else CyclicalCosine(learning_rate, member_steps)
    if optimizer is None:
        transform = optax.sgd(cast(Any, rate_at), momentum or None)
    elif isinstance(optimizer, str):
        transform = lookup({"adam": _adam, "muon": _muon}, optimizer, "optimizer")(rate_at, momentum)
    else:
        check(hasattr(optimizer, "update"), "optimizer", "be a name or an optax transformation", optimizer)
        transform = optimizer

    def start(position: Params, step: jax.Array) -> EnsembleState:
        return EnsembleState(position, transform.init(position), step)

    def begin(key: Key, position: Params) -> EnsembleState:
        return start(position, jnp.zeros((), jnp.int32))

    def next_member(key: Key, state: EnsembleState) -> EnsembleState:
        position = state.position if init is None else init(key)
        return start(position, state.step)

    def step(key: Key, state: EnsembleState, batch: Batch) -> tuple[EnsembleState, Info]:
        init_key, noise_key = jax.random.split(key)
        is_over = (state.step > 0) & (state.step % member_steps == 0)
        state = jax.lax.cond(is_over, next_member, lambda key, state: state, init_key, state)
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        gradient = trees.linear((1 / posterior.num_data, gradient))
        if temperature > 0:
            scale = jnp.sqrt(
                2 * (1 - momentum) * temperature / (posterior.num_data * rate_at(state.step % member_steps))
            )
            gradient = trees.linear((1.0, gradient), (scale, trees.normal_like(noise_key, gradient)))
        with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes integers and floats.
            updates, optimizer_state = transform.update(gradient, state.optimizer, state.position)
        position = optax.apply_updates(state.position, updates)
        return EnsembleState(position, optimizer_state, state.step + 1), Info(energy)

    def one_update(number: jax.Array) -> Any:
        params = number.astype(float)
        with jax.numpy_dtype_promotion("standard"):
            return transform.update(params, transform.init(params), params)

    known = optimizer is None or isinstance(optimizer, str)
    settings = {
        "name": "ensemble",
        "member_steps": member_steps,
        "restarts": init is not None,
        "optimizer": optimizer or "sgd" if known else Described(describe(transform.update), one_update),
        "learning_rate": describe(learning_rate),
        "momentum": momentum,
        "temperature": temperature,
    }
    return Sampler(begin, step, lambda steps_taken: steps_taken % member_steps == 0, settings, posterior=posterior)


def _adam(rate_at: Any, momentum: float) -> Any:
    import optax

    return optax.adam(rate_at, b1=momentum)


def _muon(rate_at: Any, momentum: float) -> Any:
    from optax.contrib import MuonDimensionNumbers, muon

    def as_matrices(params: Params) -> Any:
        """Take the last axis as outputs, as Flax does, and all others as inputs."""
        return jax.tree.map(
            lambda leaf: MuonDimensionNumbers(tuple(range(leaf.ndim - 1)), leaf.ndim - 1) if leaf.ndim > 1 else None,
            params,
        )

    return muon(rate_at, beta=momentum, muon_weight_dimension_numbers=as_matrices)
