"""The scale of the energy, and the priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import roamax
from roamax import priors
from roamax.errors import InputError
from roamax.numerics import trees
from targets import linear_regression


def test_minibatch_gradient_is_unbiased_for_the_full_data_one():
    target = linear_regression(num_data=12)
    params = {"theta": jnp.asarray([0.3, -1.0, 2.0])}
    energy, gradient = target.posterior.energy_and_grad(params, target.data)
    parts = [
        target.posterior.energy_and_grad(params, jax.tree.map(lambda a, at=start: a[at : at + 4], target.data))
        for start in range(0, 12, 4)
    ]
    np.testing.assert_allclose(energy, np.mean([part[0] for part in parts]), rtol=1e-5)
    np.testing.assert_allclose(gradient["theta"], np.mean([part[1]["theta"] for part in parts], axis=0), rtol=1e-4)


def test_energy_is_the_negative_log_joint_of_all_data():
    target = linear_regression(num_data=12)
    theta = np.asarray([0.3, -1.0, 2.0], np.float32)
    x, y = (np.asarray(a) for a in target.data)
    exact = 0.5 * np.sum((y - x @ theta) ** 2) + 0.5 * np.sum(theta**2)
    np.testing.assert_allclose(target.posterior.energy({"theta": jnp.asarray(theta)}, target.data), exact, rtol=1e-5)


TREE = {"a": jnp.asarray([[0.5, -2.0]]), "b": {"kernel": jnp.asarray([1.5]), "bias": jnp.asarray(-0.1)}}
FLAT = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(TREE)])


@pytest.mark.parametrize(
    ("log_prior", "exact"),
    [
        (priors.gaussian(variance=0.3), stats.norm.logpdf(FLAT, scale=0.3**0.5).sum()),
        (priors.gaussian(weight_decay=0.01, num_data=50), stats.norm.logpdf(FLAT, scale=0.5**-0.5).sum()),
        (
            priors.fan_in_gaussian(scale=3.0),
            stats.norm.logpdf([0.5, -2.0], scale=3).sum() + stats.norm.logpdf([1.5, -0.1]).sum(),
        ),
        (priors.laplace(scale=0.7), stats.laplace.logpdf(FLAT, scale=0.7).sum()),
        (
            priors.layerwise_gaussian({"b": 4.0, "b/bias": 0.25}, default=1.0),
            stats.norm.logpdf([0.5, -2.0]).sum() + stats.norm.logpdf(1.5, scale=2) + stats.norm.logpdf(-0.1, scale=0.5),
        ),
    ],
)
def test_priors_are_normalised_log_densities(log_prior, exact):
    np.testing.assert_allclose(log_prior(TREE), exact, rtol=1e-5)


def test_fan_in_prior_counts_all_axes_but_the_last():
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5)), jnp.float32)
    exact = stats.norm.logpdf(kernel, scale=2 / 6**0.5).sum()
    np.testing.assert_allclose(priors.fan_in_gaussian(scale=2.0)({"kernel": kernel}), exact, rtol=1e-5)


def test_layerwise_prior_names_what_it_does_not_find():
    with pytest.raises(InputError, match=r"got none for 'a'"):
        priors.layerwise_gaussian({"b": 1.0})(TREE)
    with pytest.raises(InputError, match=r"'b/kernl': did you mean 'b/kernel'"):
        priors.layerwise_gaussian({"b/kernl": 1.0}, default=1.0)(TREE)


def test_likelihoods_match_their_densities():
    logits = jnp.asarray([[1.0, 2.0, -1.0], [0.0, 0.0, 3.0]])
    log_likelihood = roamax.categorical(lambda params, x: x)
    exact = np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[[0, 1], [1, 2]]
    np.testing.assert_allclose(log_likelihood({}, (logits, jnp.asarray([1, 2]))), exact, rtol=1e-5)
    assert np.isnan(log_likelihood({}, (logits, jnp.asarray([3, -1])))).all()

    mean, y = jnp.asarray([[0.5, 1.0], [2.0, -1.0]]), jnp.asarray([[0.0, 1.0], [2.5, 0.0]])
    log_likelihood = roamax.gaussian(lambda params, x: (x, jnp.full((1, 1), 0.4)))
    np.testing.assert_allclose(log_likelihood({}, (mean, y)), stats.norm.logpdf(y, mean, 0.4).sum(axis=1), rtol=1e-5)


def test_noise_differs_between_leaves_and_dtypes():
    with jax.enable_x64(True):
        like = {"a": jnp.zeros(1000, jnp.float32), "b": jnp.zeros(1000, jnp.float32), "c": jnp.zeros(1000, jnp.float64)}
        noise = trees.normal_like(jax.random.key(0), like)
        assert noise["c"].dtype == jnp.float64
        correlation = np.corrcoef(np.stack([noise[name] for name in "abc"]))
    assert np.abs(correlation - np.eye(3)).max() < 0.15


def test_noise_of_many_leaves_is_drawn_in_one_place():
    def shifts(count):
        like = {f"leaf{number}": jnp.zeros(50 + number) for number in range(count)}
        draw = jax.jit(lambda key: jax.tree.map(jnp.sin, trees.normal_like(key, like)))
        return draw.lower(jax.random.key(0)).compile().as_text().count("shift-right-logical(")

    assert shifts(6) < 2 * shifts(1), "the generator is not copied into each leaf's program"


def test_names_of_leaves_lead_back_to_the_tree():
    tree = {"a/b": 1, "c": {"~d": 2, "e": 3}}
    assert trees.from_named_leaves(trees.named_leaves(tree)) == tree
    assert trees.from_named_leaves(trees.named_leaves(5)) == 5
