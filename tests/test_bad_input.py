"""Bad input: one line that names the argument, the rule and the value."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import roamax
from roamax import likelihoods, priors
from roamax.errors import FileError, InputError, finite, shaped, whole
from roamax.sklearn.estimators import BayesianClassifier, BayesianRegressor
from roamax.tasks import TaskSpec
from targets import linear_regression

TARGET = linear_regression(num_data=20)
P = TARGET.posterior
START = {"theta": jnp.zeros(3)}


def run(**options):
    settings = {"num_samples": 2, "batch_size": 5, "start": START, "data": TARGET.data, "posterior": P} | options
    sampler = roamax.sgld(settings.pop("posterior"), step_size=1e-3)
    return roamax.sample(jax.random.key(0), sampler, settings.pop("start"), settings.pop("data"), **settings)


X, Y = TARGET.data
CLASSES = roamax.Posterior(likelihoods.categorical(lambda params, x: x * params["theta"]), P.log_prior, 20)
CASES = {
    "step size 0": (lambda: roamax.sghmc(P, step_size=0.0, friction=1.0), "step_size", "> 0", "0.0"),
    "step size NaN": (lambda: roamax.sgld(P, step_size=float("nan")), "step_size", "> 0", "nan"),
    "step size < 0": (lambda: roamax.psgld(P, step_size=-1.0), "step_size", "> 0", "-1.0"),
    "step size of hmc": (lambda: roamax.hmc(P, step_size=float("inf")), "step_size", "> 0", "inf"),
    "temperature < 0": (lambda: roamax.sgld(P, step_size=0.1, temperature=-1.0), "temperature", ">= 0", "-1.0"),
    "friction": (lambda: roamax.sghmc(P, step_size=0.1, friction=0.0), "friction", "> 0", "0.0"),
    "cycle": (
        lambda: roamax.cyclical(P, step_size=0.1, friction=1.0, cycle_length=1), "cycle_length", ">= 2", "1",
    ),
    "exploration ratio": (
        lambda: roamax.cyclical(P, step_size=0.1, friction=1.0, cycle_length=10, exploration_ratio=1.0),
        "exploration_ratio", r"\[0, 1\)", "1.0",
    ),
    "draws per cycle": (
        lambda: roamax.cyclical(P, step_size=0.1, friction=1.0, cycle_length=10, draws_per_cycle=3),
        "draws_per_cycle", r"\[1, 2\]", "3",
    ),
    "kernel": (
        lambda: roamax.cyclical(P, step_size=0.1, cycle_length=10, kernel="sgdl"),
        "kernel", "known", "did you mean 'sgld'",
    ),
    "member steps": (lambda: roamax.ensemble(P, member_steps=0), "member_steps", ">= 1", "0"),
    "optimizer": (lambda: roamax.ensemble(P, member_steps=1, optimizer="adma"), "optimizer", "known", "'adam'"),
    "num_data": (lambda: roamax.Posterior(P.log_likelihood, P.log_prior, 0), "num_data", ">= 1", "0"),
    "num_data below the batch": (
        lambda: run(posterior=roamax.Posterior(P.log_likelihood, P.log_prior, 4)), "num_data", "at least", "4",
    ),
    "likelihood of the wrong shape": (
        lambda: run(posterior=roamax.Posterior(lambda p, b: jnp.zeros(()), P.log_prior, 20)),
        "log_likelihood", r"shape \(5,\)", r"\(\)",
    ),
    "batch too large": (lambda: run(batch_size=21), "batch_size", "at most the length of the data, 20", "21"),
    "batch 0": (lambda: run(batch_size=0), "batch_size", ">= 1", "0"),
    "no draws": (lambda: run(num_samples=0), "num_samples", ">= 1", "0"),
    "half a burn-in": (lambda: run(burn_in=1.5), "burn_in", "whole number >= 0", "1.5"),
    "thinning": (lambda: run(thinning=0), "thinning", ">= 1", "0"),
    "empty data": (lambda: run(data=(X[:0], Y[:0])), "data", "not be empty", "length 0"),
    "lengths differ": (lambda: run(data=(X, Y[:19])), "data", "one leading length", "'0': 20, '1': 19"),
    "scalar in data": (lambda: run(data=(X, 1.0)), "data", "leading axis", "a scalar"),
    "no arrays": (lambda: run(data={}), "data", "at least one array", "empty"),
    "whole numbers to sample": (lambda: run(start={"theta": jnp.zeros(3, int)}), "init_position", "floating", "int32"),
    "NaN to start from": (lambda: run(start={"theta": jnp.full(3, jnp.nan)}), "init_position", "finite", "NaN"),
    "batch size of a function": (lambda: run(data=lambda step: TARGET.data), "batch_size", "None", "5"),
    "minibatch for hmc": (
        lambda: roamax.sample(jax.random.key(0), roamax.hmc(P), START, TARGET.data, batch_size=5, num_samples=1),
        "batch_size", "whole data set, 20", "5",
    ),
    "variance": (lambda: priors.gaussian(variance=0.0), "variance", "> 0", "0.0"),
    "weight decay alone": (lambda: priors.gaussian(weight_decay=0.1), "num_data", "be given", "None"),
    "two variances": (lambda: priors.gaussian(variance=1.0, weight_decay=0.1), "gaussian", "either", "both"),
    "Laplace scale": (lambda: priors.laplace(scale=-1.0), "scale", "> 0", "-1.0"),
    "learning rate": (lambda: roamax.from_learning_rate(0.0, 0.1, 10), "learning_rate", "> 0", "0.0"),
    "momentum decay": (lambda: roamax.from_learning_rate(0.1, 0.0, 10), "momentum_decay", r"\(0, 1\]", "0.0"),
    "no draws to predict with": (lambda: roamax.predict(lambda p, x: x, [], X), "draws", "at least one", "none"),
    "a prior of no width": (
        lambda: priors.gaussian(weight_decay=1e308, num_data=10), "weight_decay", "between 1e-30 and 1e30", "1e.308",
    ),
    "likelihood None": (
        lambda: run(posterior=roamax.Posterior(lambda p, b: None, P.log_prior, 20)), "log_likelihood", "one", "None",
    ),
    "likelihood a float": (
        lambda: run(posterior=roamax.Posterior(lambda p, b: 1.0, P.log_prior, 20)), "log_likelihood", "one", r"\(\)",
    ),
    "prior None": (
        lambda: run(posterior=roamax.Posterior(P.log_likelihood, lambda p: None, 20)), "log_prior", "one", "None",
    ),
    "prior a vector": (
        lambda: run(posterior=roamax.Posterior(P.log_likelihood, lambda p: p["theta"], 20)), "log_prior", "one", "3,",
    ),
    "float labels": (lambda: CLASSES.energy(START, (X, Y)), "y", "whole number per example", "float"),
    "64_bits": (lambda: CLASSES.energy(START, (X, np.full(20, 2**32))), "data", "fit 32 bits", "larger"),
    "64_bits in a run": (
        lambda: run(posterior=CLASSES, data=(X, np.full(20, 2**32))), "data", "fit 32 bits", "larger",
    ),
    "data without a pair": (lambda: CLASSES.energy(START, {"x": X}), "data", r"pair \(x, y\)", "dict"),
    "text in a frame": (lambda: run(data=(X, pd.Series(list("ab") * 10))), "data", "numbers", "object|str"),
    "about a path": (lambda: run(out="never", about={"file": Path("x")}), "about", "text, numbers", "x"),
    "a mass matrix of another size": (
        lambda: roamax.hmc(P, inverse_mass_matrix=[1.0, 2.0]).init(jax.random.key(0), START),
        "inverse_mass_matrix", r"shape \(3,\)", r"\(2,\)",
    ),
    "a ragged mass matrix": (
        lambda: roamax.hmc(P, inverse_mass_matrix=[[1.0], [2.0, 3.0]]), "inverse_mass_matrix", "finite", "1.0",
    ),
    "an optimizer of another library": (
        lambda: roamax.ensemble(P, member_steps=1, optimizer=3), "optimizer", "optax transformation", "3",
    ),
    "seed of a task": (lambda: TaskSpec("digits", "mlp", seed=2**32), "seed", "whole number in", "4294967296"),
    "labels out of range": (
        lambda: roamax.metrics.nll(np.full((2, 3), 1 / 3), np.array([0, 3])), "labels", "", "3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_argument_rule_and_value(case):
    cause, argument, rule, value = CASES[case]
    with pytest.raises(InputError, match=rf"(?s)`{argument}`.*{rule}.*{value}") as caught:
        cause()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_counts_of_any_whole_type_are_taken_and_others_refused(tmp_path):
    one, two = np.int64(1), np.int32(2)
    counts = {"num_samples": two, "burn_in": one, "thinning": one, "num_chains": two, "batch_size": np.uint8(5)}
    about = {"tuple": (1, 2), "nan": float("nan"), "number": np.float32(0.5)}
    draws = run(**counts, out=tmp_path / "run", about=about)
    np.testing.assert_array_equal(run(**counts)[1, 1]["theta"], draws[1, 1]["theta"])
    assert len(run(**counts, out=tmp_path / "run", about=about)) == 4
    for name in counts:
        for bad in (2.0, float("nan"), float("inf"), True, "2", [2], *([None] if name != "batch_size" else [])):
            with pytest.raises(InputError, match=rf"^`{name}` must be a whole number >= \d; got [^\n]*\.$"):
                run(**{name: bad})


def test_frames_and_series_are_arrays():
    frames = run(data=(pd.DataFrame(np.asarray(X)), pd.Series(np.asarray(Y))))
    np.testing.assert_array_equal(frames[0, 1]["theta"], run()[0, 1]["theta"])


def test_numbers_are_checked_once_and_converted():
    assert [whole(number, "n") for number in (3, np.int8(3), jnp.int32(3))] == [3, 3, 3]
    assert type(finite(np.float32(0.5), "x")) is float
    for bad in (10**400, "1", None, True, 1j, [1.0]):
        with pytest.raises(InputError, match=r"^`x` must be a finite number > 0; got "):
            finite(bad, "x", above=0)
    with pytest.raises(InputError, match=r"in \(0, 1\]; got 0"):
        finite(0, "x", above=0, most=1)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "it must be an object; got None"),
        ({"a": [1]}, "`b` in it must be text or null; got nothing"),
        ({"a": [1, True], "b": None}, "`a.1` in it must be a whole number; got True"),
        ({"a": [], "b": None, "c": {"d": "x"}}, "`c.d` in it must be a finite number; got 'x'"),
        ({"a": [], "b": None, "e\n": 3}, r"`e\n` in it must be a list; got 3"),
    ],
)
def test_json_of_another_shape_is_refused_at_its_place(value, says):
    shape = {"a": [int], "b": (str, None), "c?": {"d": float}, "*": list}
    assert shaped({"a": [0], "b": "x", "z": []}, shape, "f") == {"a": [0], "b": "x", "z": []}
    with pytest.raises(FileError) as caught:
        shaped(value, shape, "f.json", "Remove it.")
    assert str(caught.value) == f"f.json is damaged or of another kind: {says}. Remove it."


@pytest.mark.parametrize("kind", [BayesianClassifier, BayesianRegressor])
def test_estimators_refuse_what_they_cannot_predict(kind):
    settings = {"hidden": 4, "num_samples": np.int64(2), "burn_in": 2, "thinning": 1, "num_chains": 1}
    x, y = pd.DataFrame({"a": np.arange(12.0), "b": 1.0}), pd.Series(np.arange(12) % 2)
    fitted = kind(**settings, random_state=0).fit(x, y)
    assert np.isfinite(fitted.predict(x)).all()
    far = x.assign(a=1e300)
    for predict in (fitted.predict, fitted.sample_posterior):
        with pytest.raises(InputError, match=r"`X` must hold inputs near enough .* got row 0 far away"):
            predict(far)
    with pytest.raises(InputError, match="`tempratur` must be a setting of psgld: did you mean 'temperature'"):
        kind(**settings, sampler_options={"tempratur": 1.0}).fit(x, y)
    with pytest.raises(InputError, match=r"`hidden` must be a whole number >= 1; got 2.5"):
        kind(hidden=[2.5]).fit(x, y)
