"""Runs of samplers on tasks inside one compiled function, for training and for comparisons."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from roamax.tasks import Task, TaskSpec
from roamax.types import Info, Sampler

CHUNK = 1000
"""Held-out examples whose activations are in memory at the same time."""


class Kind(NamedTuple):
    """A task, the length of a cycle, the number of cycles, and after how many the chain starts anew."""

    spec: TaskSpec
    cycle: int
    cycles: int = 1
    cycles_per_start: int | None = None

    @property
    def steps(self) -> int:
        return self.cycle * self.cycles

    @property
    def name(self) -> str:
        return f"{self.spec.name}, {self.cycles} x {self.cycle}"


def mlp(data: str, hidden: list[int], size: int, batch: int = 64, **more: Any) -> TaskSpec:
    return TaskSpec(data, "mlp", {"hidden": hidden}, train_size=size, batch_size=batch, **more)


@functools.cache
def task_of(spec: TaskSpec) -> Task:
    return spec.build()


def draws(sampler: Sampler, task: Task, ends: Any, key: Any, train: Any, held_out: Any) -> jax.Array:
    """Return the log-likelihoods of the held-out examples after each number of steps in `ends`."""
    state = sampler.init(key, task.init(jax.random.fold_in(key, 0)))
    rows_key = jax.random.fold_in(key, 1)

    def step(number, state):
        bits = jax.random.bits(jax.random.fold_in(rows_key, number), (task.batch_size,), jnp.uint32)
        rows = (bits % jnp.uint32(len(train[0]))).astype(jnp.int32)
        batch = jax.tree.map(lambda array: array[rows], train)
        return sampler.step(jax.random.fold_in(key, number), state, batch)[0]

    def until(state, bounds):
        state = jax.lax.fori_loop(bounds[0], bounds[1], step, state)
        return state, _log_likelihood(task, state.position, held_out)

    ends = jnp.asarray(ends, jnp.int32)
    return jax.lax.scan(until, state, (jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]]), ends))[1]


def _log_likelihood(task: Task, position: Any, held_out: Any) -> jax.Array:
    count = len(held_out[0])
    if count % CHUNK:
        return task.posterior.log_likelihood(position, held_out)
    chunks = jax.tree.map(lambda array: array.reshape(-1, CHUNK, *array.shape[1:]), held_out)
    return jax.lax.map(lambda chunk: task.posterior.log_likelihood(position, chunk), chunks).reshape(count)


def nll(logs: jax.Array) -> jax.Array:
    """Return the NLL of the averaged prediction of draws, whose log-likelihoods are the rows."""
    return -jnp.mean(jax.nn.logsumexp(logs, axis=0) - math.log(len(logs)))


class AdamState(NamedTuple):
    """A network, the optimiser's averages, and the number of steps."""

    position: Any
    optimiser: Any


def adam(posterior: Any, peak: Any, cycle: int) -> Sampler:
    """Return Adam with cosine decay to 0 over each cycle, on the mean energy."""
    rate = lambda step: peak * 0.5 * (1 + jnp.cos(jnp.pi * (step % cycle) / cycle))  # noqa: E731
    optimiser = optax.adam(rate)

    def step(key: Any, state: AdamState, batch: Any) -> tuple[AdamState, Info]:
        energy, gradient = posterior.energy_and_grad(state.position, batch)
        gradient = jax.tree.map(lambda g: g / posterior.num_data, gradient)
        updates, new = optimiser.update(gradient, state.optimiser)
        return AdamState(optax.apply_updates(state.position, updates), new), Info(energy)

    return Sampler(lambda key, position: AdamState(position, optimiser.init(position)), step)


class MemberState(NamedTuple):
    """The state of a member of an ensemble, and the number of steps of all members."""

    member: Any
    step: jax.Array

    @property
    def position(self) -> Any:
        return self.member.position


def members(sampler: Sampler, task: Task, steps: int) -> Sampler:
    """Return a sampler that starts again from a new initial position after each `steps` steps."""

    def step(key: Any, state: MemberState, batch: Any) -> tuple[MemberState, Info]:
        ends = (state.step % steps == 0) & (state.step > 0)
        member = jax.lax.cond(ends, lambda: sampler.init(key, task.init(key)), lambda: state.member)
        member, info = sampler.step(key, member, batch)
        return MemberState(member, state.step + 1), info

    return Sampler(lambda key, position: MemberState(sampler.init(key, position), jnp.zeros((), jnp.int32)), step)


def finite(losses: Any) -> np.ndarray:
    """Return the losses, with 10 in place of any that is larger or no number."""
    losses = np.asarray(losses, np.float64)
    return np.where(np.isfinite(losses) & (losses < 10), losses, 10.0)
