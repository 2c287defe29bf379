"""Bayesian model averaging, streamed over draws and over batches of inputs."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from roamax.errors import check, whole
from roamax.host.machine import check_not_forked
from roamax.likelihoods import gaussian
from roamax.numerics import trees
from roamax.numerics.programs import inner_programs
from roamax.sampling.draws import Draws
from roamax.types import Params

ApplyFn = Callable[[Params, Any], Any]
BATCH_SIZE = 2048
"""The most inputs that go through the network at once, unless the caller says how many."""
CACHE_BYTES = 2**22
"""On CPUs, the default batch's largest array is at most this long; longer ones take up to five times the time."""


class Normal(NamedTuple):
    """The mean and standard deviation of a regression's predictive distribution, a mixture over draws.

    Both are NumPy arrays, or tensors where `roamax.torch` predicts.
    """

    mean: Any
    std: Any


def predict(apply_fn: ApplyFn, draws: Draws | Iterable[Params], x: Any, *, batch_size: int | None = None) -> Any:
    """Compute the posterior predictive at inputs `x`, an average over all draws of all chains.

    Apart from the result, memory depends neither on the number of draws nor on that of inputs; each draw is read once.

    Args:
        apply_fn: The network, `apply_fn(params, x)`, which returns logits, or a pair of a mean and a scale.
        draws: The draws, or any iterable of parameters.
        x: The inputs, an array or a pytree of arrays with a common leading length.
        batch_size: The number of inputs that go through the network at once; None for one that suits the network.

    Returns:
        For logits, the mean of their softmax, an array (inputs, classes). For a mean and a scale, a `Normal`: by the
        law of total variance, its variance is the mean of scale^2 plus the variance of the means.
    """
    totals: list[Any] | None = None
    count = 0
    batches = []
    for params in draws:
        params = jax.device_put(params)
        count += 1
        if totals is None:
            batches = _batches(x, _size(batch_size, apply_fn, params, x))
            totals = [_begin(apply_fn, params, batch) for batch in batches]
        else:
            totals = [_add(apply_fn, params, batch, total, count) for batch, total in zip(batches, totals, strict=True)]
    check(totals is not None, "draws", "hold at least one draw", "none")
    assert totals is not None
    length = trees.leading_length(x, "x")
    total = jax.tree.map(lambda *parts: np.concatenate([np.asarray(part) for part in parts])[:length], *totals)
    if not isinstance(total, _Moments):
        return total / count
    return Normal(np.asarray(total.first + total.offset), np.sqrt(total.noise + total.spread / count))


def predict_draws(
    apply_fn: ApplyFn, draws: Draws | Iterable[Params], x: Any, *, batch_size: int | None = None
) -> np.ndarray:
    """Compute the log-probabilities of each draw, for metrics that compare draws.

    Args:
        apply_fn: The network, `apply_fn(params, x)`, which returns logits.
        draws: The draws, or any iterable of parameters.
        x: The inputs, an array or a pytree of arrays with a common leading length.
        batch_size: The number of inputs that go through the network at once; None for one that suits the network.

    Returns:
        An array (draws of all chains, inputs, classes).
    """
    length = trees.leading_length(x, "x")
    rows, batches = [], []
    for params in draws:
        batches = batches or _batches(x, _size(batch_size, apply_fn, params, x))
        rows.append(np.concatenate([np.asarray(_log_probs(apply_fn, params, batch)) for batch in batches])[:length])
    check(len(rows) > 0, "draws", "hold at least one draw", "none")
    return np.stack(rows)


class MixtureNLL:
    """The NLL of real targets under the mixture over draws, the mean of -log (1/D) sum_d N(y | mean_d, scale_d^2).

    In nats, summed over the outputs of an example, and streamed: memory does not depend on the number of draws.
    """

    def __init__(self, apply_fn: ApplyFn, x: Any, y: Any, *, batch_size: int | None = None):
        self._apply_fn, self._data, self._batch_size = apply_fn, (x, y), batch_size
        self._batches: list[Any] = []
        self._totals: list[jax.Array] = []
        self._count, self._length = 0, trees.leading_length(x, "x")

    def watch(self, draws: Iterable[Params]) -> Iterator[Params]:
        """Yield the draws, and add each to the mixture: who reads them for another purpose need not read them twice."""
        for params in draws:
            if not self._batches:
                size = _size(self._batch_size, self._apply_fn, params, self._data[0])
                self._batches = _batches(self._data, size)
            densities = [_log_density(self._apply_fn, params, batch) for batch in self._batches]
            pairs = zip(self._totals, densities, strict=True)
            self._totals = [jnp.logaddexp(*pair) for pair in pairs] if self._count else densities
            self._count += 1
            yield params

    @property
    def value(self) -> float:
        """The NLL of the draws so far."""
        check(self._count > 0, "draws", "hold at least one draw", "none")
        total = np.concatenate([np.asarray(part, np.float64) for part in self._totals])[: self._length]
        return float(math.log(self._count) - np.mean(total))


def mixture_nll(
    apply_fn: ApplyFn, draws: Draws | Iterable[Params], x: Any, y: Any, *, batch_size: int | None = None
) -> float:
    """Compute the NLL of real targets under the mixture over draws, in nats.

    Args:
        apply_fn: The network, `apply_fn(params, x)`: a pair of a mean and a scale.
        draws: The draws, or any iterable of parameters.
        x: The inputs, an array or a pytree of arrays with one leading length.
        y: The targets.
        batch_size: The number of inputs that go through the network at once; None for one that suits the network.

    Returns:
        The mean over examples of -log (1/D) sum_d N(y | mean_d, scale_d^2).
    """
    mixture = MixtureNLL(apply_fn, x, y, batch_size=batch_size)
    for _ in mixture.watch(draws):
        pass
    return mixture.value


def _size(batch_size: int | None, apply_fn: ApplyFn, params: Params, x: Any) -> int:
    """Return a batch size: the caller's, or one with which the network's largest array fits the caches of a CPU."""
    if batch_size is not None:
        return whole(batch_size, "batch_size")
    if jax.default_backend() != "cpu":
        return BATCH_SIZE
    # What grows with the number of inputs: a network may also compute with its parameters alone.
    two, three = (_array_bytes(apply_fn, params, x, count) for count in (2, 3))
    each = max(more - fewer for fewer, more in zip(two, three, strict=False))
    fit = max(1, CACHE_BYTES // max(1, each))
    return min(BATCH_SIZE, 2 ** (fit.bit_length() - 1))


def _array_bytes(apply_fn: ApplyFn, params: Params, x: Any, count: int) -> list[int]:
    """Return the length of each array that a network takes or computes, at `count` inputs."""
    dtype_of = jax.dtypes.canonicalize_dtype
    inputs = jax.tree.map(lambda array: jax.ShapeDtypeStruct((count, *array.shape[1:]), dtype_of(array.dtype)), x)
    program = _outputs.trace(apply_fn, params, inputs).jaxpr
    return [variable.aval.size * variable.aval.dtype.itemsize for variable in _variables(program)]


def _variables(program: ClosedJaxpr) -> Iterator[Any]:
    """Yield what a program, and all programs in it, take and compute."""
    yield from program.jaxpr.invars
    for equation in program.jaxpr.eqns:
        yield from equation.outvars
        for inner in inner_programs(equation):
            yield from _variables(inner)


def _batches(x: Any, batch_size: int) -> list[Any]:
    """Split inputs into batches of one size, the last padded with its last row, so that one program serves all."""
    check_not_forked()
    length = trees.leading_length(x, "x")
    size = min(batch_size, length)

    def cut(start: int) -> Any:
        # Gathering rows by index is several times slower than copying a slice.
        is_short = start + size > length
        rows = np.minimum(np.arange(start, start + size), length - 1) if is_short else slice(start, start + size)
        return jax.tree.map(lambda array: jnp.asarray(array[rows]), x)

    return [cut(start) for start in range(0, length, size)]


class _Moments(NamedTuple):
    """Running moments of the draws' means, by Welford's method, relative to the first draw's.

    A second moment minus a squared mean would lose the variance to rounding if targets are far from 0.
    """

    first: jax.Array
    offset: jax.Array
    """The mean of the means so far, minus `first`."""
    spread: jax.Array
    """The sum of squared distances to that mean."""
    noise: jax.Array
    """The mean of the squared scales."""


@partial(jax.jit, static_argnums=0)
def _outputs(apply_fn: ApplyFn, params: Params, x: Any) -> Any:
    return apply_fn(params, x)


@partial(jax.jit, static_argnums=0)
def _begin(apply_fn: ApplyFn, params: Params, x: Any) -> Any:
    output = apply_fn(params, x)
    if not isinstance(output, tuple):
        return jax.nn.softmax(output)
    mean, scale = output
    return _Moments(mean, jnp.zeros_like(mean), jnp.zeros_like(mean), jnp.broadcast_to(scale, mean.shape) ** 2)


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def _add(apply_fn: ApplyFn, params: Params, x: Any, total: Any, count: jax.Array | int) -> Any:
    """Add draw number `count`, counted from 1."""
    output = apply_fn(params, x)
    if not isinstance(output, tuple):
        return total + jax.nn.softmax(output)
    mean, scale = output
    weight = jnp.asarray(1 / jnp.asarray(count, float), mean.dtype)
    distance = mean - total.first
    offset = total.offset + weight * (distance - total.offset)
    spread = total.spread + (distance - total.offset) * (distance - offset)
    return _Moments(
        total.first, offset, spread, total.noise + weight * (jnp.broadcast_to(scale, mean.shape) ** 2 - total.noise)
    )


@partial(jax.jit, static_argnums=0)
def _log_probs(apply_fn: ApplyFn, params: Params, x: Any) -> jax.Array:
    return jax.nn.log_softmax(apply_fn(params, x))


@partial(jax.jit, static_argnums=0)
def _log_density(apply_fn: ApplyFn, params: Params, batch: Any) -> jax.Array:
    return gaussian(apply_fn)(params, batch)
