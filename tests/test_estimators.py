"""The scikit-learn estimators: scikit-learn's own checks, and what they promise beyond."""

import copy
import json
import logging
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

import roamax
from roamax import BayesianClassifier, BayesianRegressor, models
from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.sklearn import build
from roamax.sklearn.estimators import mixture_quantiles

QUICK = {"num_chains": 1, "num_samples": 4, "burn_in": 200, "thinning": 20, "hidden": (8,), "random_state": 0}
IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)


@pytest.fixture
def one_size(monkeypatch):
    """One number of rows for all small data: a program for each number of columns, not for each number of rows."""
    monkeypatch.setattr(build, "FEWEST_ROWS", 160)


NOT_EXACT = "rows repeated, or left out, equal their weights up to rounding only, in single precision"


@pytest.mark.usefixtures("one_size")
@parametrize_with_checks([BayesianClassifier(**QUICK), BayesianRegressor(**QUICK)])
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_sample_weight_equivalence_on_dense_data":
        pytest.skip(NOT_EXACT)
    check(estimator)


@pytest.fixture(scope="module")
def classifier():
    return BayesianClassifier(**QUICK).fit(*IRIS)


@pytest.fixture(scope="module")
def regressor():
    return BayesianRegressor(**QUICK).fit(*DIABETES)


def test_probabilities_are_the_average_over_draws(classifier):
    draws = classifier.sample_posterior(IRIS[0])
    assert draws.shape == (4, 150, 3)
    assert draws.std(axis=0).max() > 0.01
    np.testing.assert_allclose(classifier.predict_proba(IRIS[0]), draws.mean(axis=0), atol=1e-5)
    assert classifier.score(*IRIS) > 0.9


@pytest.mark.usefixtures("one_size")
@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array([False, True]), np.array([7, -3])])
def test_labels_of_any_type_come_back(labels):
    x = np.linspace(-1, 1, 40)[:, None]
    y = labels[(x[:, 0] > 0).astype(int)]
    fitted = BayesianClassifier(**QUICK).fit(x, y)
    assert fitted.classes_.tolist() == sorted(labels.tolist())
    assert (fitted.predict(x) == y).mean() > 0.9


def test_predictions_do_not_depend_on_the_units_of_inputs_and_targets(regressor):
    x, y = DIABETES
    again = BayesianRegressor(**regressor.get_params()).fit(1000 * x + 5, 3 * y - 7)
    mean, std = regressor.predict(x, return_std=True)
    other_mean, other_std = again.predict(1000 * x + 5, return_std=True)
    np.testing.assert_allclose(other_mean, 3 * mean - 7, rtol=1e-2)
    np.testing.assert_allclose(other_std, 3 * std, rtol=1e-2)


def test_spread_and_quantiles_are_those_of_the_mixture(regressor):
    x = DIABETES[0][:7]
    mean, std = regressor.predict(x, return_std=True)
    means, stds = regressor._draw_moments(x)
    np.testing.assert_allclose(regressor.sample_posterior(x), means)
    np.testing.assert_allclose(mean, means.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std**2, (stds**2).mean(axis=0) + means.var(axis=0), rtol=1e-3)
    levels = [0.1, 0.5, 0.975]
    quantiles = regressor.predict_quantiles(x, levels)
    assert quantiles.shape == (7, 3)
    reached = norm.cdf(quantiles, means[..., None], stds[..., None]).mean(axis=0)
    np.testing.assert_allclose(reached, np.broadcast_to(levels, reached.shape), atol=1e-6)
    single = mixture_quantiles(np.array([[2.0]]), np.array([[3.0]]), np.array([0.975]))
    assert single.item() == pytest.approx(2 + 3 * 1.959964, abs=1e-4)


def test_several_targets_at_once():
    x, y = DIABETES
    both = np.stack([y, -y], axis=1)
    fitted = BayesianRegressor(**QUICK).fit(x, both)
    mean, std = fitted.predict(x, return_std=True)
    assert mean.shape == std.shape == both.shape
    assert fitted.predict_quantiles(x[:5]).shape == (5, 2, 3)
    assert np.corrcoef(mean[:, 0], mean[:, 1])[0, 1] < -0.9


def test_more_draws_go_on_from_the_last_ones():
    fitted = BayesianClassifier(**QUICK).fit(*IRIS)
    first = fitted.draws_.positions
    fitted.partial_fit(*IRIS)
    positions = fitted.draws_.positions
    assert fitted.draws_.num_samples == 8
    jax.tree.map(lambda old, new: np.testing.assert_array_equal(old, new[:, :4]), first, positions)
    anew = BayesianClassifier(**QUICK | {"random_state": 1}).fit(*IRIS).draws_.positions
    last, following, other = (x["hidden0"]["kernel"][0, i] for x, i in ((positions, 3), (positions, 4), (anew, 0)))
    assert np.linalg.norm(following - last) < 0.5 * np.linalg.norm(other - last)
    with pytest.raises(ValueError, match="`y` must hold labels that `classes_` lists; got 9"):
        fitted.partial_fit(IRIS[0], np.where(IRIS[1] == 2, 9, IRIS[1]))


@pytest.mark.usefixtures("one_size")
def test_classes_may_be_listed_before_they_are_seen():
    some = IRIS[1] < 2
    fitted = BayesianClassifier(**QUICK).partial_fit(IRIS[0][some], IRIS[1][some], classes=[0, 1, 2])
    assert fitted.predict_proba(IRIS[0]).shape == (150, 3)


@pytest.mark.usefixtures("one_size")
def test_in_pipelines_and_searches():
    quick = QUICK | {"burn_in": 100, "num_samples": 2}
    pipeline = make_pipeline(PolynomialFeatures(2), BayesianRegressor(**quick))
    assert cross_val_score(pipeline, *DIABETES, cv=2).mean() > 0.2
    search = GridSearchCV(BayesianClassifier(**quick), {"prior": [0.3, 6.0]}, scoring="neg_log_loss", cv=2)
    search.fit(*IRIS)
    assert search.best_params_ == {"prior": 6.0}
    assert search.best_score_ > -0.6


def compiled_by(caplog, run):
    """What JAX says of each program that a function has compiled."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        run()
    return [text for text in map(logging.LogRecord.getMessage, caplog.records) if "Finished XLA compilation" in text]


def test_a_search_compiles_at_most_three_loops_and_the_next_one_nothing(caplog):
    def search(priors, temperatures):
        grid = {"prior": priors, "temperature": temperatures}
        chosen = BayesianClassifier(**QUICK | {"hidden": 7, "burn_in": 10})
        GridSearchCV(chosen, grid, cv=3).fit(IRIS[0][:-1], IRIS[1][:-1])

    loops = [name for name in compiled_by(caplog, lambda: search([1.0, 6.0], [0.05, 1.0])) if "(run)" in name]
    assert 1 <= len(loops) <= 3
    assert compiled_by(caplog, lambda: search([2.0, 3.0], [0.1, 0.2])) == []


@pytest.mark.parametrize("length", [1, 15, 100, 101, 1000])
def test_few_numbers_of_rows_with_the_same_sum(length):
    rng = np.random.default_rng(length)
    rows = build.Rows(rng.normal(size=(length, 2)), rng.normal(size=length), rng.uniform(size=length))
    filled = build.in_few_sizes(rows)
    assert len(filled.x) <= max(16, 1.2 * length + 1)
    assert sum(rows.weight * rows.y) == pytest.approx(sum(filled.weight * filled.y))
    shorter = build.in_few_sizes(build.Rows(*(part[: max(1, length - 5)] for part in rows)))
    assert length not in (100, 1000) or len(shorter.x) == len(filled.x)


def test_rows_count_as_often_as_their_weights_say():
    x = np.tile(np.linspace(-1, 1, 20), 2)[:, None]
    y, upper = np.repeat([1.0, -1.0], 20), np.repeat([1.0, 0.0], 20)
    means = {
        name: BayesianRegressor(**QUICK).fit(x, y, sample_weight=weight).predict(x).mean()
        for name, weight in {"none": None, "upper": upper, "three to one": 1 + 2 * upper}.items()
    }
    assert abs(means["none"]) < 0.2
    assert means["upper"] > 0.8
    assert means["three to one"] == pytest.approx(0.5, abs=0.2)
    # In the gradient of all rows, a weight of two is a row twice.
    some = np.arange(40) < 25
    twice = BayesianRegressor(**QUICK).fit(np.repeat(x, 2, axis=0)[: 2 * 25], np.repeat(y, 2)[: 2 * 25])
    weighted = BayesianRegressor(**QUICK).fit(x, y, sample_weight=2 * some)
    np.testing.assert_allclose(twice.predict(x), weighted.predict(x), atol=0.02)
    rare = np.arange(40) % 10 == 0
    quick = QUICK | {"temperature": 1.0}
    shares = [
        BayesianClassifier(**quick, class_weight=weight).fit(0 * x, rare).predict_proba(0 * x)[0, 1]
        for weight in (None, "balanced", {False: 1.0, True: 9.0})
    ]
    np.testing.assert_allclose(shares, [0.1, 0.5, 0.5], atol=0.15)
    with pytest.raises(InputError, match="`sampler` must be a name or a function of a posterior for weights"):
        BayesianRegressor(sampler=roamax.Sampler(None, None), **QUICK).fit(x, y, sample_weight=upper)


def test_intervals_and_the_two_parts_of_uncertainty(classifier, regressor):
    x = DIABETES[0][:7]
    interval = regressor.predict_interval(x, 0.8)
    np.testing.assert_allclose(interval, regressor.predict_quantiles(x, [0.1, 0.9]))
    np.testing.assert_allclose(regressor.predict_quantiles(x, 0.9), interval[:, 1])
    aleatoric, epistemic = regressor.predict_uncertainty(x)
    _, std = regressor.predict(x, return_std=True)
    np.testing.assert_allclose(np.hypot(aleatoric, epistemic), std, rtol=1e-3)
    parts = classifier.predict_uncertainty(IRIS[0])
    mean = classifier.predict_proba(IRIS[0])
    np.testing.assert_allclose(sum(parts), -(mean * np.log(mean)).sum(axis=1), atol=1e-4)
    assert parts.epistemic.max() > 0.001


def test_noise_may_depend_on_the_inputs():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 1))
    y = x[:, 0] + np.where(x[:, 0] < 0, 0.05, 0.5) * rng.standard_normal(200)
    fitted = BayesianRegressor("mlp_heteroscedastic", **QUICK | {"hidden": 16, "burn_in": 1500}).fit(x, y)
    quiet, loud = fitted.predict_uncertainty([[-0.5], [0.5]]).aleatoric
    assert quiet < 0.15
    assert 0.35 < loud < 0.7


def test_chains_in_threads_do_not_depend_on_their_number():
    fits = [BayesianClassifier(**QUICK | {"num_chains": 3, "n_jobs": jobs}).fit(*IRIS) for jobs in (1, 2)]
    assert_alike(*fits, IRIS[0])
    fits[0].partial_fit(*IRIS)
    assert (fits[0].draws_.num_chains, fits[0].draws_.num_samples) == (3, 8)


def assert_alike(one, other, x):
    np.testing.assert_array_equal(one.predict(x), other.predict(x))
    np.testing.assert_array_equal(one.sample_posterior(x), other.sample_posterior(x))


def test_saved_and_loaded_without_pickle(classifier, regressor, tmp_path):
    for fitted, (x, _) in ((classifier, IRIS), (regressor, DIABETES)):
        folder = tmp_path / type(fitted).__name__
        fitted.save(folder)
        loaded = type(fitted).load(folder)
        assert loaded.get_params() == fitted.get_params()
        assert_alike(fitted, loaded, x)
    loaded.partial_fit(*DIABETES)
    assert len(loaded.draws_) == 8
    names = BayesianClassifier(**QUICK).fit(IRIS[0], np.array(["a", "b", "c"])[IRIS[1]])
    names.save(tmp_path / "names")
    assert_alike(names, BayesianClassifier.load(tmp_path / "names"), IRIS[0])
    assert_alike(names, pickle.loads(pickle.dumps(names)), IRIS[0])


def test_a_save_that_fails_leaves_the_earlier_one(classifier, tmp_path, monkeypatch):
    classifier.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = copy.copy(classifier)
    other.classes_ = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
    with pytest.raises(InputError, match=r"`classes` must hold values that JSON can, to be saved; got \[datetime"):
        other.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    other.classes_, other.draws_ = np.array([7, 8, 9]), roamax.Draws.from_positions(
        jax.tree.map(lambda leaf: leaf + 1, classifier.draws_.positions)
    )  # fmt: skip
    write = files.write_bytes

    def killed(path, content):
        if path.name == "estimator.json":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(files, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        other.save(tmp_path)
    monkeypatch.setattr(files, "write_bytes", write)
    assert_alike(classifier, BayesianClassifier.load(tmp_path), IRIS[0])
    other.save(tmp_path)
    assert_alike(other, BayesianClassifier.load(tmp_path), IRIS[0])
    assert len(list(tmp_path.iterdir())) == 2, "no arrays of before"


def test_a_save_of_the_first_format_is_read(classifier, tmp_path):
    classifier.save(tmp_path)
    (arrays,) = tmp_path.glob("estimator-*.safetensors")
    arrays.rename(tmp_path / "estimator.safetensors")
    described = json.loads((tmp_path / "estimator.json").read_text())
    del described["seal"]
    files.write_sealed(tmp_path / "estimator.json", {**described, "format": 1})
    assert_alike(classifier, BayesianClassifier.load(tmp_path), IRIS[0])


def test_bad_folders_are_named(classifier, tmp_path):
    classifier.save(tmp_path)
    with pytest.raises(FileError, match=r"holds draws of a network other than `model`"):
        BayesianClassifier.load(tmp_path, model=linear_model())
    with pytest.raises(FileError, match=r"estimator\.json is of a BayesianClassifier: load it with"):
        BayesianRegressor.load(tmp_path)
    with pytest.raises(InputError, match="`speed` must be an argument of BayesianClassifier"):
        BayesianClassifier.load(tmp_path, speed=1)
    (arrays,) = tmp_path.glob("estimator-*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(FileError, match=r"estimator-\w+\.safetensors is damaged"):
        BayesianClassifier.load(tmp_path)
    description = json.loads((tmp_path / "estimator.json").read_text())
    (tmp_path / "estimator.json").write_text(json.dumps({**description, "params": {"thinning": 1}}))
    with pytest.raises(FileError, match=r"estimator\.json is damaged"):
        BayesianClassifier.load(tmp_path)


def linear_model():
    """A network of one's own, for images of 2 by 2."""

    def init(key, x):
        return {"w": 0.1 * jax.random.normal(key, (4, 3)), "b": jnp.zeros(3)}

    return models.Model("linear", init, lambda params, x: x.reshape(-1, 4) @ params["w"] + params["b"][None])


def test_models_samplers_and_priors_of_ones_own(tmp_path):
    images = IRIS[0].reshape(150, 2, 2)
    chosen = {
        "model": linear_model(),
        "sampler": lambda posterior: roamax.sgld(posterior, step_size=1e-3),
        "prior": roamax.priors.gaussian(variance=9.0),
    }
    options = {name: QUICK[name] for name in ("num_chains", "num_samples", "burn_in", "thinning", "random_state")}
    fitted = BayesianClassifier(**chosen, **options).fit(images, IRIS[1])
    assert fitted.score(images, IRIS[1]) > 0.85
    fitted.save(tmp_path)
    with pytest.raises(InputError, match=r"`model` must be given to load .*, since it could not be saved; got none\."):
        BayesianClassifier.load(tmp_path)
    assert_alike(fitted, BayesianClassifier.load(tmp_path, **chosen), images)


@pytest.mark.parametrize("sampler", ["cyclical", "ensemble", "hmc", "roam"])
def test_samplers_by_name(sampler):
    options = {"sampler_options": {"adaptation_steps": 20, "num_integration_steps": 5}} if sampler == "hmc" else {}
    fitted = BayesianClassifier(sampler=sampler, **QUICK | {"num_chains": 2} | options).fit(*IRIS)
    assert len(fitted.draws_) == 8
    assert fitted.score(*IRIS) > 0.8
    fitted.partial_fit(*IRIS)
    assert len(fitted.draws_) == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": "sghmcc"}, "`sampler` must be a known name; got 'sghmcc': did you mean 'sghmc'?"),
        ({"sampler": 3}, "`sampler` must be a name, a roamax.Sampler or a function of a posterior; got 3."),
        ({"model": "mlpp"}, "`model` must be a known name; got 'mlpp': did you mean 'mlp'?"),
        ({"num_samples": 0}, "`num_samples` must be a whole number >= 1; got 0."),
        ({"prior": -1.0}, "`prior` must be a finite number > 0; got -1.0."),
        ({"batch_size": 0}, "`batch_size` must be a whole number >= 1; got 0."),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(InputError) as caught:
        BayesianClassifier(**QUICK | change).fit(*IRIS)
    assert str(caught.value) == message


def test_a_likelihood_too_steep_for_the_learning_rate_takes_smaller_steps():
    x = np.linspace(-1, 1, 50)[:, None]
    y = x[:, 0] + 0.2 * np.cos(40 * x[:, 0])
    for seed in range(3):
        with pytest.warns(UserWarning, match="Trying smaller steps"):
            fitted = BayesianRegressor(**QUICK | {"random_state": seed}, sampler="sghmc", learning_rate=1.0).fit(x, y)
        assert fitted.score(x, y) > 0.8


def test_a_sampler_that_starts_anew_on_its_way_does_so_in_partial_fit():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 8))
    y = (x[:, 0] > 0).astype(int)
    settings = {"hidden": (64, 64), "num_samples": 4, "burn_in": 0, "num_chains": 1, "random_state": 0}
    for thinning, resumes in ((200, False), (10, True)):  # Forty steps are a single start.
        model = BayesianClassifier(sampler="roam", thinning=thinning, **settings).fit(x, y)
        model.partial_fit(x, y)
        draws = np.concatenate(
            [np.asarray(leaf[0]).reshape(8, -1) for leaf in jax.tree.leaves(model.draws_.positions)], 1
        )
        before, after = draws[3], draws[4]
        cosine = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
        assert (cosine > 0.5) == resumes
