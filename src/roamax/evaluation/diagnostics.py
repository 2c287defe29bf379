"""Convergence diagnostics: mixing of chains, and effective sample sizes.

`draws` is a `roamax.Draws` or a pytree of arrays with leading axes (chain, draw). Each statistic is a pytree of the
same structure, one number per parameter. A parameter that never moved has no variance: its statistics are NaN, and
summaries leave it out and count it.

R-hat in parameter space is misleading for neural networks: two chains may sit in symmetric copies of one function.
`chain_rhat` compares parts of each chain, and `function_space` computes the outputs on a probe set, which every
function here takes in place of draws.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import check, finite, lookup, whole
from roamax.evaluation.stationarity import stationarity as stationarity
from roamax.numerics import trees
from roamax.types import Params

Rule = Literal["geyer", "tfp"]
RULES: tuple[Rule, ...] = get_args(Rule)
BLOCK_PARAMETERS = 2**16
"""The number of parameters processed at once."""


def ess(draws: Any, method: Rule = "geyer") -> Params:
    """Compute the effective sample size of all chains together.

    Args:
        draws: The draws.
        method: "geyer" for Geyer's initial monotone sequence over all chains, which can exceed the number of draws
            where they alternate. "tfp" for the rule of TensorFlow Probability, as in the paper: the sum over chains of
            N / (1 + 2 sum_k (N - k) / N rho_k), up to the first negative autocorrelation rho_k; at most N.

    Returns:
        A pytree of the structure of the draws, one number per parameter.
    """
    lookup(dict.fromkeys(RULES), method, "method")
    return _statistic(_ess if method == "geyer" else _tfp_ess, draws, min_samples=4)


def ess_per_second(draws: Any, seconds_per_interval: float, method: Rule = "geyer") -> float:
    """Compute the total effective sample size of all parameters per second of a thinning interval.

    It grows with the network and with the number of draws: compare only runs that share both.

    Args:
        draws: The draws.
        seconds_per_interval: The time between two draws of a chain.
        method: The rule of `ess`.

    Returns:
        The sum of `ess` over parameters, divided by `seconds_per_interval`.
    """
    finite(seconds_per_interval, "seconds_per_interval", above=0)
    return float(np.sum(_known(ess(draws, method)), dtype=np.float64)) / seconds_per_interval


def rhat(draws: Any) -> Params:
    """Compute rank-normalised split R-hat, the maximum of those of the draws and of the folded draws.

    Folding, |theta - median|, detects chains that agree in location but differ in scale. With one chain, its first half
    is compared with its second.

    Args:
        draws: The draws, at least 4 per chain.

    Returns:
        A pytree with one number per parameter.
    """
    return _statistic(_rhat, draws, min_samples=4)


def chain_rhat(draws: Any, kappa: int = 2, *, rank_normalize: bool = True) -> Params:
    """Compute cR-hat, the R-hat over consecutive parts of each chain,

        R = sqrt(((n - 1) / n W + B) / W),

    with n the length of a part, W the mean variance within the parts and B the variance of their means.

    Args:
        draws: The draws. Where `kappa` does not divide their number, the earliest are left out.
        kappa: The number of parts.
        rank_normalize: Whether to replace draws by the normal quantiles of their ranks.

    Returns:
        A pytree whose leaves have a leading chain axis.
    """
    kappa = whole(kappa, "kappa", 2)
    core = partial(_chain_rhat, kappa=int(kappa), rank_normalize=rank_normalize)
    return _statistic(core, draws, min_samples=2 * int(kappa))


def share_under(statistic: Params, threshold: float = 1.1) -> float:
    """Compute the share of parameters whose statistic is below a threshold.

    Args:
        statistic: A pytree of numbers, such as the result of `rhat`.
        threshold: The threshold.

    Returns:
        The share of the known values; NaN if none is known.
    """
    values = _known(statistic)
    return float(np.mean(values < threshold)) if values.size else float("nan")


def by_layer(statistic: Params) -> dict[str, dict[str, np.ndarray]]:
    """Group the known values of a statistic by layer, with `weights` and `biases` separate.

    A layer is the parent of a leaf: `params/Dense_0` of `params/Dense_0/kernel`. A bias is a leaf with such a name
    (`b`, `bias`, `beta`, `bias_hh`, ...) or, in a list or tuple, a leaf with fewer axes than another of its layer.

    Args:
        statistic: A pytree of numbers, such as the result of `rhat`.

    Returns:
        For each layer, the values of its weights and of its biases.
    """
    layers: dict[str, dict[str, Any]] = {}
    for name, leaf in trees.named_leaves(statistic).items():
        layer, _, last = name.rpartition("/")
        layers.setdefault(layer, {})[last] = leaf
    grouped: dict[str, dict[str, np.ndarray]] = {}
    for layer, leaves in layers.items():
        most_axes = max(np.ndim(leaf) for leaf in leaves.values())
        biases = {name for name, leaf in leaves.items() if _is_bias(name, np.ndim(leaf) < most_axes)}
        kinds = {"weights": leaves.keys() - biases, "biases": biases}
        grouped[layer] = {kind: _known([leaves[name] for name in names]) for kind, names in kinds.items() if names}
    return grouped


def function_space(apply_fn: Callable[[Params, Any], Any], draws: Any, x: Any) -> Any:
    """Compute the outputs of every draw on a probe set, which the statistics take in place of draws.

    Args:
        apply_fn: The network, `apply_fn(params, x)`. A softmax ignores a shift of all logits: end the network in a
            `log_softmax` where such a shift should not count.
        draws: The draws.
        x: The probe set.

    Returns:
        Host arrays with leading axes (chain, draw).
    """
    positions = positions_of(draws)
    num_chains, num_samples = jax.tree.leaves(positions)[0].shape[:2]
    apply = jax.jit(apply_fn)
    outputs = [
        jax.tree.map(np.asarray, apply(trees.at(positions, (c, d)), x))
        for c in range(num_chains)
        for d in range(num_samples)
    ]
    return jax.tree.map(lambda leaf: leaf.reshape(num_chains, num_samples, *leaf.shape[1:]), trees.stack(outputs))


def summary(draws: Any, seconds_per_interval: float | None = None, kappa: int = 2) -> dict[str, Any]:
    """Summarise the statistics, ready for JSON. A statistic that needs more draws is NaN.

    Args:
        draws: The draws.
        seconds_per_interval: The time between two draws of a chain; if given, the summary has `ess_per_second`.
        kappa: The number of parts of a chain for cR-hat.

    Returns:
        Means and extremes over parameters, and the shares of parameters below 1.1.
    """
    positions = positions_of(draws)
    leaves = jax.tree.leaves(positions)
    num_chains, num_samples = leaves[0].shape[:2]
    unknown = jax.tree.map(lambda leaf: np.full(leaf.shape[2:], np.nan), positions)
    sizes = ess(positions) if num_samples >= 4 else unknown
    between = rhat(positions) if num_samples >= 4 else unknown
    within = chain_rhat(positions, kappa) if num_samples >= 2 * kappa else unknown
    result = {
        "num_chains": num_chains,
        "num_samples": num_samples,
        "num_params": trees.size(positions) // (num_chains * num_samples),
        "num_constant": sum(int(np.sum(_constant(leaf))) for leaf in leaves),
        "ess_mean": _or_nan(np.mean, sizes),
        "ess_min": _or_nan(np.min, sizes),
        "rhat_max": _or_nan(np.max, between),
        "rhat_share": share_under(between),
        "chain_rhat_max": _or_nan(np.max, within),
        "chain_rhat_share": share_under(within),
        "chain_rhat_share_by_layer": {
            layer: {kind: share_under(values) for kind, values in kinds.items()}
            for layer, kinds in by_layer(within).items()
        },
    }
    if seconds_per_interval is not None:
        result["ess_per_second"] = _or_nan(np.sum, sizes) / seconds_per_interval
    return result


def positions_of(draws: Any) -> Params:
    """Return the positions of draws, after checking that they have leading axes (chain, draw) and are finite.

    Args:
        draws: A `roamax.Draws`, or a pytree of arrays.

    Returns:
        A pytree of NumPy arrays.
    """
    positions = jax.tree.map(np.asarray, getattr(draws, "positions", draws))
    leaves = trees.named_leaves(positions)
    check(len(leaves) > 0, "draws", "hold at least one array", "an empty tree")
    shapes = {leaf.shape[:2] for leaf in leaves.values()}
    check(
        len(shapes) == 1 and len(next(iter(shapes))) == 2 and 0 not in next(iter(shapes)),
        "draws",
        "hold arrays with one pair of leading axes (chain, draw), none empty",
        f"leading shapes {sorted(shapes)}",
    )
    for name, leaf in leaves.items():
        check(bool(np.all(np.isfinite(leaf))), "draws", "be finite", f"a NaN or an infinity in {name!r}")
    return positions


def _ess(block: np.ndarray) -> np.ndarray:
    sizes = np.asarray(_jitted_ess(jnp.asarray(block, float)))
    return np.where(_constant(block), np.nan, sizes)


@jax.jit
def _jitted_ess(block: jax.Array) -> jax.Array:
    from blackjax.diagnostics import effective_sample_size

    return effective_sample_size(block).reshape(block.shape[2:])


def _tfp_ess(block: np.ndarray) -> np.ndarray:
    length = block.shape[1]
    centred = block - block.mean(axis=1, keepdims=True)
    variance = np.sum(centred**2, axis=1)
    # The estimate of an autocovariance over N - k pairs, times (N - k) / N, is the sum over N.
    total, is_left = np.ones_like(variance), variance > 0
    for lag in range(1, length):
        covariance = np.sum(centred[:, lag:] * centred[:, :-lag], axis=1)
        is_left &= covariance >= 0
        if not is_left.any():
            break
        total += 2 * np.divide(covariance, variance, out=np.zeros_like(variance), where=is_left)
    sizes = np.where(variance > 0, length / total, 0.0).sum(axis=0)
    return np.where(_constant(block), np.nan, sizes)


def _rhat(block: np.ndarray) -> np.ndarray:
    # blackjax has this R-hat in recent versions only, in float32, and drops the last of an odd number of draws.
    halves = _split(block, 2)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    larger = np.maximum(_reduction(_normal_scores(halves)), _reduction(_normal_scores(folded)))
    return np.where(_constant(block), np.nan, larger)


def _chain_rhat(block: np.ndarray, kappa: int, rank_normalize: bool) -> np.ndarray:
    def of_chain(chain: np.ndarray) -> np.ndarray:
        parts = _split(chain[None], kappa)
        reduction = _reduction(_normal_scores(parts) if rank_normalize else parts)
        return np.where(_constant(chain[None]), np.nan, reduction)

    return np.stack([of_chain(chain) for chain in block])


def _reduction(parts: np.ndarray) -> np.ndarray:
    from blackjax.diagnostics import potential_scale_reduction

    # Constant parts have no variance: their ratio is 0 / 0, NaN, or infinite if they differ.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(potential_scale_reduction(parts)).reshape(parts.shape[2:])


def _split(block: np.ndarray, parts: int) -> np.ndarray:
    """Split each chain of (chain, draw, parameter) into equal parts, without the earliest draws if need be."""
    num_chains, num_samples, count = block.shape
    length = num_samples // parts
    return block[:, num_samples - parts * length :].reshape(num_chains * parts, length, count)


def _normal_scores(parts: np.ndarray) -> np.ndarray:
    """Replace draws by the normal quantiles of their ranks over all parts; ties share the mean of their ranks."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    pooled = parts.reshape(-1, parts.shape[-1])
    return ndtri((rankdata(pooled, axis=0) - 0.375) / (len(pooled) + 0.25)).reshape(parts.shape)


def _statistic(core: Callable[[np.ndarray], np.ndarray], draws: Any, min_samples: int) -> Params:
    """Apply `core` to all parameters as (chain, draw, parameter), in blocks, and split its last axis into leaves again.

    Leaves are concatenated, so that nothing is compiled separately for each layer.
    """
    leaves, treedef = jax.tree.flatten(positions_of(draws))
    num_samples = leaves[0].shape[1]
    check(num_samples >= min_samples, "draws", f"have at least {min_samples} draws per chain", num_samples)
    flat = np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)
    starts = range(0, flat.shape[2], BLOCK_PARAMETERS)
    values = [core(flat[:, :, s : s + BLOCK_PARAMETERS].astype(np.float64)) for s in starts]
    ends = np.cumsum([leaf[0, 0].size for leaf in leaves])[:-1]
    pieces = np.split(np.concatenate(values, axis=-1), ends, axis=-1)
    return treedef.unflatten(
        [piece.reshape((*piece.shape[:-1], *leaf.shape[2:])) for piece, leaf in zip(pieces, leaves, strict=True)]
    )


def _constant(block: np.ndarray) -> np.ndarray:
    """Return which parameters have the same value in every draw of every chain."""
    return (block == block[:1, :1]).all(axis=(0, 1))


def _known(statistic: Params) -> np.ndarray:
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(statistic)])
    return values[~np.isnan(values)]


def _or_nan(reduce: Callable[[np.ndarray], Any], statistic: Params) -> float:
    values = _known(statistic).astype(np.float64)
    return float(reduce(values)) if values.size else float("nan")


def _is_bias(name: str, has_fewer_axes: bool) -> bool:
    if name.isdigit():
        return has_fewer_axes
    return name.lower() in ("b", "beta") or "bias" in name.lower()
