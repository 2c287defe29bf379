"""Metrics of predictions, and of how much draws disagree.

`predictions` are the averaged predictive distribution, (n, classes); `draw_predictions` are those of each draw,
(draws, n, classes), where several leading axes (chain, draw) are flattened into one. Both may be probabilities or
log-probabilities. Prefer log-probabilities where a softmax may underflow: a label whose probability is exactly 0 has an
infinite loss. `labels` are integers, (n,).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike

from roamax.errors import InputError, check, finite, whole

ROW_SUM_TOLERANCE = 1e-3
BLOCK_ENTRIES = 4_000_000
"""The number of entries of (draws, n, classes) processed at once."""


def as_log_probs(predictions: ArrayLike, argument: str = "predictions") -> jax.Array:
    """Return log-probabilities, given probabilities or log-probabilities, with classes on the last axis.

    The two are told apart by the sums of their rows: 1 for probabilities, at most 0 for log-probabilities. Rows that
    are neither, such as logits, raise an error.

    Args:
        predictions: The predictions, of shape (n, classes) or with more leading axes.
        argument: The name of the predictions in errors.

    Returns:
        The log-probabilities, in the shape of `predictions`.
    """
    array = np.asarray(predictions)
    if array.dtype != np.float64:
        array = array.astype(np.float32, copy=False)
    check(array.ndim >= 2, argument, "have shape (n, classes), or (draws, n, classes)", f"shape {array.shape}")
    check(array.size > 0, argument, "not be empty", f"shape {array.shape}")
    check(array.shape[-1] >= 2, argument, "have at least 2 classes", f"shape {array.shape}")
    check(not np.isnan(array).any(), argument, "hold no NaN", "NaN")
    if np.all(np.sum(array, axis=-1) < 0.5):
        log_probs, probs = array, np.exp(array)
    else:
        check(
            bool(np.all(array >= -1e-6)),
            argument,
            "be probabilities or log-probabilities",
            f"the negative entry {np.min(array):.3g} among positive ones",
        )
        probs = array
        with np.errstate(divide="ignore"):
            log_probs = np.log(np.maximum(array, 0))
    sums = np.sum(probs, axis=-1)
    worst = sums.flat[np.argmax(np.abs(sums - 1))]
    check(
        bool(abs(worst - 1) <= ROW_SUM_TOLERANCE),
        argument,
        "be probabilities or log-probabilities, which sum to 1 over classes",
        f"a row that sums to {worst:.6g}",
    )
    return jnp.asarray(log_probs, float)


def average(draw_predictions: ArrayLike) -> jax.Array:
    """Compute the log-probabilities of the Bayesian model average, log (1/D) sum_d p_d.

    Args:
        draw_predictions: The predictions of each draw, (draws, n, classes).

    Returns:
        An array (n, classes).
    """
    return _map_blocks(_average, draw_predictions)


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Compute the share of examples whose label has the highest probability.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        labels: The labels, (n,).

    Returns:
        The accuracy, from 0 to 1.
    """
    return float(np.mean(np.asarray(_correct(*_with_labels(predictions, labels)))))


def nll(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Compute the negative log-likelihood per example.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        labels: The labels, (n,).

    Returns:
        The mean of -log p(label), in nats.
    """
    return float(_nll(*_with_labels(predictions, labels)))


def brier(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Compute the Brier score, the mean of sum_c (p_c - [c = label])^2.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        labels: The labels, (n,).

    Returns:
        The score: 0 at best, 2 at worst.
    """
    return float(_brier(*_with_labels(predictions, labels)))


class Reliability(NamedTuple):
    """A table with one row per bin of top confidence (lower, upper]; both means of an empty bin are NaN."""

    lower: np.ndarray
    upper: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray


def reliability(predictions: ArrayLike, labels: ArrayLike, bins: int = 15) -> Reliability:
    """Compute mean confidence and accuracy in equal-width bins of the top confidence.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        labels: The labels, (n,).
        bins: The number of bins.

    Returns:
        One row per bin.
    """
    bins = whole(bins, "bins")
    log_probs, classes = _with_labels(predictions, labels)
    confidence = np.exp(np.max(np.asarray(log_probs), axis=-1))
    correct = np.asarray(_correct(log_probs, classes))
    edges = np.linspace(0.0, 1.0, bins + 1)
    index = np.clip(np.digitize(confidence, edges, right=True) - 1, 0, bins - 1)
    count = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(index, confidence, minlength=bins) / count
        mean_accuracy = np.bincount(index, correct, minlength=bins) / count
    return Reliability(edges[:-1], edges[1:], count, mean_confidence, mean_accuracy)


def ece(predictions: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Compute the expected calibration error, sum_b (n_b / n) |accuracy_b - confidence_b| over `reliability`'s bins.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        labels: The labels, (n,).
        bins: The number of bins.

    Returns:
        The error, from 0 to 1.
    """
    table = reliability(predictions, labels, bins)
    gaps = np.nan_to_num(np.abs(table.accuracy - table.confidence))
    return float(np.sum(table.count * gaps) / np.sum(table.count))


def entropy(predictions: ArrayLike) -> jax.Array:
    """Compute the entropy of each prediction, -sum_c p_c log p_c.

    Args:
        predictions: The averaged predictive distribution, (n, classes).

    Returns:
        The entropies in nats, (n,).
    """
    return _entropy(_averaged(predictions, "predictions"))


def mutual_information(draw_predictions: ArrayLike) -> jax.Array:
    """Compute the mutual information of draw and label, H(mean_d p_d) - mean_d H(p_d) >= 0.

    Args:
        draw_predictions: The predictions of each draw, (draws, n, classes).

    Returns:
        The mutual information in nats, (n,).
    """
    return _map_blocks(_mutual_information, draw_predictions)


def pairwise_kl(draw_predictions: ArrayLike) -> float:
    """Compute the mean over ordered pairs of distinct draws, and over examples, of KL(p_i || p_j).

    Args:
        draw_predictions: The predictions of each draw, (draws, n, classes).

    Returns:
        The divergence in nats. A single draw has no pairs: the result is then NaN, not 0, which would mean agreement.
    """
    if _as_draws(draw_predictions).shape[0] == 1:
        return float("nan")
    return float(np.mean(np.asarray(_map_blocks(_pairwise_kl, draw_predictions), np.float64)))


def agreement(predictions: ArrayLike, reference: ArrayLike) -> float:
    """Compute the share of examples for which two predictive distributions have the same most probable class.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        reference: Another predictive distribution, (n, classes).

    Returns:
        The share, from 0 to 1.
    """
    log_p, log_q = _pair(predictions, reference)
    return float(np.mean(np.asarray(_correct(log_p, jnp.argmax(log_q, axis=-1)))))


def total_variation(predictions: ArrayLike, reference: ArrayLike) -> float:
    """Compute the mean total variation distance, sum_c |p_c - q_c| / 2, between two predictive distributions.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        reference: Another predictive distribution, (n, classes).

    Returns:
        The distance, from 0 to 1.
    """
    return float(_total_variation(*_pair(predictions, reference)))


def rejection_curve(predictions: ArrayLike, labels: ArrayLike, steps: int = 20) -> dict[str, list[float]]:
    """Compute the accuracy on the inputs that are left when the least confident ones are rejected.

    Args:
        predictions: The averaged predictive distribution, (n, classes).
        labels: The labels, (n,).
        steps: The number of shares, from 0 to just below 1.

    Returns:
        `rejected`, the shares, and `acc`, the accuracy on the rest.
    """
    log_probs, classes = _with_labels(predictions, labels)
    order = np.argsort(-np.max(np.asarray(log_probs), axis=-1), kind="stable")
    correct = np.asarray(_correct(log_probs, classes))[order]
    shares = np.arange(whole(steps, "steps")) / steps
    kept = [max(1, round(len(order) * (1 - share))) for share in shares]
    return {"rejected": shares.tolist(), "acc": [float(np.mean(correct[:count])) for count in kept]}


def ood_auroc(in_predictions: ArrayLike, out_predictions: ArrayLike) -> float:
    """Compute the area under the ROC curve of out-of-distribution detection by the maximum softmax probability.

    Args:
        in_predictions: Predictions on in-distribution inputs, (n, classes).
        out_predictions: Predictions on out-of-distribution inputs, (m, classes).

    Returns:
        1 if every prediction on in-distribution inputs is more confident than every other one, 1/2 by chance.
    """
    from sklearn.metrics import roc_auc_score

    inside = np.asarray(jnp.max(_averaged(in_predictions, "in_predictions"), axis=-1))
    outside = np.asarray(jnp.max(_averaged(out_predictions, "out_predictions"), axis=-1))
    is_inside = np.repeat([1, 0], [len(inside), len(outside)])
    return float(roc_auc_score(is_inside, np.concatenate([inside, outside])))


def by_corruption(
    predictions: Mapping[tuple[str, int], ArrayLike],
    labels: ArrayLike,
    metric: Callable[[ArrayLike, ArrayLike], float] = accuracy,
) -> dict[str, dict[int, float]]:
    """Tabulate a metric by corruption and severity.

    Args:
        predictions: The predictions on each (corruption, severity).
        labels: The labels, the same for every corrupted copy of the data.
        metric: The metric, a function of predictions and labels.

    Returns:
        The metric by corruption and severity. The last row, "mean", averages over the corruptions of each severity.
    """
    check(len(predictions) > 0, "predictions", "hold at least one (corruption, severity)", "none")
    table: dict[str, dict[int, float]] = {}
    for name, severity in sorted(predictions):
        table.setdefault(name, {})[severity] = metric(predictions[name, severity], labels)
    severities = sorted({severity for row in table.values() for severity in row})
    columns = {severity: [row[severity] for row in table.values() if severity in row] for severity in severities}
    return table | {"mean": {severity: float(np.mean(column)) for severity, column in columns.items()}}


def summary(draw_predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `acc`, `nll`, `ece` and `brier` of the model average, and `kld`, the mean pairwise KL of its draws.

    Args:
        draw_predictions: The predictions of each draw; (n, classes) is one draw, for which `kld` is NaN.
        labels: The labels, (n,).

    Returns:
        The metrics by name.
    """
    array = np.asarray(draw_predictions)
    draws = array[None] if array.ndim == 2 else array
    predictions = average(draws)
    return {
        "acc": accuracy(predictions, labels),
        "nll": nll(predictions, labels),
        "ece": ece(predictions, labels),
        "brier": brier(predictions, labels),
        "kld": pairwise_kl(draws),
    }


def regression_summary(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Compute `rmse`, `gaussian_nll` and `coverage`, the share of targets in the central 95 % of N(mean, std^2).

    Args:
        mean: The predictive means.
        std: The predictive standard deviations.
        y: The targets.

    Returns:
        The metrics by name.
    """
    return {"rmse": rmse(mean, y), "gaussian_nll": gaussian_nll(mean, std, y), "coverage": coverage(mean, std, y)}


def gaussian_nll(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> float:
    """Compute the mean over examples of -log N(y | mean, std^2), summed over the outputs of an example.

    Args:
        mean: The predictive means.
        std: The predictive standard deviations.
        y: The targets.

    Returns:
        The NLL in nats.
    """
    means, stds, targets = _regression(mean, std, y)
    terms = 0.5 * np.square((targets - means) / stds) + np.log(stds) + 0.5 * np.log(2 * np.pi)
    return float(np.mean(np.sum(terms.reshape(len(terms), -1), axis=1)))


def rmse(mean: ArrayLike, y: ArrayLike) -> float:
    """Compute the root mean squared error.

    Args:
        mean: The predictive means.
        y: The targets.

    Returns:
        The error, in the units of `y`.
    """
    means, _, targets = _regression(mean, 1.0, y)
    return float(np.sqrt(np.mean(np.square(targets - means))))


def coverage(mean: ArrayLike, std: ArrayLike, y: ArrayLike, level: float = 0.95) -> float:
    """Compute the share of targets in the central interval of N(mean, std^2) with probability `level`.

    Args:
        mean: The predictive means.
        std: The predictive standard deviations.
        y: The targets.
        level: The probability of the interval.

    Returns:
        The share; `level` if the predictions are calibrated.
    """
    from scipy.stats import norm

    level = finite(level, "level", above=0, below=1)
    means, stds, targets = _regression(mean, std, y)
    return float(np.mean(np.abs(targets - means) <= norm.ppf(0.5 + level / 2) * stds))


@jax.jit
def _average(log_probs: jax.Array) -> jax.Array:
    return logsumexp(log_probs, axis=0) - jnp.log(float(log_probs.shape[0]))


@jax.jit
def _correct(log_probs: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.argmax(log_probs, axis=-1) == labels


@jax.jit
def _nll(log_probs: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], axis=-1))


@jax.jit
def _brier(log_probs: jax.Array, labels: jax.Array) -> jax.Array:
    targets = jax.nn.one_hot(labels, log_probs.shape[-1], dtype=log_probs.dtype)
    return jnp.mean(jnp.sum(jnp.square(jnp.exp(log_probs) - targets), axis=-1))


@jax.jit
def _entropy(log_probs: jax.Array) -> jax.Array:
    # A class with p = 0 adds the limit of p log p, which is 0.
    return -jnp.sum(jnp.where(jnp.isneginf(log_probs), 0.0, jnp.exp(log_probs) * log_probs), axis=-1)


@jax.jit
def _mutual_information(log_probs: jax.Array) -> jax.Array:
    # As the mean of KL(p_d || mean p), which loses fewer digits to cancellation than a difference of two entropies.
    mean = _average(log_probs)
    gain = jnp.where(jnp.isneginf(log_probs), 0.0, log_probs - mean[None])
    return jnp.maximum(jnp.mean(jnp.sum(jnp.exp(log_probs) * gain, axis=-1), axis=0), 0.0)


@jax.jit
def _pairwise_kl(log_probs: jax.Array) -> jax.Array:
    """Compute the mean over ordered pairs, in time linear in the number of draws.

    sum_ij p_i (log p_i - log p_j) = D sum_i (p_i - mean p)(log p_i - mean log p): the mean over pairs of distinct draws
    is the covariance over draws of p and log p, summed over classes. If one draw rules out a class that another allows,
    the divergence is infinite; if all rule it out, it adds nothing.
    """
    ruled_out = jnp.isneginf(log_probs)
    probs, logs = jnp.exp(log_probs), jnp.where(ruled_out, 0.0, log_probs)
    centred = logs - jnp.mean(logs, axis=0, keepdims=True)
    covariance = jnp.sum((probs - jnp.mean(probs, axis=0, keepdims=True)) * centred, axis=0) / (len(probs) - 1)
    disputed = jnp.any(ruled_out, axis=0) & ~jnp.all(ruled_out, axis=0)
    return jnp.sum(jnp.where(disputed, jnp.inf, covariance), axis=-1)


@jax.jit
def _total_variation(log_p: jax.Array, log_q: jax.Array) -> jax.Array:
    return 0.5 * jnp.mean(jnp.sum(jnp.abs(jnp.exp(log_p) - jnp.exp(log_q)), axis=-1))


def _averaged(predictions: ArrayLike, argument: str) -> jax.Array:
    log_probs = as_log_probs(predictions, argument)
    check(
        log_probs.ndim == 2, argument, "be the averaged predictive, of shape (n, classes)", f"shape {log_probs.shape}"
    )
    return log_probs


def _with_labels(predictions: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    log_probs = _averaged(predictions, "predictions")
    array = np.asarray(labels)
    check(np.issubdtype(array.dtype, np.integer), "labels", "be whole numbers", f"dtype {array.dtype}")
    n, classes = log_probs.shape
    check(array.shape == (n,), "labels", f"have one entry per prediction, shape {(n,)}", f"shape {array.shape}")
    wrong = array[(array < 0) | (array >= classes)]
    check(wrong.size == 0, "labels", f"be at least 0 and below the {classes} classes", wrong[:1])
    return log_probs, jnp.asarray(array, jnp.int32)


def _pair(predictions: ArrayLike, reference: ArrayLike) -> tuple[jax.Array, jax.Array]:
    log_p, log_q = _averaged(predictions, "predictions"), _averaged(reference, "reference")
    check(
        log_p.shape == log_q.shape,
        "reference",
        f"have the shape of `predictions`, {log_p.shape}",
        f"shape {log_q.shape}",
    )
    return log_p, log_q


def _as_draws(draw_predictions: ArrayLike) -> np.ndarray:
    array = np.asarray(draw_predictions)
    check(array.ndim >= 3, "draw_predictions", "have shape (draws, n, classes)", f"shape {array.shape}")
    check(array.size > 0, "draw_predictions", "not be empty", f"shape {array.shape}")
    return array.reshape(-1, *array.shape[-2:])


def _map_blocks(core: Callable[[jax.Array], jax.Array], draw_predictions: ArrayLike) -> jax.Array:
    """Apply `core` to all draws of one block of examples at a time, to keep copies in memory small."""
    return jnp.concatenate([core(block) for block in _blocks(draw_predictions)])


def _blocks(draw_predictions: ArrayLike) -> Iterator[jax.Array]:
    draws = _as_draws(draw_predictions)
    length = max(1, BLOCK_ENTRIES // (draws.shape[0] * draws.shape[2]))
    for start in range(0, draws.shape[1], length):
        yield as_log_probs(draws[:, start : start + length], "draw_predictions")


def _regression(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    means, stds, targets = (np.asarray(value, np.float64) for value in (mean, std, y))
    check(means.size > 0 and means.ndim >= 1, "mean", "not be empty", f"shape {means.shape}")
    check(targets.shape == means.shape, "y", f"have the shape of `mean`, {means.shape}", f"shape {targets.shape}")
    for name, array in {"mean": means, "std": stds, "y": targets}.items():
        check(bool(np.all(np.isfinite(array))), name, "be finite", "NaN or infinity")
    check(bool(np.all(stds > 0)), "std", "be > 0", np.min(stds))
    try:
        return means, np.broadcast_to(stds, means.shape), targets
    except ValueError:
        raise InputError(f"`std` must broadcast to the shape of `mean`, {means.shape}; got {stds.shape}.") from None
