"""The scikit-learn estimators: scikit-learn's own checks, and what they promise beyond."""

import json
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
from roamax.sklearn.estimators import mixture_quantiles

QUICK = {"num_chains": 1, "num_samples": 4, "burn_in": 200, "thinning": 20, "hidden": (8,), "random_state": 0}
IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Networks this small, on so many shapes of data, take longer to optimise than to run."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@parametrize_with_checks([BayesianClassifier(**QUICK), BayesianRegressor(**QUICK)])
def test_scikit_learns_own_checks(estimator, check):
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


def test_classes_may_be_listed_before_they_are_seen():
    some = IRIS[1] < 2
    fitted = BayesianClassifier(**QUICK).partial_fit(IRIS[0][some], IRIS[1][some], classes=[0, 1, 2])
    assert fitted.predict_proba(IRIS[0]).shape == (150, 3)


def test_in_pipelines_and_searches():
    quick = QUICK | {"burn_in": 100, "num_samples": 2}
    pipeline = make_pipeline(PolynomialFeatures(2), BayesianRegressor(**quick))
    assert cross_val_score(pipeline, *DIABETES, cv=2).mean() > 0.2
    search = GridSearchCV(BayesianClassifier(**quick), {"prior": [0.3, 6.0]}, scoring="neg_log_loss", cv=2)
    search.fit(*IRIS)
    assert search.best_params_ == {"prior": 6.0}
    assert search.best_score_ > -0.6


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


def test_bad_folders_are_named(classifier, tmp_path):
    classifier.save(tmp_path)
    with pytest.raises(FileError, match=r"estimator\.safetensors holds draws of a network other than `model`"):
        BayesianClassifier.load(tmp_path, model=linear_model())
    with pytest.raises(FileError, match=r"estimator\.json is of a BayesianClassifier: load it with"):
        BayesianRegressor.load(tmp_path)
    with pytest.raises(InputError, match="`speed` must be an argument of BayesianClassifier"):
        BayesianClassifier.load(tmp_path, speed=1)
    content = bytearray((tmp_path / "estimator.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "estimator.safetensors").write_bytes(content)
    with pytest.raises(FileError, match=r"estimator\.safetensors is damaged"):
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
        ({"prior": -1.0}, "`scale` must be a finite number > 0; got -1.0."),
        ({"batch_size": 0}, "`batch_size` must be a whole number in [1, 150]; got 0."),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(InputError) as caught:
        BayesianClassifier(**QUICK | change).fit(*IRIS)
    assert str(caught.value) == message


def test_a_likelihood_too_steep_for_the_learning_rate_takes_smaller_steps():
    x = np.linspace(-1, 1, 50)[:, None]
    y = x[:, 0] + 0.2 * np.cos(40 * x[:, 0])
    with pytest.warns(UserWarning, match="Trying smaller steps"):
        fitted = BayesianRegressor(**QUICK, sampler="sghmc", learning_rate=3.0).fit(x, y)
    assert fitted.score(x, y) > 0.5
