"""The inner loop: a learned sampler runs on a task and is scored by an objective, in one compiled function.

Memory does not depend on the number of steps: draws are scored when they are taken, and not kept.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import check
from roamax.meta import rescaling
from roamax.meta.objectives import Draw, Objective, over_chains
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.sampling import loop
from roamax.tasks import Task
from roamax.types import Batch, Key, LearnedSampler, MetaParams, Params

Data = tuple[Batch, Batch]
"""The data of an unroll: the training data, and the data held out from it."""


class Problem(NamedTuple):
    """A family of samplers, the kind of task it runs on, and the objective that scores it.

    It holds functions and numbers but no data: tasks that differ only in their data are one problem, and compile once.
    `memory` is the number of draws that a score remembers, `held_out` the number of points it is computed on, and
    `rescale` bounds the factors by which tensors are rescaled.
    """

    family: LearnedSampler
    posterior: Posterior
    init: Callable[[Key], Params]
    batch_size: int
    objective: Objective
    memory: int
    held_out: int
    chains: int = 1
    rescale: float = 1.0


class Segment(NamedTuple):
    """A part of an unroll: `burn_in` steps, then `draws` draws, each after `thinning` more steps."""

    burn_in: int
    draws: int
    thinning: int

    @property
    def steps(self) -> int:
        """The number of steps of the segment."""
        return self.burn_in + self.draws * self.thinning

    @property
    def block(self) -> int:
        """The number of steps per block, at most about sqrt(steps), such that every draw is at the end of a block.

        One loop over blocks, instead of one for the burn-in and one for the draws, contains the step only once, which
        halves the time to compile.
        """
        common = math.gcd(self.burn_in, self.thinning)
        return max(size for size in range(1, common + 1) if common % size == 0 and (size - 1) ** 2 <= self.steps)

    def block_ends_in_draw(self) -> np.ndarray:
        """Return for each block whether a draw follows it."""
        ends = np.arange(self.block, self.steps + 1, self.block)
        return (ends > self.burn_in) & ((ends - self.burn_in) % self.thinning == 0)


class Carry(NamedTuple):
    """The state of an unroll: the chains' states, the score, and the numbers of steps and draws so far."""

    states: Any
    score: jax.Array
    step: jax.Array
    draws: jax.Array


class Unroll(NamedTuple):
    """An inner problem as an estimator sees it: pure, traceable functions, compared by identity.

    `start(meta_params, key, data)` returns a carry, and `advance(meta_params, key, data, carry)` the carry after one
    segment and the loss there. The key is the same in every call of a run: with equal keys, two runs differ only in
    their meta-parameters (common random numbers).
    """

    start: Callable[[MetaParams, Key, Any], Any]
    advance: Callable[[MetaParams, Key, Any, Any], tuple[Any, jax.Array]]


def problem(
    family: LearnedSampler,
    task: Task,
    objective: Objective,
    *,
    memory: int,
    held_out: int,
    chains: int = 1,
    rescale: float = 1.0,
) -> Problem:
    """Return the problem that a task poses to a family of samplers."""
    check(chains >= objective.least_chains, "chains", f"be >= {objective.least_chains} for this objective", chains)
    held_out = min(held_out, trees.leading_length(task.valid, "valid"))
    return Problem(family, task.posterior, task.init, task.batch_size, objective, memory, held_out, chains, rescale)


@functools.cache
def unroll(problem: Problem, segment: Segment, rematerialise: bool = False) -> Unroll:
    """Return the unroll of a problem in segments: the same object for equal arguments, so that jit does not recompile.

    With `rematerialise`, a gradient through a segment stores only the states between its blocks and recomputes the rest
    block by block.
    """
    return Unroll(functools.partial(_start, problem), functools.partial(_advance, problem, segment, rematerialise))


@functools.partial(jax.jit, static_argnames="unroll")
def start(unroll: Unroll, meta_params: MetaParams, key: Key, data: Any) -> Any:
    """Start an unroll, compiled."""
    return unroll.start(meta_params, key, data)


@functools.partial(jax.jit, static_argnames="unroll")
def advance(unroll: Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any) -> tuple[Any, jax.Array]:
    """Run one segment of an unroll, compiled; return the carry after it and the loss there."""
    return unroll.advance(meta_params, key, data, carry)


class _Keys(NamedTuple):
    position: Key
    batch: Key
    noise: Key
    held_out: Key
    energy: Key
    rescaling: Key


def _start(problem: Problem, meta_params: MetaParams, key: Key, data: Data) -> Carry:
    keys = _Keys(*jax.random.split(key, len(_Keys._fields)))

    def chain(key: Key) -> Any:
        position_key, state_key = jax.random.split(key)
        position = problem.init(position_key)
        posterior, there = rescaling.coordinates(problem.posterior, problem.rescale, keys.rescaling, position)
        return problem.family.bind(meta_params, posterior).init(state_key, there(position))

    states = over_chains(chain)(jax.random.split(keys.position, problem.chains))
    dtype = jnp.result_type(*jax.tree.leaves(states.position))
    zero = jnp.zeros((), jnp.int32)
    return Carry(states, problem.objective.init(problem.held_out, dtype), zero, zero)


def _advance(
    problem: Problem,
    segment: Segment,
    rematerialise: bool,
    meta_params: MetaParams,
    key: Key,
    data: Data,
    carry: Carry,
) -> tuple[Carry, jax.Array]:
    train, valid = data
    keys = _Keys(*jax.random.split(key, len(_Keys._fields)))
    position = carry.states.position
    posterior, _ = rescaling.coordinates(problem.posterior, problem.rescale, keys.rescaling, position)
    sampler = problem.family.bind(meta_params, posterior)
    held_out = _take(keys.held_out, valid, problem.held_out)
    # One key per chain, folded with the step inside the loop, where each use of a key costs compile time.
    batch_keys, noise_keys = (jax.random.split(key, problem.chains) for key in (keys.batch, keys.noise))

    def move(carry: Carry) -> Carry:
        def chain(batch_key: Key, noise_key: Key, state: Any) -> Any:
            def batch_at(step: jax.Array) -> Batch:
                return _take(jax.random.fold_in(batch_key, step), train, problem.batch_size)

            return loop.unroll(sampler, noise_key, state, batch_at, segment.block, first=carry.step)[0]

        states = over_chains(chain)(batch_keys, noise_keys, carry.states)
        return carry._replace(states=states, step=carry.step + segment.block)

    def add_draw(carry: Carry) -> Carry:
        draws = carry.draws + 1
        weight = 1 / jnp.minimum(draws, problem.memory).astype(carry.score.dtype)
        batch = _take(jax.random.fold_in(keys.energy, carry.step), train, problem.batch_size)
        draw = Draw(posterior, carry.states.position, held_out, batch)
        return carry._replace(score=problem.objective.add(carry.score, weight, draw), draws=draws)

    def block(carry: Carry, is_draw: jax.Array) -> tuple[Carry, None]:
        return jax.lax.cond(is_draw, add_draw, lambda carry: carry, move(carry)), None

    # Inside a scan nothing is shared with its recomputation, so barriers against CSE are not needed.
    body = jax.checkpoint(block, prevent_cse=False) if rematerialise else block
    carry, _ = jax.lax.scan(body, carry, jnp.asarray(segment.block_ends_in_draw()))
    return carry, problem.objective.loss(carry.score)


def _take(key: Key, data: Batch, count: int) -> Batch:
    """Return all examples, or `count` of them drawn with replacement."""
    length = trees.leading_length(data, "data")
    if count == length:
        return data
    # Biased by less than length / 2^32, but faster to compile and run than an unbiased draw.
    rows = (jax.random.bits(key, (count,), jnp.uint32) % jnp.uint32(length)).astype(jnp.int32)
    return jax.tree.map(lambda array: array.at[rows].get(mode="promise_in_bounds"), data)
