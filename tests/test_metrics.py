"""Every metric against an independent computation, and on the edges: 0 and 1, one draw, nothing at all."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import rel_entr, softmax
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from roamax.errors import InputError
from roamax.evaluation import metrics
from roamax.evaluation.predict import mixture_nll, predict
from roamax.evaluation.score import score

DRAWS, N, CLASSES = 5, 200, 4


@pytest.fixture(scope="module")
def draws():
    return softmax(2 * np.random.default_rng(0).normal(size=(DRAWS, N, CLASSES)), axis=-1)


@pytest.fixture(scope="module")
def labels():
    # Class 3 never occurs, as a class may be absent from a small test set.
    return np.random.default_rng(1).integers(0, CLASSES - 1, N)


def test_scores_match_scikit_learn(draws, labels):
    probs = draws.mean(0)
    classes = np.arange(CLASSES)
    assert metrics.accuracy(probs, labels) == accuracy_score(labels, probs.argmax(-1))
    np.testing.assert_allclose(metrics.nll(probs, labels), log_loss(labels, probs, labels=classes), rtol=1e-5)
    expected = brier_score_loss(labels, probs, labels=classes, scale_by_half=False)
    np.testing.assert_allclose(metrics.brier(probs, labels), expected, rtol=1e-5)


@pytest.mark.parametrize("metric", [metrics.accuracy, metrics.nll, metrics.brier, metrics.ece])
def test_log_probabilities_are_told_from_probabilities(metric, draws, labels):
    np.testing.assert_allclose(metric(np.log(draws[0]), labels), metric(draws[0], labels), rtol=1e-5)


def test_uniform_predictions_over_many_classes_are_probabilities():
    probs = np.full((3, 5_000), 1 / 5_000, np.float32)
    np.testing.assert_allclose(metrics.nll(probs, [0, 1, 4_999]), np.log(5_000), rtol=1e-4)
    np.testing.assert_allclose(metrics.nll(np.log(probs), [0, 1, 4_999]), np.log(5_000), rtol=1e-4)


def test_log_probabilities_survive_where_probabilities_underflow():
    log_probs = jax.nn.log_softmax(jnp.array([[0.0, 500.0], [500.0, 0.0]]))
    np.testing.assert_allclose(metrics.nll(log_probs, [0, 0]), 250.0, rtol=1e-6)
    np.testing.assert_allclose(metrics.pairwise_kl(log_probs[:, None]), 500.0, rtol=1e-6)


def test_reliability_and_ece_by_hand(draws, labels):
    probs = draws[0]
    confidence, correct = probs.max(-1), probs.argmax(-1) == labels
    table, expected = metrics.reliability(probs, labels), 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        assert table.count[b] == inside.sum()
        if inside.any():
            np.testing.assert_allclose(table.confidence[b], confidence[inside].mean(), rtol=1e-5)
            np.testing.assert_allclose(table.accuracy[b], correct[inside].mean())
            expected += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
        else:
            assert np.isnan(table.confidence[b])
            assert np.isnan(table.accuracy[b])
    assert table.count[0] == 0, "the top of 4 classes cannot be below 1/4, so this covers empty bins"
    np.testing.assert_allclose(metrics.ece(probs, labels), expected, rtol=1e-5)
    assert metrics.reliability([[0.5, 0.5]], [0], bins=2).count.tolist() == [1, 0], "an edge belongs to the bin below"


def test_certain_predictions():
    certain = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert metrics.nll(certain, [0, 1]) == 0
    assert metrics.nll(certain, [0, 2]) == np.inf
    assert metrics.brier(certain, [0, 1]) == 0
    assert metrics.brier(certain, [0, 2]) == 1
    assert metrics.ece(certain, [0, 2]) == 0.5
    np.testing.assert_array_equal(metrics.entropy(certain), [0, 0])
    same, opposite = np.stack([certain, certain]), np.stack([certain, certain[::-1]])
    assert metrics.pairwise_kl(same) == 0
    assert metrics.pairwise_kl(opposite) == np.inf
    np.testing.assert_array_equal(metrics.mutual_information(same), [0, 0])
    np.testing.assert_allclose(metrics.mutual_information(opposite), np.log([2, 2]), rtol=1e-6)
    assert metrics.summary(same, [0, 1]) == {"acc": 1, "nll": 0, "ece": 0, "brier": 0, "kld": 0}


def test_pairwise_kl_is_the_mean_over_ordered_pairs(draws):
    pairs = [rel_entr(draws[i], draws[j]).sum(-1).mean() for i in range(DRAWS) for j in range(DRAWS) if i != j]
    np.testing.assert_allclose(metrics.pairwise_kl(draws), np.mean(pairs), rtol=1e-5)
    chains = draws[:4].reshape(2, 2, N, CLASSES)
    assert metrics.pairwise_kl(chains) == metrics.pairwise_kl(draws[:4])


def test_pairwise_kl_of_near_equal_draws_does_not_drown_in_rounding():
    logits = np.array([0.3, -1.0, 2.0]) + 1e-3 * np.random.default_rng(0).normal(size=(4, 10, 3))
    probs = softmax(logits, axis=-1)
    pairs = [rel_entr(probs[i], probs[j]).sum(-1).mean() for i in range(4) for j in range(4) if i != j]
    np.testing.assert_allclose(metrics.pairwise_kl(probs), np.mean(pairs), rtol=1e-2)


def test_entropy_and_mutual_information_match_scipy(draws):
    mean = draws.mean(0)
    np.testing.assert_allclose(metrics.entropy(mean), stats.entropy(mean, axis=-1), rtol=1e-5)
    expected = stats.entropy(mean, axis=-1) - stats.entropy(draws, axis=-1).mean(0)
    np.testing.assert_allclose(metrics.mutual_information(draws), expected, atol=1e-6)


def test_blocks_change_nothing(draws, monkeypatch):
    whole = metrics.average(draws), metrics.mutual_information(draws), metrics.pairwise_kl(draws)
    monkeypatch.setattr(metrics, "BLOCK_ENTRIES", 30 * DRAWS * CLASSES)
    parts = metrics.average(draws), metrics.mutual_information(draws), metrics.pairwise_kl(draws)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(np.exp(whole[0]), draws.mean(0), rtol=1e-5)


def test_one_draw_has_no_pairs(draws, labels):
    one, flat = metrics.summary(draws[:1], labels), metrics.summary(draws[0], labels)
    assert np.isnan(one["kld"])
    np.testing.assert_equal(one, flat)
    np.testing.assert_allclose(one["nll"], metrics.nll(draws[0], labels), rtol=1e-6)


def test_agreement_and_total_variation(draws):
    p, q = draws[0], draws[1]
    assert metrics.agreement(p, q) == np.mean(p.argmax(-1) == q.argmax(-1))
    np.testing.assert_allclose(metrics.total_variation(p, q), 0.5 * np.abs(p - q).sum(-1).mean(), rtol=1e-5)
    assert metrics.agreement(p, p) == 1
    assert metrics.total_variation([[1.0, 0.0]], [[0.0, 1.0]]) == 1


def test_ood_auroc_is_the_mann_whitney_probability(draws):
    known, foreign = draws[0], draws[1].clip(0.2) / draws[1].clip(0.2).sum(-1, keepdims=True)
    u = stats.mannwhitneyu(known.max(-1), foreign.max(-1)).statistic
    np.testing.assert_allclose(metrics.ood_auroc(known, foreign), u / N**2, rtol=1e-6)
    assert metrics.ood_auroc([[0.9, 0.1]], [[0.6, 0.4], [0.5, 0.5]]) == 1


def test_by_corruption_is_a_table_with_means():
    right, wrong = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.9, 0.1], [0.9, 0.1]])
    table = metrics.by_corruption({("fog", 1): right, ("blur", 2): wrong, ("blur", 1): wrong}, [0, 1])
    assert table == {"blur": {1: 0.5, 2: 0.5}, "fog": {1: 1.0}, "mean": {1: 0.75, 2: 0.5}}
    assert list(table) == ["blur", "fog", "mean"]


def test_regression_metrics_match_scipy():
    rng = np.random.default_rng(2)
    mean, std = rng.normal(size=(5_000, 2)), np.array([0.5, 2.0])
    y = mean + std * rng.normal(size=mean.shape)
    expected = -stats.norm.logpdf(y, mean, std).sum(-1).mean()
    np.testing.assert_allclose(metrics.gaussian_nll(mean, std, y), expected)
    np.testing.assert_allclose(metrics.rmse(mean, y), np.sqrt(np.mean((y - mean) ** 2)))
    assert abs(metrics.coverage(mean, std, y, level=0.8) - 0.8) < 0.02
    assert metrics.coverage([0.0, 0.0], 1.0, [1.95, 1.97]) == 0.5


PROBS = np.array([[0.2, 0.8], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.nll(np.zeros((0, 3)), np.zeros(0, int)), "`predictions` must not be empty; got shape"),
        (lambda: metrics.nll(PROBS, [0]), "`labels` must have one entry per prediction, shape (2,); got shape (1,)."),
        (lambda: metrics.nll(PROBS, [0, 2]), "`labels` must be at least 0 and below the 2 classes; got [2]."),
        (lambda: metrics.nll(PROBS, [0, -1]), "got [-1]."),
        (lambda: metrics.nll(PROBS, [0.0, 1.0]), "`labels` must be whole numbers; got dtype float64."),
        (lambda: metrics.nll(PROBS * np.nan, [0, 1]), "`predictions` must hold no NaN; got NaN."),
        (lambda: metrics.nll(PROBS * 3, [0, 1]), "sum to 1 over classes; got a row that sums to 3."),
        (lambda: metrics.nll([[2.0, -1.0]], [0]), "got the negative entry -1 among positive ones."),
        (lambda: metrics.nll([[-3.0, -4.0]], [0]), "got a row that sums to 0.06"),
        (lambda: metrics.nll(PROBS[None], [0, 1]), "`predictions` must be the averaged predictive"),
        (lambda: metrics.pairwise_kl(PROBS), "`draw_predictions` must have shape (draws, n, classes); got shape"),
        (lambda: metrics.mutual_information(np.zeros((0, 2, 2))), "`draw_predictions` must not be empty"),
        (lambda: metrics.agreement(PROBS, PROBS[:1]), "`reference` must have the shape of `predictions`, (2, 2)"),
        (lambda: metrics.ece(PROBS, [0, 1], bins=0), "`bins` must be a whole number >= 1; got 0."),
        (lambda: metrics.gaussian_nll([0.0], [0.0], [1.0]), "`std` must be > 0; got 0.0."),
        (lambda: metrics.gaussian_nll([0.0, 1.0], [1.0] * 3, [1.0, 2.0]), "`std` must broadcast to the shape"),
        (lambda: metrics.rmse([0.0], [[1.0]]), "`y` must have the shape of `mean`, (1,); got shape (1, 1)."),
        (lambda: metrics.by_corruption({}, [0]), "`predictions` must hold at least one (corruption, severity)"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_double_precision_is_kept(float64, draws, labels):
    probs = draws.mean(0)
    np.testing.assert_allclose(metrics.nll(probs, labels), log_loss(labels, probs, labels=range(CLASSES)), rtol=1e-13)


def test_calibration_error_has_fifteen_bins_by_default():
    # One right and one wrong, in two of fifteen bins but in one of ten.
    predictions, labels = [[0.62, 0.38], [0.68, 0.32]], [0, 1]
    np.testing.assert_allclose(metrics.ece(predictions, labels), (0.38 + 0.68) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics.ece(predictions, labels, bins=10), 0.15, rtol=1e-5)


def test_the_nll_of_a_regression_is_that_of_the_mixture_over_draws():
    """Two draws that disagree: the mixture has two peaks, and targets lie on them, not between."""
    draws = [{"mean": jnp.float32(mean), "scale": jnp.float32(scale)} for mean, scale in ((-2.0, 0.1), (2.0, 0.3))]
    x, y = np.zeros((5, 1), np.float32), np.array([-2.0, -1.9, 2.2, 1.8, 0.5], np.float32)

    def apply(params, x):
        return jnp.broadcast_to(params["mean"], (len(x),)), params["scale"]

    densities = [stats.norm.pdf(y, float(d["mean"]), float(d["scale"])) for d in draws]
    expected = -np.mean(np.log(np.mean(densities, axis=0)))
    assert mixture_nll(apply, iter(draws), x, y, batch_size=2) == pytest.approx(expected, rel=1e-5)
    task = SimpleNamespace(apply=apply, test=(x, y), is_regression=True)
    scores = score(task, iter(draws))
    assert scores["nll"] == pytest.approx(expected, rel=1e-5)
    mean, std = predict(apply, draws, x)
    assert scores["gaussian_nll"] == pytest.approx(metrics.gaussian_nll(mean, std, y), rel=1e-6)
    assert abs(scores["gaussian_nll"] - expected) > 0.5


def test_rejecting_the_least_confident_leaves_the_right_ones():
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    curve = metrics.rejection_curve(probs, np.array([0, 0, 1, 0]), steps=4)
    assert curve == {"rejected": [0.0, 0.25, 0.5, 0.75], "acc": [0.75, 1.0, 1.0, 1.0]}
