"""Minibatches from arrays on the device, arrays in files, a function of the step, or an iterator.

A source returns *windows*: a range of steps, and the device arrays from which each of those steps takes its batch.
Which examples a step sees depends only on keys and the step, so a run resumes without any saved loader state.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import InputError, check
from roamax.numerics import trees
from roamax.numerics.quick import jit_quickly
from roamax.types import Batch, Key

DEVICE_BYTES = 2 * 1024**3
"""The total size above which arrays are streamed from the host instead of copied to the device."""
WINDOW_BYTES = 64 * 1024**2
"""The most that a window of streamed batches may hold."""
WINDOW_INDICES = 2**15
"""The target number of shuffled indices per window: enough that the host rarely has to act, few enough that a short run
does not wait for permutations that it never uses."""


class Window(NamedTuple):
    """Steps [start, stop), and the arrays that their batches come from: shared by all chains, and per chain."""

    start: int
    stop: float
    shared: Any
    per_chain: Any


class BatchSource(Protocol):
    """Batches for chains, each of which has its own data key.

    `read(shared, per_chain, key, step, start)` returns the batch of one chain at one step of the window that begins
    at `start`. It is traced, and holds no arrays: equal readers share a compiled program.
    """

    @property
    def read(self) -> Callable[[Any, Any, Key, jax.Array, jax.Array], Batch]: ...

    def window(self, step: int, keys: Key) -> Window:
        """Return the window that `step` lies in, for the chains with these data keys. Runs on the host."""
        ...

    def example(self) -> Batch:
        """Return a batch, or the shapes and dtypes of one. Runs on the host."""
        ...


class WithReplacement(NamedTuple):
    """Batches whose examples are drawn independently."""

    length: int
    batch_size: int

    def window(self, step: int, keys: Key) -> Window:
        """Return one window for the whole run."""
        return Window(0, math.inf, (), ())

    def rows(self, per_chain: Any, key: Key, step: jax.Array, start: jax.Array) -> jax.Array:
        """Return the row numbers of a batch."""
        return jax.random.randint(jax.random.fold_in(key, step), (self.batch_size,), 0, self.length)


class ShuffledEpochs(NamedTuple):
    """Every example at most once per epoch, in a new order for each epoch and chain.

    Where the batch size does not divide the length, the examples left over are skipped in that epoch. With `sweeps`, an
    epoch's batches come in order and then in reverse.
    """

    length: int
    batch_size: int
    sweeps: bool = False

    @property
    def order_steps(self) -> int:
        """The number of steps with one order."""
        return self.length // self.batch_size * (2 if self.sweeps else 1)

    def window(self, step: int, keys: Key) -> Window:
        """Return the permutations of a few epochs for every chain."""
        epoch_steps = self.order_steps
        epochs = max(1, WINDOW_INDICES // self.length)
        start = step - step % (epochs * epoch_steps)
        orders = _orders(keys, np.arange(epochs, dtype=np.int32) + np.int32(start // epoch_steps), self.length)
        return Window(start, start + epochs * epoch_steps, (), orders)

    def rows(self, per_chain: Any, key: Key, step: jax.Array, start: jax.Array) -> jax.Array:
        """Return the row numbers of a batch."""
        epoch, place = jnp.divmod(step - start, self.order_steps)
        if self.sweeps:
            place = jnp.minimum(place, self.order_steps - 1 - place)
        return jax.lax.dynamic_slice(per_chain, (epoch, place * self.batch_size), (1, self.batch_size))[0]


Order = ShuffledEpochs | WithReplacement


class FullBatch(NamedTuple):
    """All data at every step."""

    data: Batch

    @property
    def read(self) -> Callable[..., Batch]:
        """Return all data at every step."""
        return _read_whole

    def window(self, step: int, keys: Key) -> Window:
        """Return one window for the whole run."""
        return Window(0, math.inf, self.data, ())

    def example(self) -> Batch:
        """Return all data."""
        return self.data


class OnDevice(NamedTuple):
    """Arrays on the device; the compiled loop gathers each batch itself."""

    data: Batch
    order: Order

    @property
    def read(self) -> Callable[..., Batch]:
        """Gather the rows that the order names."""
        return _Gather(self.order)

    def window(self, step: int, keys: Key) -> Window:
        """Return the order's window, with the data."""
        return self.order.window(step, keys)._replace(shared=self.data)

    def example(self) -> Batch:
        """Return shapes and dtypes of a batch."""
        return _shapes(self.data, self.order.batch_size)


class Streamed(NamedTuple):
    """Arrays that stay in host memory or in a mapped file; windows of gathered batches go to the device."""

    data: Batch
    order: Order
    window_steps: int

    @property
    def read(self) -> Callable[..., Batch]:
        """Take the batch that was gathered for this step and chain."""
        return _read_own

    def window(self, step: int, keys: Key) -> Window:
        """Gather the batches of the next few steps on the host, for every chain."""
        outer = self.order.window(step, keys)
        start = step - (step - outer.start) % self.window_steps
        stop = min(start + self.window_steps, outer.stop)
        steps = jnp.asarray([min(start + i, int(stop) - 1) for i in range(self.window_steps)], jnp.int32)
        rows = np.asarray(_row_numbers(self.order, outer.per_chain, keys, steps, jnp.int32(outer.start)))
        return Window(start, stop, (), trees.on_device(trees.at(self.data, rows), "data"))

    def example(self) -> Batch:
        """Return shapes and dtypes of a batch."""
        return _shapes(self.data, self.order.batch_size)


class Called(NamedTuple):
    """A function of the step that returns a batch, the same for all chains."""

    function: Callable[[int], Batch]
    window_steps: int
    num_steps: int

    @property
    def read(self) -> Callable[..., Batch]:
        """Take the batch that the function returned for this step."""
        return _read_shared

    def window(self, step: int, keys: Key) -> Window:
        """Call the function for the next few steps; a resumed run requests no batch before `step`."""
        stop = min(step + self.window_steps, self.num_steps)
        batches = [self.function(i) for i in range(step, stop)]
        batches += [batches[-1]] * (self.window_steps - len(batches))
        return Window(step, stop, trees.on_device(trees.stack(batches), "data"), ())

    def example(self) -> Batch:
        """Return the first batch; an iterator still gives it to the first step."""
        ahead = self.function.peek() if isinstance(self.function, _FromIterator) else self.function(0)
        return jax.tree.map(jnp.asarray, ahead)


class _Gather(NamedTuple):
    order: Order

    def __call__(self, shared: Any, per_chain: Any, key: Key, step: jax.Array, start: jax.Array) -> Batch:
        rows = self.order.rows(per_chain, key, step, start)
        return jax.tree.map(lambda array: array.at[rows].get(mode="promise_in_bounds"), shared)


def _read_whole(shared: Any, per_chain: Any, key: Key, step: jax.Array, start: jax.Array) -> Batch:
    return shared


def _read_own(shared: Any, per_chain: Any, key: Key, step: jax.Array, start: jax.Array) -> Batch:
    return jax.tree.map(lambda array: array[step - start], per_chain)


def _read_shared(shared: Any, per_chain: Any, key: Key, step: jax.Array, start: jax.Array) -> Batch:
    return jax.tree.map(lambda array: array[step - start], shared)


def batch_source(
    data: Any, batch_size: int | None, num_steps: int, *, replacement: bool = False, sweeps: bool = False
) -> BatchSource:
    """Return the batch source for data as `roamax.sample` takes them.

    Args:
        data: A pytree of arrays, a function of the step, or an iterator of batches.
        batch_size: The number of examples per batch; None means all data, or batches as `data` makes them.
        num_steps: The number of steps of the run.
        replacement: Whether to draw with replacement instead of from shuffled epochs.
        sweeps: Whether to run through the batches of an epoch and then back, before shuffling anew.
    """
    if callable(data):
        return _called(data, batch_size, num_steps)
    if isinstance(data, Iterator):
        return _called(_FromIterator(data), batch_size, num_steps)
    length = trees.leading_length(data, "data")
    if batch_size is None or batch_size == length:
        return FullBatch(trees.on_device(data, "data"))
    check(batch_size <= length, "batch_size", f"be at most the length of the data, {length}", batch_size)
    if replacement and sweeps:
        raise InputError("`replacement` must be False for a sampler that sweeps through epochs; got True.")
    order = WithReplacement(length, batch_size) if replacement else ShuffledEpochs(length, batch_size, sweeps)
    leaves = jax.tree.leaves(data)
    num_bytes = sum(leaf.nbytes for leaf in leaves)
    if num_bytes > DEVICE_BYTES or any(isinstance(leaf, np.memmap) for leaf in leaves):
        return Streamed(data, order, _window_steps(num_bytes // length * batch_size))
    return OnDevice(trees.on_device(data, "data"), order)


class _FromIterator:
    """An iterator as a function of the step, to be called for one step after the other."""

    def __init__(self, iterator: Iterator[Batch]):
        self.iterator = iterator
        self.has_begun = False

    def peek(self) -> Batch:
        """Return the next batch, and keep it for the step that will ask for it."""
        batch = self._next(0)
        self.iterator = itertools.chain([batch], self.iterator)
        return batch

    def __call__(self, step: int) -> Batch:
        if step and not self.has_begun:
            message = f"an iterator cannot be resumed exactly: step {step} gets its next batch, whichever that is"
            warnings.warn(message, stacklevel=2)
        self.has_begun = True
        return self._next(step)

    def _next(self, step: int) -> Batch:
        try:
            return next(self.iterator)
        except StopIteration:
            raise InputError(
                f"`data` must give a batch for every step; got an iterator that ended at step {step}."
            ) from None


def _called(function: Callable[[int], Batch], batch_size: int | None, num_steps: int) -> Called:
    if batch_size is not None:
        raise InputError(f"`batch_size` must be None when `data` makes the batches itself; got {batch_size}.")
    return Called(function, min(32, num_steps), num_steps)


def _shapes(data: Batch, batch_size: int) -> Batch:
    return jax.tree.map(
        lambda array: jax.ShapeDtypeStruct((batch_size, *array.shape[1:]), jax.dtypes.canonicalize_dtype(array.dtype)),
        data,
    )


def _window_steps(batch_bytes: int) -> int:
    return max(1, min(256, WINDOW_BYTES // max(1, batch_bytes)))


@partial(jit_quickly, static_argnums=2)
def _orders(keys: Key, epochs: jax.typing.ArrayLike, length: int) -> jax.Array:
    def order(key: Key, epoch: jax.Array) -> jax.Array:
        return jax.random.permutation(jax.random.fold_in(key, epoch), length)

    return jax.vmap(lambda key: jax.vmap(lambda epoch: order(key, epoch))(epochs))(keys)


@partial(jit_quickly, static_argnums=0)
def _row_numbers(order: Any, per_chain: Any, keys: Key, steps: jax.Array, start: jax.Array) -> jax.Array:
    def chain(per_chain: Any, key: Key) -> jax.Array:
        return jax.vmap(lambda step: order.rows(per_chain, key, step, start))(steps)

    return jax.vmap(chain)(per_chain, keys)
