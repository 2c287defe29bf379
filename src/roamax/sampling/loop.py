"""The loop over a sampler's steps, traced: `unroll` for a fixed number of steps, `segment` for the runner.

Step i of a chain always takes the key `fold_in(key, i)`, wherever the loop begins.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roamax.numerics import trees
from roamax.types import Batch, Info, Key, Sampler

StepFn = Callable[[Key, Any, Batch], tuple[Any, Info]]


class Step(NamedTuple):
    """One step of a chain: the states before and after it, the batch it took, and its info."""

    before: Any
    after: Any
    batch: Batch
    info: Info


def unroll(
    sampler: Sampler,
    key: Key,
    state: Any,
    batch_at: Callable[[jax.Array], Batch],
    num_steps: int,
    *,
    first: int | jax.Array = 0,
    observe: Callable[[Step], Any] | None = None,
) -> tuple[Any, Any]:
    """Run steps of one chain as a pure function, to be used under `jit`, `vmap` and `grad`.

    Args:
        sampler: The sampler.
        key: The chain's key for its steps.
        state: The state to start from.
        batch_at: The batch of a step, by the step's number; traced.
        num_steps: The number of steps to take, known when the function is traced.
        first: The number of the first step.
        observe: A function of each step whose results are kept; None keeps nothing.

    Returns:
        The last state, and the results of `observe`, stacked along a leading axis of `num_steps`.
    """

    def body(state: Any, step: jax.Array) -> tuple[Any, Any]:
        taken = _take_step(sampler.step, key, state, batch_at(step), step)
        return taken.after, None if observe is None else observe(taken)

    return jax.lax.scan(body, state, jnp.asarray(first, jnp.int32) + jnp.arange(num_steps, dtype=jnp.int32))


class Segment(NamedTuple):
    """The end of a segment, for each chain.

    `info` is that of the last step. `bad_steps` is the first step with a non-finite energy or position, or -1; `finite`
    tells for each tensor of the state whether all of it is finite.
    """

    states: Any
    info: Info
    bad_steps: jax.Array
    finite: dict[str, jax.Array]


def segment(step_fn: StepFn, read: Callable[..., Batch], num_chains: int) -> Callable[..., Segment]:
    """Return the compiled function that runs `num_chains` chains on one device from one step to another.

    It is one `while_loop` whose first and last step are arguments, so a run compiles once however its segments are
    cut, and a resumed run executes the same program as an uninterrupted one. It stops early if a chain diverges.

    The arguments that a `jax.tree_util.Partial` step binds are arguments of the program as well: steps that differ in
    these alone share it.

    Args:
        step_fn: The sampler's step.
        read: A batch source's `read`; equal readers share a program.
        num_chains: The number of chains, the length of the leading axis of every per-chain argument.

    Returns:
        `run(states, step_keys, data_keys, shared, per_chain, start, first, stop)`: steps `first` to `stop` - 1 with
        batches from the window (`shared`, `per_chain`) that begins at `start`. The buffers of `states` are donated.
    """
    if isinstance(step_fn, jax.tree_util.Partial):
        return partial(_segment(step_fn.func, read, num_chains), bound=step_fn.args)
    return _segment(step_fn, read, num_chains)


@lru_cache(maxsize=64)
def _segment(step_fn: Callable[..., Any], read: Callable[..., Batch], num_chains: int) -> Callable[..., Segment]:
    def move(bound, state, step_key, data_key, shared, own, start, step) -> tuple[Any, Info, jax.Array]:
        batch = read(shared, own, data_key, step, start)
        taken = _take_step(partial(step_fn, *bound), step_key, state, batch, step)
        energy = taken.info.energy
        good = jnp.all(jnp.stack([jnp.isfinite(energy), *_finite(taken.after.position).values()]))
        acceptance, divergent = jnp.asarray(taken.info.acceptance, jnp.float32), jnp.asarray(taken.info.divergent)
        return taken.after, Info(energy.astype(jnp.float32), acceptance, divergent), good

    # A single chain is not batched: convolutions, products and loops with a batch axis of one are slower.
    alone = num_chains == 1
    move_all = move if alone else jax.vmap(move, in_axes=(None, 0, 0, 0, None, 0, None, None))
    finite_all = _finite if alone else jax.vmap(_finite)

    def run(
        states: Any, step_keys: Key, data_keys: Key, shared: Any, per_chain: Any, start, first, stop, bound=()
    ) -> Segment:
        if alone:
            states, step_keys, data_keys, per_chain = trees.at((states, step_keys, data_keys, per_chain), 0)

        def is_unfinished(carry: Any) -> jax.Array:
            step, _, _, bad_steps = carry
            return (step < stop) & jnp.all(bad_steps < 0)

        def body(carry: Any) -> Any:
            step, states, _, bad_steps = carry
            states, info, good = move_all(bound, states, step_keys, data_keys, shared, per_chain, start, step)
            return step + 1, states, info, jnp.where(good, bad_steps, step)

        shape = () if alone else (num_chains,)
        zeros = jnp.zeros(shape, jnp.float32)
        unknown = Info(zeros, zeros, jnp.zeros(shape, bool)), jnp.full(shape, -1, jnp.int32)
        _, states, info, bad_steps = jax.lax.while_loop(is_unfinished, body, (first, states, *unknown))
        end = Segment(states, info, bad_steps, finite_all(states))
        return jax.tree.map(lambda leaf: leaf[None], end) if alone else end

    return jax.jit(run, donate_argnums=0)


def _take_step(step_fn: StepFn, key: Key, state: Any, batch: Batch, step: jax.Array) -> Step:
    after, info = step_fn(jax.random.fold_in(key, step), state, batch)
    return Step(state, after, batch, info)


def _finite(state: Any) -> dict[str, jax.Array]:
    """Return for each tensor of a state, by name, whether all its entries are finite."""
    return {
        name: jnp.all(jnp.isfinite(leaf))
        for name, leaf in trees.named_leaves(state).items()
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
