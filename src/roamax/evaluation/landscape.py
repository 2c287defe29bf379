"""The geometry of draws: similarity, loss surfaces and barriers between them, and the lengths of a sampler's steps.

`draws` is a `roamax.Draws` or a pytree with leading axes (chain, draw). Where draws are numbered, draw d of chain c has
number c * num_samples + d. `data` is `(x, y)` with class labels, and `apply_fn(params, x)` returns logits. Results are
host arrays, ready to be plotted.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import pretrained
from roamax.errors import check, finite, whole
from roamax.evaluation.diagnostics import positions_of
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers.learned import _network
from roamax.samplers.learned.l2e import DECAYS, DEFAULTS, WIDTHS
from roamax.sampling.batches import batch_source
from roamax.sampling.chains import chain_keys
from roamax.sampling.loop import Step, unroll
from roamax.types import Batch, Key, MetaParams, Params, Sampler, Weights

BATCH_SIZE = 1024
"""The default number of examples that go through the network at once."""

ApplyFn = Callable[[Params, Any], jax.Array]


def cosine_similarity(draws: Any) -> np.ndarray:
    """Compute cos(theta_i, theta_j) = <theta_i, theta_j> / (|theta_i| |theta_j|) for all pairs of draws.

    Args:
        draws: The draws.

    Returns:
        A square matrix.
    """
    products: Any = 0.0
    for leaf in jax.tree.leaves(positions_of(draws)):
        rows = leaf.reshape(leaf.shape[0] * leaf.shape[1], -1).astype(np.float64)
        products = products + rows @ rows.T
    norms = np.sqrt(np.diag(products))
    check(bool(np.all(norms > 0)), "draws", "be different from zero", "a draw that is all zeros")
    return products / np.outer(norms, norms)


class Plane(NamedTuple):
    """theta(a, b) = origin + a u + b v with u and v orthonormal; `points` are the (a, b) of the three positions."""

    origin: Params
    u: Params
    v: Params
    points: np.ndarray

    def at(self, a: float, b: float) -> Params:
        """Return the position with coordinates (a, b)."""
        return jax.tree.map(lambda o, u, v: (o + a * u + b * v).astype(o.dtype), self.origin, self.u, self.v)


def plane(first: Params, second: Params, third: Params) -> Plane:
    """Return the plane through three positions, in the basis of Garipov et al. (2018).

    u points from the first to the second; v is the component of third - first orthogonal to u.

    Args:
        first: A position, a pytree of arrays.
        second: Another position.
        third: A position off the line through the other two.

    Returns:
        The plane.
    """
    to_second = jax.tree.map(lambda p, o: np.asarray(p, np.float64) - np.asarray(o, np.float64), second, first)
    to_third = jax.tree.map(lambda p, o: np.asarray(p, np.float64) - np.asarray(o, np.float64), third, first)
    width = np.sqrt(_dot(to_second, to_second))
    check(width > 0, "second", "differ from `first`", "the same position")
    u = jax.tree.map(lambda leaf: leaf / width, to_second)
    along = _dot(to_third, u)
    across = jax.tree.map(lambda leaf, axis: leaf - along * axis, to_third, u)
    height = np.sqrt(_dot(across, across))
    is_off_line = height > 1e-6 * max(width, abs(along))
    check(is_off_line, "third", "lie off the line through `first` and `second`", "a point on it")
    v = jax.tree.map(lambda leaf: leaf / height, across)
    return Plane(jax.tree.map(np.asarray, first), u, v, np.array([[0.0, 0.0], [width, 0.0], [along, height]]))


class Surface(NamedTuple):
    """Error and NLL on a grid: `error[i, j]` and `nll[i, j]` belong to the position with coordinates (a[j], b[i])."""

    a: np.ndarray
    b: np.ndarray
    error: np.ndarray
    nll: np.ndarray
    points: np.ndarray


def error_surface(
    apply_fn: ApplyFn,
    plane: Plane,
    data: Batch,
    *,
    resolution: int = 21,
    margin: float = 0.25,
    batch_size: int = BATCH_SIZE,
) -> Surface:
    """Compute the error rate and NLL on a grid over the plane, with one position in memory at a time.

    Args:
        apply_fn: The network.
        plane: The plane through three positions.
        data: The examples, `(x, y)` with class labels.
        resolution: The number of positions along each axis.
        margin: How far the grid extends beyond the three positions on each side, as a fraction of their extent.
        batch_size: The number of examples that go through the network at once.

    Returns:
        The grid, its error rates and NLLs.
    """
    resolution, margin = whole(resolution, "resolution", 2), finite(margin, "margin", least=0)
    low, high = plane.points.min(axis=0), plane.points.max(axis=0)
    extent = margin * (high - low)
    a, b = np.linspace(low - extent, high + extent, resolution, axis=1)
    batches = _batches(data, batch_size)
    scores = [[_score(apply_fn, plane.at(x, y), batches) for x in a] for y in b]
    error, nll = np.moveaxis(np.array(scores), -1, 0)
    return Surface(a, b, error, nll, plane.points)


class Segments(NamedTuple):
    """Error and NLL (pair, t) along straight lines (1 - t) theta_i + t theta_j, and the height of each barrier."""

    pairs: np.ndarray
    t: np.ndarray
    error: np.ndarray
    nll: np.ndarray
    error_barrier: np.ndarray
    nll_barrier: np.ndarray


def error_segments(
    apply_fn: ApplyFn,
    draws: Any,
    data: Batch,
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    resolution: int = 21,
    batch_size: int = BATCH_SIZE,
) -> Segments:
    """Compute the error rate and NLL on the segments between pairs of draws.

    Args:
        apply_fn: The network.
        draws: The draws.
        data: The examples, `(x, y)` with class labels.
        pairs: The numbers of the draws of each pair; successive draws by default.
        resolution: The number of positions per segment.
        batch_size: The number of examples that go through the network at once.

    Returns:
        The error rates and NLLs along each segment, and their barriers.
    """
    positions = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), positions_of(draws))
    count = len(jax.tree.leaves(positions)[0])
    check(count >= 2, "draws", "hold at least 2 draws", count)
    resolution = whole(resolution, "resolution", 3)
    pairs = list(itertools.pairwise(range(count))) if pairs is None else list(pairs)
    check(len(pairs) > 0, "pairs", "hold at least one pair", "none")
    t, batches = np.linspace(0.0, 1.0, resolution), _batches(data, batch_size)
    scores = []
    for pair in pairs:
        check(len(pair) == 2 and all(0 <= i < count for i in pair), "pairs", f"name draws 0 to {count - 1}", pair)
        start, end = (jax.tree.map(lambda leaf, i=i: leaf[i], positions) for i in pair)
        scores.append([_score(apply_fn, _between(start, end, part), batches) for part in t])
    error, nll = np.moveaxis(np.array(scores), -1, 0)
    return Segments(np.array(pairs), t, error, nll, barrier(error), barrier(nll))


def barrier(path: np.ndarray) -> np.ndarray:
    """Compute the height of the barrier along a segment, the most that values rise above the chord,

        max_t [ f(t) - ((1 - t) f(0) + t f(1)) ] >= 0.

    Two draws in one convex basin have none, however different their own values are.

    Args:
        path: Values at equally spaced positions along the last axis.

    Returns:
        The heights, without the last axis.
    """
    t = np.linspace(0.0, 1.0, path.shape[-1])
    chord = (1 - t) * path[..., :1] + t * path[..., -1:]
    return np.max(path - chord, axis=-1)


class StepNorms(NamedTuple):
    """|theta_{t+1} - theta_t|^2 and the batch's mean NLL at theta_t, for each step t."""

    squared_norm: np.ndarray | jax.Array
    nll: np.ndarray | jax.Array


def step_norms(
    key: Key,
    sampler: Sampler,
    posterior: Posterior,
    init_position: Params,
    data: Any,
    *,
    num_steps: int,
    batch_size: int | None = None,
) -> StepNorms:
    """Measure the squared length of each step of a run, and the NLL of its batch before the step.

    The run is the first chain of `roamax.sample` with the same key, position, data and batch size.

    Args:
        key: The key of the run.
        sampler: The sampler.
        posterior: The posterior whose likelihood is measured.
        init_position: Where the chain starts.
        data: The data, as `roamax.sample` takes them.
        num_steps: The number of steps.
        batch_size: The number of examples per step; None means all data.

    Returns:
        One number of each kind per step.
    """
    num_steps = whole(num_steps, "num_steps")
    keys = chain_keys(key, 1)
    data_key, step_key = keys.data[0], keys.step[0]
    source = batch_source(data, batch_size, num_steps)
    state = sampler.init(keys.state[0], jax.tree.map(jnp.asarray, init_position))

    def observe(step: Step) -> StepNorms:
        moved = jax.tree.map(jnp.subtract, step.after.position, step.before.position)
        nll = -jnp.mean(posterior.log_likelihood(step.before.position, step.batch))
        return StepNorms(trees.squared_norm(moved), nll)

    @partial(jax.jit, static_argnums=5)
    def run(state: Any, shared: Any, own: Any, start: jax.Array, first: jax.Array, count: int) -> tuple[Any, StepNorms]:
        def batch_at(step: jax.Array) -> Batch:
            return source.read(shared, own, data_key, step, start)

        return unroll(sampler, step_key, state, batch_at, count, first=first, observe=observe)

    records, step = [], 0
    while step < num_steps:
        window = source.window(step, keys.data)
        stop = int(min(window.stop, num_steps))
        own = trees.at(window.per_chain, 0)
        state, record = run(state, window.shared, own, jnp.int32(window.start), jnp.int32(step), stop - step)
        records.append(jax.tree.map(np.asarray, record))
        step = stop
    return jax.tree.map(lambda *parts: np.concatenate(parts), *records)


class Heads(NamedTuple):
    """The magnitudes of the two outputs, each an array (fixed value, first axis, second axis)."""

    alpha: np.ndarray
    beta: np.ndarray


class NetworkContours(NamedTuple):
    """The outputs of an L2E network on two grids that share the values `axis`.

    `gradient_momentum` has one grid per value in `parameters`, `parameter_gradient` one per value in `momenta`.
    """

    axis: np.ndarray
    parameters: np.ndarray
    momenta: np.ndarray
    gradient_momentum: Heads
    parameter_gradient: Heads


def network_contours(
    meta_params: MetaParams | Weights | str | Path = "pretrained",
    *,
    output_scale: float | None = None,
    limit: float = 3.0,
    resolution: int = 41,
    parameters: Sequence[float] = (-1.0, 0.0, 1.0),
    momenta: Sequence[float] = (-1.0, 0.0, 1.0),
) -> NetworkContours:
    """Compute |alpha| and |beta| of an L2E network over (gradient, momentum) and over (parameter, gradient).

    Inputs are features as the network sees them, in units of their root mean square over a tensor. All running averages
    of the gradient are set to the gradient itself.

    Args:
        meta_params: The weights, as `roamax.l2e` takes them.
        output_scale: The scale of the outputs, as `roamax.l2e` takes it.
        limit: Grids extend from -limit to limit.
        resolution: The number of values along each axis.
        parameters: The values of the parameter for which grids over (gradient, momentum) are computed.
        momenta: The values of the momentum for which grids over (parameter, gradient) are computed.

    Returns:
        The grids.
    """
    weights = pretrained.resolve(meta_params, "l2e")
    _network.check_mlp(weights.meta_params, WIDTHS, weights.source)
    scale = weights.settings(DEFAULTS, output_scale=output_scale)["output_scale"]
    limit, resolution = finite(limit, "limit", above=0), whole(resolution, "resolution", 2)
    axis = np.linspace(-limit, limit, resolution)

    def heads(gradient: np.ndarray, parameter: np.ndarray, momentum: np.ndarray) -> Heads:
        features = np.stack([gradient, parameter, momentum, *[gradient] * len(DECAYS)])
        alpha, beta = _network.apply_mlp(weights.meta_params, jnp.asarray(features, float))
        return Heads(np.abs(scale * np.asarray(alpha)), np.abs(scale * np.asarray(beta)))

    fixed, gradient, momentum = np.meshgrid(parameters, axis, axis, indexing="ij")
    gradient_momentum = heads(gradient, fixed, momentum)
    fixed, parameter, gradient = np.meshgrid(momenta, axis, axis, indexing="ij")
    parameter_gradient = heads(gradient, parameter, fixed)
    return NetworkContours(axis, np.array(parameters), np.array(momenta), gradient_momentum, parameter_gradient)


def _dot(first: Params, second: Params) -> float:
    products = jax.tree.map(lambda a, b: float(np.vdot(a, b)), first, second)
    return sum(jax.tree.leaves(products))


def _between(start: Params, end: Params, t: float) -> Params:
    return jax.tree.map(lambda s, e: ((1 - t) * s + t * e).astype(s.dtype), start, end)


def _batches(data: Batch, batch_size: int) -> list[Batch]:
    batch_size = whole(batch_size, "batch_size")
    x, y = data
    labels = np.asarray(y)
    check(
        np.issubdtype(labels.dtype, np.integer), "data", "be (x, y) with whole-number labels", f"dtype {labels.dtype}"
    )
    data = x, labels.astype(np.int32)
    starts = range(0, trees.leading_length(data, "data"), batch_size)
    return [jax.tree.map(lambda array, s=s: jnp.asarray(array[s : s + batch_size]), data) for s in starts]


def _score(apply_fn: ApplyFn, params: Params, batches: list[Batch]) -> tuple[float, float]:
    """Compute the error rate and the mean NLL; NaN logits count as errors and make the NLL NaN."""
    totals = np.sum([np.asarray(_batch_totals(apply_fn, params, x, y), np.float64) for x, y in batches], axis=0)
    wrong, nll = totals / sum(len(y) for _, y in batches)
    return wrong, nll


@partial(jax.jit, static_argnums=0)
def _batch_totals(apply_fn: ApplyFn, params: Params, x: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_probs = jax.nn.log_softmax(apply_fn(params, x))
    of_label = jnp.take_along_axis(log_probs, y[:, None], axis=-1)[:, 0]
    wrong = (jnp.argmax(log_probs, axis=-1).astype(y.dtype) != y) | jnp.isnan(of_label)
    return jnp.sum(wrong, dtype=of_label.dtype), -jnp.sum(of_label)
