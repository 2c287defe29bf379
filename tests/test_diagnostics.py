"""Effective sample size and R-hat against ArviZ, and what they must find: stuck chains, drift, dead parameters."""

import tempfile
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from filelock import FileLock
from scipy import stats

from roamax.errors import InputError
from roamax.evaluation import diagnostics
from roamax.sampling.draws import Draws

with warnings.catch_warnings(), FileLock(Path(tempfile.gettempdir()) / "roamax-imports-arviz.lock"):
    # ArviZ announces its next major version, once a day, on import. Two workers at once would take each other's note
    # of the day away.
    warnings.simplefilter("ignore", FutureWarning)
    import arviz


def autoregressive(seed: int, chains: int, draws: int, count: int, rho: float = 0.7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=(chains, count))]
    for _ in range(draws - 1):
        values.append(rho * values[-1] + np.sqrt(1 - rho**2) * rng.normal(size=(chains, count)))
    return np.stack(values, axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def draws():
    flat = autoregressive(0, chains=4, draws=101, count=7)
    return {"params": {"Dense_0": {"kernel": flat[..., :6].reshape(4, 101, 2, 3), "bias": flat[..., 6:]}}}


def arviz_value(function, array: np.ndarray, **options) -> np.ndarray:
    return function(arviz.convert_to_dataset(array), **options)["x"].to_numpy()


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (diagnostics.ess, arviz.ess, {"method": "identity"}),
        (lambda draws: diagnostics.rhat(jax.tree.map(lambda leaf: leaf[:, 1:], draws)), arviz.rhat, {"method": "rank"}),
    ],
    ids=["ess", "rhat"],
)
def test_matches_arviz(ours, theirs, options, draws):
    result = ours(draws)
    assert jax.tree.structure(result) == jax.tree.structure(draws)
    for leaf, values in zip(jax.tree.leaves(draws), jax.tree.leaves(result), strict=True):
        even = leaf[:, 1:] if theirs is arviz.rhat else leaf
        assert values.shape == leaf.shape[2:]
        np.testing.assert_allclose(values, arviz_value(theirs, even, **options), rtol=1e-4)


def test_blocks_change_nothing(draws, monkeypatch):
    whole = diagnostics.ess(draws), diagnostics.chain_rhat(draws)
    monkeypatch.setattr(diagnostics, "BLOCK_PARAMETERS", 4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        (diagnostics.ess(draws), diagnostics.chain_rhat(draws)),
        whole,
    )


@pytest.mark.parametrize("kappa", [2, 4])
def test_chain_rhat_is_rhat_over_the_parts_of_each_chain(kappa):
    chains = autoregressive(1, chains=3, draws=40, count=5)
    plain = diagnostics.chain_rhat(chains, kappa, rank_normalize=False)
    ranked = diagnostics.chain_rhat(chains, kappa)
    for c, chain in enumerate(chains):
        parts = chain.reshape(kappa, 40 // kappa, 5)
        np.testing.assert_allclose(plain[c], arviz_value(arviz.rhat, parts, method="identity"), rtol=1e-4)
        scores = stats.norm.ppf((stats.rankdata(chain, axis=0) - 0.375) / 40.25).reshape(parts.shape)
        np.testing.assert_allclose(ranked[c], arviz_value(arviz.rhat, scores, method="identity"), rtol=1e-4)


def test_chain_rhat_leaves_out_the_earliest_draws():
    chain = autoregressive(2, chains=1, draws=11, count=3)
    np.testing.assert_array_equal(diagnostics.chain_rhat(chain, 5), diagnostics.chain_rhat(chain[:, 1:], 5))


def test_drift_within_a_chain_and_distance_between_chains_are_told_apart():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(2, 200, 2))
    drifting, apart = noise[..., 0] + np.linspace(0, 10, 200), noise[..., 1] + [[0], [10]]
    wider = noise[..., 1] * [[1], [10]]
    draws = {"drifting": drifting[..., None], "apart": apart[..., None], "wider": wider[..., None]}
    within, between = diagnostics.chain_rhat(draws), diagnostics.rhat(draws)
    assert between["wider"] > 1.1
    assert within["drifting"].min() > 1.5
    assert within["apart"].max() < 1.1
    assert between["apart"] > 1.5


def test_parameters_that_never_move_are_nan_and_chains_stuck_apart_are_not():
    moving = autoregressive(4, chains=2, draws=20, count=1)
    dead, stuck = np.full((2, 20, 1), 0.1), np.broadcast_to([[[0.1]], [[0.7]]], (2, 20, 1))
    draws = {"moving": moving, "dead": dead, "stuck": stuck}
    sizes, between, within = diagnostics.ess(draws), diagnostics.rhat(draws), diagnostics.chain_rhat(draws)
    for statistic in (sizes, between, within):
        assert np.all(np.isnan(statistic["dead"]))
        assert np.all(np.isfinite(statistic["moving"]))
    assert sizes["stuck"] == 0
    assert between["stuck"] > 100
    assert np.all(np.isnan(within["stuck"]))
    assert np.all(np.isnan(diagnostics.chain_rhat(draws, rank_normalize=False)["dead"]))


def test_ess_per_second_sums_over_parameters(draws):
    total = sum(float(np.sum(leaf)) for leaf in jax.tree.leaves(diagnostics.ess(draws)))
    np.testing.assert_allclose(diagnostics.ess_per_second(draws, 4.0), total / 4.0, rtol=1e-6)


def test_shares_whole_and_by_layer():
    statistic = {
        "Dense_0": {"kernel": np.array([[1.0, 1.05], [1.2, np.nan]]), "bias": np.array([1.3, 1.0])},
        "Dense_1": (np.array([[1.0, 2.0]]), np.array([2.0])),
    }
    assert diagnostics.share_under(statistic) == 4 / 8
    assert np.isnan(diagnostics.share_under([np.array([np.nan])]))
    layers = diagnostics.by_layer(statistic)
    shares = {layer: {kind: diagnostics.share_under(v) for kind, v in kinds.items()} for layer, kinds in layers.items()}
    assert shares == {
        "Dense_0": {"weights": 2 / 3, "biases": 1 / 2},
        "Dense_1": {"weights": 1 / 2, "biases": 0.0},
    }


def test_function_space_is_blind_to_the_symmetries_of_networks():
    # Swapping two hidden units changes every parameter and no output.
    def apply(params, x):
        return jnp.tanh(x @ params["w"]) @ params["v"]

    rng = np.random.default_rng(5)
    w, v = np.array([[3.0, -1.0]]), np.array([[1.0], [2.0]])
    one = {"w": w + 0.1 * rng.normal(size=(1, 50, 1, 2)), "v": v + 0.1 * rng.normal(size=(1, 50, 2, 1))}
    other = {"w": w + 0.1 * rng.normal(size=(1, 50, 1, 2)), "v": v + 0.1 * rng.normal(size=(1, 50, 2, 1))}
    mirrored = {"w": other["w"][..., ::-1], "v": other["v"][..., ::-1, :]}
    draws = jax.tree.map(lambda a, b: np.concatenate([a, b]).astype(np.float32), one, mirrored)
    x = jnp.array([[0.5], [-1.0], [2.0]])
    outputs = diagnostics.function_space(apply, draws, x)
    assert outputs.shape == (2, 50, 3, 1)
    np.testing.assert_allclose(outputs[1, 7], np.tanh(x @ draws["w"][1, 7]) @ draws["v"][1, 7], rtol=1e-5)
    assert diagnostics.share_under(diagnostics.rhat(draws)) == 0
    assert diagnostics.share_under(diagnostics.rhat(outputs)) == 1


def test_summary_of_draws(draws):
    result = diagnostics.summary(Draws.from_positions(draws), seconds_per_interval=2.0)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(diagnostics.chain_rhat(draws))])
    assert (result["num_chains"], result["num_samples"], result["num_params"]) == (4, 101, 7)
    assert result["num_constant"] == 0
    assert result["chain_rhat_share"] == np.mean(flat < 1.1)
    np.testing.assert_allclose(result["ess_per_second"], 7 * result["ess_mean"] / 2.0)
    assert set(result["chain_rhat_share_by_layer"]["params/Dense_0"]) == {"weights", "biases"}


def test_scalar_leaves_have_scalar_statistics(draws):
    column = draws["params"]["Dense_0"]["bias"][:, :, 0]
    sizes = diagnostics.ess({"scalar": column, "vector": column[:, :, None]})
    assert sizes["scalar"].shape == ()
    assert sizes["scalar"] == sizes["vector"][0]
    assert diagnostics.rhat({"scalar": column})["scalar"].shape == ()
    assert diagnostics.summary(Draws.from_positions({"scalar": column}))["num_params"] == 1


def test_summary_of_too_few_draws_is_nan_not_an_error(draws):
    result = diagnostics.summary(jax.tree.map(lambda leaf: leaf[:1, :1], draws))
    assert np.isnan(result["ess_mean"])
    assert np.isnan(result["chain_rhat_share"])
    assert np.isnan(result["chain_rhat_share_by_layer"]["params/Dense_0"]["biases"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: diagnostics.ess(np.zeros((1, 3, 2))), "`draws` must have at least 4 draws per chain; got 3."),
        (
            lambda: diagnostics.chain_rhat(np.zeros((1, 7, 2)), 4),
            "`draws` must have at least 8 draws per chain; got 7.",
        ),
        (lambda: diagnostics.chain_rhat(np.zeros((1, 8, 2)), 1), "`kappa` must be a whole number >= 2; got 1."),
        (
            lambda: diagnostics.ess({"w": np.full((1, 4), np.nan)}),
            "`draws` must be finite; got a NaN or an infinity in 'w'.",
        ),
        (lambda: diagnostics.ess([np.zeros((1, 4)), np.zeros((1, 5))]), "one pair of leading axes (chain, draw)"),
        (lambda: diagnostics.ess({}), "`draws` must hold at least one array; got an empty tree."),
        (
            lambda: diagnostics.ess_per_second(np.zeros((1, 4)), 0.0),
            "`seconds_per_interval` must be a finite number > 0",
        ),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)


def test_the_rule_of_tensorflow_probability():
    """Of ten independent draws about nine; of an alternating chain no more than there are; by hand on a short chain."""
    rng = np.random.default_rng(0)
    independent = rng.normal(size=(1, 10, 20_000))
    assert np.mean(diagnostics.ess(independent, method="tfp")) == pytest.approx(9.0, abs=0.15)
    alternating = (np.arange(100) % 2 * 2 - 1 + 0.1 * rng.normal(size=(1, 100)))[..., None]
    assert diagnostics.ess(alternating, method="tfp") == pytest.approx(100)
    assert diagnostics.ess(alternating) > 100
    chain = np.array([1.0, 2.0, 4.0, 3.0, 0.0])
    # Centred -1, 0, 2, 1, -2: the sums of products are 10, 0, and -3 at the second lag, where the rule stops.
    assert diagnostics.ess(chain[None, :, None], method="tfp") == pytest.approx(5)
    chain = np.array([0.0, 1.0, 3.0, 4.0])
    # Centred -2, -1, 1, 2: 10, 3, then -4.
    assert diagnostics.ess(chain[None, :, None], method="tfp") == pytest.approx(4 / (1 + 2 * 0.3))
    both = np.stack([chain, chain + 5])[..., None]
    assert diagnostics.ess(both, method="tfp") == pytest.approx(2 * 4 / 1.6)
    with pytest.raises(InputError, match="`method` must be a known name; got 'stan'"):
        diagnostics.ess(both, method="stan")
