"""Bad input: one line that names the argument, the rule and the value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax import priors
from roamax.errors import InputError
from targets import linear_regression

TARGET = linear_regression(num_data=20)
P = TARGET.posterior
START = {"theta": jnp.zeros(3)}


def run(**options):
    settings = {"num_samples": 2, "batch_size": 5, "start": START, "data": TARGET.data, "posterior": P} | options
    sampler = roamax.sgld(settings.pop("posterior"), step_size=1e-3)
    return roamax.sample(jax.random.key(0), sampler, settings.pop("start"), settings.pop("data"), **settings)


X, Y = TARGET.data
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
