"""Learned samplers: their equations, what they guarantee, and their weights."""

import dataclasses
import json
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import bias

import roamax
from roamax import Posterior, pretrained, sghmc
from roamax.cli import print_warning
from roamax.errors import CardWarning, FileError, InputError
from roamax.evaluation import diagnostics, targets
from roamax.evaluation.stationarity import long_run
from roamax.host import files, native
from roamax.numerics import noise, trees
from roamax.pretrained import cards
from roamax.samplers.learned import _kernel, _network, _slopes, meta_sgmcmc, precond_l2e
from roamax.samplers.learned._groups import Groups
from roamax.samplers.learned._recipe import recipe_step
from roamax.samplers.learned.l2e import WIDTHS
from roamax.samplers.registry import RECORDS
from roamax.sklearn import base
from roamax.types import Weights

ROOT = Path(__file__).parents[1]

SHAPES = {"matrix": (7, 5), "vector": (70,), "cube": (2, 3, 2), "scalar": (), "empty": (0, 3)}
NUM_DATA, STEP_SIZE, FRICTION, TEMPERATURE, OUTPUT_SCALE = 50, 0.03, 0.7, 0.5, 0.2


def quartic_posterior():
    """An energy with a different, nonlinear gradient for each number of a tree, scaled by the batch."""

    def log_likelihood(params, batch):
        value = sum(jnp.sum(0.3 * leaf**4 - jnp.sin(2 * leaf)) for leaf in jax.tree.leaves(params))
        return -batch * value / NUM_DATA

    return Posterior(
        log_likelihood, lambda params: -0.5 * sum(jnp.sum(x**2) for x in jax.tree.leaves(params)), NUM_DATA
    )


def quartic_gradient(theta, batch):
    return np.mean(batch) * (1.2 * theta**3 - 2 * np.cos(2 * theta)) + theta


def random_tree(seed):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in SHAPES.items()}


class NumpyL2E:
    """L2E written down once more, tensor by tensor in NumPy and double precision."""

    decays = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)

    def __init__(self, weights, theta, passes):
        self.weights = jax.tree.map(lambda w: np.asarray(w, np.float64), weights)
        self.theta, self.passes = np.asarray(theta, np.float64), passes
        self.r = np.zeros_like(self.theta)
        self.averages = [np.zeros_like(self.theta) for _ in self.decays]

    def alpha_beta(self, gradient, r):
        outputs = np.zeros((2, *self.theta.shape))
        features = [gradient / NUM_DATA, self.theta, r, *self.averages]
        roots = [np.sqrt(np.mean(feature**2) + 1e-5) if feature.size else 1.0 for feature in features]
        for index in np.ndindex(self.theta.shape):
            hidden = np.array([feature[index] / root for feature, root in zip(features, roots, strict=True)])
            for layer in ("layer0", "layer1"):
                hidden = np.maximum(hidden @ self.weights[layer]["w"] + self.weights[layer]["b"], 0)
            output = hidden @ self.weights["layer2"]["w"] + self.weights["layer2"]["b"]
            outputs[(slice(None), *index)] = OUTPUT_SCALE * output
        return outputs

    def step(self, batch, noise):
        gradient = quartic_gradient(self.theta, np.asarray(batch, np.float64))
        self.averages = [d * m + (1 - d) * gradient / NUM_DATA for d, m in zip(self.decays, self.averages, strict=True)]
        alpha, beta = self.alpha_beta(gradient, self.r)
        self.r = self.r - STEP_SIZE * (gradient + alpha + FRICTION * beta)
        self.r = self.r + np.sqrt(2 * FRICTION * STEP_SIZE * TEMPERATURE) * noise
        if self.passes == 2:
            _, beta = self.alpha_beta(gradient, self.r)
        self.theta = self.theta + STEP_SIZE * beta


WAYS = {"products": 1e-5, "written out": 1e-5, "native": 1e-4}
"""The ways to compute the network, and how near they come to each other: the native one rounds a layer to 13 bits."""


def compute(monkeypatch, way):
    """Compute the network in one way only; skip the test if that needs a compiler that is not there."""
    functions = _kernel.FUNCTION, _slopes.FUNCTION
    if way == "native" and not all(native.has_function(name, _kernel.SOURCE) for name in functions):
        pytest.skip("there is no C++ compiler")
    monkeypatch.setattr(_kernel, "SMALL", 10**9 if way == "products" else 0)
    monkeypatch.setattr(_kernel, "has_function", lambda *_: way == "native")


@pytest.mark.parametrize(("passes", "way"), [(passes, way) for passes in (1, 2) for way in WAYS])
def test_l2e_is_its_equations(passes, way, monkeypatch):
    compute(monkeypatch, way)
    family = roamax.l2e_family(
        step_size=STEP_SIZE, friction=FRICTION, temperature=TEMPERATURE, output_scale=OUTPUT_SCALE, passes=passes
    )
    weights = jax.tree.map(lambda w: w + 0.1, family.init(jax.random.key(0)))
    sampler, theta = family.bind(weights, quartic_posterior()), random_tree(1)
    state, step = sampler.init(jax.random.key(2), theta), jax.jit(sampler.step)
    expected = {name: NumpyL2E(weights, leaf, passes) for name, leaf in theta.items()}
    layout = Groups.of(theta)
    for name, start in layout.unpack(layout.noise(jax.random.key(2))).items():
        expected[name].r = np.sqrt(TEMPERATURE) * np.asarray(start, np.float64)
    for i in range(4):
        key, batch = jax.random.key(i), jnp.asarray([0.5, 1.0 + i])
        state, _ = step(key, state, batch)
        noise = layout.unpack(layout.noise(key))
        for name, reference in expected.items():
            reference.step(batch, np.asarray(noise[name]))
    momentum = layout.unpack(state.momentum)
    for name, reference in expected.items():
        np.testing.assert_allclose(state.position[name], reference.theta, atol=WAYS[way])
        np.testing.assert_allclose(momentum[name], reference.r, atol=WAYS[way])
        if name != "empty":
            assert np.max(np.abs(reference.theta - theta[name])) > 1e-3


PAIRS = 32
FEW = 400
"""Steps that show a bias of 0.1 well: without one, the error of so few is 0.03."""
COVARIANCE = np.kron(np.eye(PAIRS), np.array([[1.0, 0.6], [0.6, 0.8]]))
MEAN = np.tile([0.5, -1.0], PAIRS)


def long_run_error(make_sampler, num_steps=2000):
    """The largest error of a mean or of a (co)variance, pooled over copies of one pair of correlated numbers."""
    target = targets.gaussian(jax.random.key(0), mean=MEAN, covariance=COVARIANCE, num_data=64)
    found = long_run(make_sampler, target, jax.random.key(1), num_chains=16, burn_in=300, num_steps=num_steps)
    pairs = (found - MEAN).reshape(-1, 2)
    covariance = np.cov(pairs, rowvar=False, bias=True)
    return max(np.max(np.abs(pairs.mean(0))), np.max(np.abs(covariance - COVARIANCE[:2, :2])))


def random_member(family, seed=1):
    weights = family.init(jax.random.key(seed))
    return lambda posterior: family.bind(weights, posterior)


def identity_weights():
    """Weights that make of raw features alpha = 0 and beta = r, as relu(r) - relu(-r) through both hidden layers."""
    weights = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), _network.init_mlp(jax.random.key(0), WIDTHS))
    weights["layer0"]["w"][2, :2] = 1, -1
    weights["layer1"]["w"][[0, 1], [0, 1]] = 1
    weights["layer2"]["w"][:2, 1] = 1, -1
    return weights


def test_l2e_with_the_gradient_of_a_quadratic_kinetic_energy_is_sghmc(monkeypatch):
    layout, settings = Groups.of(random_tree(0)), {"step_size": 0.05, "friction": 1.5}
    monkeypatch.setattr(Groups, "inverse_rms", lambda self, x: jnp.ones(x.shape[:-1], x.dtype))

    def make_l2e(posterior):
        return roamax.l2e_family(**settings, output_scale=1.0).bind(identity_weights(), posterior)

    def run(sampler):
        state, step = sampler.init(jax.random.key(0), random_tree(0)), jax.jit(sampler.step)
        for i in range(10):
            state, _ = step(jax.random.key(i), state, jnp.asarray([1.0, 2.0]))
        return state.position

    found = run(make_l2e(quartic_posterior()))
    with monkeypatch.context() as patch:
        patch.setattr(trees, "normal_like", lambda key, tree: layout.unpack(layout.noise(key)))
        expected = run(sghmc(quartic_posterior(), **settings))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
    assert long_run_error(make_l2e) < 0.03


@pytest.mark.parametrize("way", ["written out", "native"])
def test_a_fused_network_is_the_plain_one_alone_in_chains_and_in_populations(way, monkeypatch):
    keys = jax.random.split(jax.random.key(0), 4)
    weights = jax.vmap(lambda key: _network.init_mlp(key, (4, 3, 2)))(keys)
    single, several = jax.random.normal(keys[0], (4, 7, 64)), jax.random.normal(keys[1], (4, 3, 7, 64))
    inputs = _kernel.Inputs([single, several], jax.random.normal(keys[2], (4, 4, 7)), [single, -single])
    first_weights, first_inputs = (jax.tree.map(lambda x: x[0], tree) for tree in (weights, inputs))
    copies = jax.tree.map(lambda w: jnp.stack([w] * 4), first_weights)
    step = jnp.arange(4)

    def gradient(weights):
        return jax.grad(lambda w: jnp.sum(_kernel.apply_to_groups(w, first_inputs, step[0])[1]))(weights)

    compute(monkeypatch, "products")
    population = jax.jit(jax.vmap(_kernel.apply_to_groups))
    expected, expected_chains = population(weights, inputs, step), population(copies, inputs, step)
    expected_gradient = gradient(first_weights)
    compute(monkeypatch, way)
    found = jax.jit(jax.vmap(_kernel.apply_to_groups))(weights, inputs, step)
    chains = jax.jit(jax.vmap(_kernel.apply_to_groups, in_axes=(None, 0, 0)))(first_weights, inputs, step)
    alone = jax.jit(_kernel.apply_to_groups)(first_weights, first_inputs, step[0])
    for output in (0, 1):
        np.testing.assert_allclose(found[output], expected[output], atol=1e-5)
        np.testing.assert_allclose(chains[output], expected_chains[output], atol=1e-5)
        np.testing.assert_allclose(alone[output], expected_chains[output][0], atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), gradient(first_weights), expected_gradient)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_native_network_rounds_by_less_than_a_thousandth_and_keeps_non_finite_numbers(outputs, monkeypatch):
    shipped = pretrained.load("l2e").meta_params
    weights = shipped | {"layer2": {name: leaf[..., :outputs] for name, leaf in shipped["layer2"].items()}}
    weights = _network.cast(weights, jnp.float32)
    rng = np.random.default_rng(0)
    # Groups of 4 each are a thread's turn, and the last has fewer. In one group all features are tiny, in one large.
    features = rng.standard_normal((9, 41, 64)).astype(np.float32)
    features[:, 7:9] *= np.array([1e-6, 1e6], np.float32)[:, None]
    bases = [jnp.zeros((41, 64))] * outputs

    def run(features, weights=weights):
        inputs = _kernel.Inputs([features[0], features[1:]], jnp.ones((9, 41)), bases)
        return np.stack(jax.jit(lambda *args: _kernel.apply_to_groups(*args))(weights, inputs, jnp.asarray(0)))

    compute(monkeypatch, "products")
    expected = run(features)
    compute(monkeypatch, "native")
    found = run(features)
    assert (found != expected).any()
    sizes = np.sqrt(np.mean(expected**2, axis=-1, keepdims=True))
    assert np.max(np.abs(found - expected) / sizes) < 5e-4
    unknown = weights | {"layer1": {**weights["layer1"], "w": weights["layer1"]["w"].at[3, 4].set(jnp.nan)}}
    assert np.isnan(run(features, unknown)).all()
    features[3, 2, 5], features[4, 40, 63] = np.nan, np.inf
    spoiled = run(features)
    assert np.isnan(spoiled[:, 2, 5]).all()
    assert not np.isfinite(spoiled[:, 40, 63]).any()
    assert np.isfinite(spoiled).sum() == spoiled.size - 2 * outputs


def exact_slopes(weights, features):
    """Outputs and slopes in double precision, and how near a parameter's nearest hidden unit is to its kink.

    Features are (features, parameters).
    """
    layers = [{k: np.asarray(x, np.float64) for k, x in weights[f"layer{i}"].items()} for i in range(len(weights))]
    units, slopes, nearest = np.asarray(features, np.float64), np.eye(len(features))[..., None], np.inf
    for i, layer in enumerate(layers):
        units = np.einsum("ij,ip->jp", layer["w"], units) + layer["b"][:, None]
        slopes = np.einsum("ij,fip->fjp", layer["w"], slopes)
        if i + 1 < len(layers):
            nearest = np.minimum(nearest, np.min(np.abs(units) / np.max(np.abs(units), axis=0), axis=0))
            units, slopes = np.maximum(units, 0), slopes * (units > 0)
    return units, np.swapaxes(slopes, 0, 1), nearest


@pytest.mark.parametrize("way", ["products", "native"])
@pytest.mark.parametrize("groups", [1, 41])
@pytest.mark.parametrize("widths", [(2, 32, 32, 1), (9, 32, 32, 2), (3, 32, 32, 2), (4, 7, 3), (3, 6, 32, 8, 2)])
def test_slopes_are_the_derivatives_of_outputs(widths, groups, way, monkeypatch):
    compute(monkeypatch, way)
    keys = jax.random.split(jax.random.key(len(widths) + groups), 3)
    weights = jax.tree.map(lambda w: w + 0.1 * jax.random.normal(keys[0], w.shape), _network.init_mlp(keys[1], widths))
    features = jax.random.normal(keys[2], (widths[0], groups, 64))
    # In a list, features may be single or stacked, even none of them.
    outputs, slopes = jax.jit(lambda *args: _slopes.outputs_and_slopes(*args))(
        weights, [features[0], features[1:], features[:0]]
    )
    expected, expected_slopes, nearest = exact_slopes(weights, features.reshape(widths[0], -1))
    assert slopes.shape == (widths[-1], widths[0], groups, 64)
    assert np.max(np.abs(outputs.reshape(expected.shape) - expected)) < 1e-5 * np.max(np.abs(expected))
    # Within rounding of its kink, a hidden unit may be on either side.
    clear = nearest > 1e-5
    assert np.mean(clear) > 0.98
    errors = np.abs(slopes.reshape(expected_slopes.shape) - expected_slopes)[..., clear]
    assert np.max(errors) < WAYS[way] * np.max(np.abs(expected_slopes))


def test_native_slopes_are_those_of_products_in_chains_and_populations_and_under_derivatives(monkeypatch):
    keys = jax.random.split(jax.random.key(0), 4)
    population = jax.vmap(lambda key: _network.init_mlp(key, (3, 5, 4, 2)))(keys)
    weights = jax.tree.map(lambda w: w[0], population)
    features = jax.random.normal(keys[0], (4, 3, 5, 64))

    def loss(weights, features):
        outputs, slopes = _slopes.outputs_and_slopes(weights, [features])
        return jnp.sum(jnp.sin(outputs)) + jnp.sum(slopes**2)

    def found():
        return (
            jax.jit(jax.vmap(lambda x: _slopes.outputs_and_slopes(weights, [x])))(features),
            jax.jit(jax.vmap(lambda w, x: _slopes.outputs_and_slopes(w, [x])))(population, features),
            jax.jit(jax.vmap(lambda w: _slopes.outputs_and_slopes(w, [features[0]])))(population),
            jax.jit(jax.grad(loss, (0, 1)))(weights, features[0]),
            jax.jit(jax.vmap(jax.grad(loss)))(population, features),
        )

    compute(monkeypatch, "products")
    expected = found()
    compute(monkeypatch, "native")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found(), expected)


def test_native_slopes_keep_non_finite_numbers_to_their_parameter(monkeypatch):
    compute(monkeypatch, "native")
    weights = _network.init_mlp(jax.random.key(0), (9, 32, 32, 2))
    features = np.random.default_rng(0).standard_normal((9, 6, 64)).astype(np.float32)
    features[3, 2, 5], features[4, 5, 63] = np.nan, np.inf
    outputs, slopes = jax.jit(lambda *args: _slopes.outputs_and_slopes(*args))(weights, [features])
    assert not np.isfinite(outputs[:, [2, 5], [5, 63]]).any()
    assert np.isfinite(outputs).sum() == outputs.size - 4
    assert np.isfinite(np.delete(slopes.reshape(2, 9, -1), [2 * 64 + 5, 5 * 64 + 63], axis=-1)).all()
    unknown = weights | {"layer1": {**weights["layer1"], "w": weights["layer1"]["w"].at[3, 4].set(jnp.nan)}}
    assert np.isnan(jax.jit(lambda *args: _slopes.outputs_and_slopes(*args))(unknown, [features])[0]).all()


VARIANTS = {
    "kinetic": (roamax.kinetic_l2e_family, {}),
    "kinetic, paper": (roamax.kinetic_l2e_family, {"form": "paper"}),
    "kinetic, gradient": (roamax.kinetic_l2e_family, {"differentiate_gradient": True}),
    "precond": (roamax.precond_l2e_family, {}),
    "precond, no averages": (roamax.precond_l2e_family, {"decays": (), "curvature": False}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_native_steps_and_their_derivatives_by_weights_are_those_of_products(name, monkeypatch):
    make, options = VARIANTS[name]
    family = make(step_size=STEP_SIZE, friction=FRICTION, temperature=TEMPERATURE, output_scale=OUTPUT_SCALE, **options)
    weights, batch = family.init(jax.random.key(0)), jnp.asarray([0.5, 1.5])

    def run(weights):
        sampler = family.bind(weights, quartic_posterior())
        start = sampler.init(jax.random.key(2), random_tree(1))
        return jax.lax.scan(lambda state, key: (sampler.step(key, state, batch)[0], None), start, keys)[0]

    def loss(weights):
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(run(weights).position))

    keys = jax.random.split(jax.random.key(3), 3)
    compute(monkeypatch, "products")
    expected, expected_gradient = jax.jit(lambda w: (run(w), jax.grad(loss)(w)))(weights)
    compute(monkeypatch, "native")
    program = jax.jit(lambda w: (run(w), jax.grad(loss)(w))).lower(weights)
    assert _slopes.FUNCTION in program.as_text()
    found, gradient = program.compile()(weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=WAYS["native"]), found, expected)
    largest = max(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(expected_gradient))
    assert largest > 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3 * largest), gradient, expected_gradient)


def test_groups_keep_each_tensor_apart():
    tree = {"a": jnp.arange(1.0, 66.0), "b": jnp.asarray(3.0), "c": jnp.zeros((0, 2)), "d": jnp.ones((2, 64))}
    layout = Groups.of(tree)
    packed = layout.pack(tree)
    assert packed.shape == layout.shape == (5, 64)
    jax.tree.map(np.testing.assert_array_equal, layout.unpack(packed), tree)
    np.testing.assert_array_equal(layout.without_filling(packed + 1) - packed, packed != 0)
    roots = [
        np.sqrt(np.mean(np.square(leaf)) + 1e-5) for leaf in (tree["a"], tree["a"], tree["b"], tree["d"], tree["d"])
    ]
    np.testing.assert_allclose(layout.inverse_rms(packed), 1 / np.array(roots), rtol=1e-5)


@pytest.mark.parametrize("shape", [(5,), (3, 7, 11), (0, 4)])
def test_noise_is_that_of_jax_to_the_bit(shape):
    keys = jax.random.split(jax.random.key(3), 2)
    drawn = jax.jit(jax.vmap(lambda key: noise.normal(key, shape, jnp.float32)))(keys)
    np.testing.assert_array_equal(drawn, jax.vmap(lambda key: jax.random.normal(key, shape))(keys))
    for key, dtype in ((jax.random.key(3, impl="rbg"), jnp.float32), (jax.random.key(3), jnp.float16)):
        np.testing.assert_array_equal(noise.normal(key, shape, dtype), jax.random.normal(key, shape, dtype))


def normalised(x):
    return x * jax.lax.rsqrt(jnp.mean(x**2) + 1e-5)


def mlp_on(weights, features):
    """A network on a list of features of one tensor: the list of its outputs."""
    hidden = jnp.stack([feature.reshape(-1) for feature in features], axis=1)
    for i in range(len(weights)):
        layer = weights[f"layer{i}"]
        hidden = (hidden if i == 0 else jax.nn.relu(hidden)) @ layer["w"] + layer["b"][None]
    return [output.reshape(features[0].shape) for output in hidden.T]


@pytest.mark.parametrize("differentiate_gradient", [False, True])
def test_kinetic_l2e_moves_by_both_gradients_of_its_kinetic_energy(differentiate_gradient):
    family = roamax.kinetic_l2e_family(
        step_size=0.1, friction=0.7, temperature=0.0, output_scale=0.5, differentiate_gradient=differentiate_gradient
    )
    weights, posterior, batch = family.init(jax.random.key(0)), quartic_posterior(), jnp.asarray([1.0, 2.0])
    theta, r = random_tree(0)["matrix"], random_tree(1)["matrix"]

    def gradient_of_u(theta):
        return jax.grad(posterior.energy)(theta, batch)

    def kinetic_energy(theta, r):
        gradient = gradient_of_u(theta if differentiate_gradient else jax.lax.stop_gradient(theta))
        (f,) = mlp_on(weights, [normalised(theta), normalised(gradient / NUM_DATA)])
        return 0.5 * jnp.sum((r - 0.5 * f) ** 2)

    by_theta, by_r = jax.grad(kinetic_energy, (0, 1))(theta, r)
    new_r = r - 0.1 * (gradient_of_u(theta) + by_theta + 0.7 * by_r)
    new_theta = theta + 0.1 * jax.grad(kinetic_energy, 1)(theta, new_r)

    sampler = family.bind(weights, posterior)
    state = sampler.init(jax.random.key(1), theta)._replace(momentum=r, step=jnp.ones((), jnp.int32))
    state, _ = jax.jit(sampler.step)(jax.random.key(2), state, batch)
    np.testing.assert_allclose(state.momentum, new_r, atol=1e-5)
    np.testing.assert_allclose(state.position, new_theta, atol=1e-5)
    assert np.max(np.abs(by_theta)) > 0.05


def test_kinetic_l2e_in_the_papers_form_is_the_printed_update():
    settings = {"step_size": 0.1, "friction": 0.7, "temperature": 0.0, "output_scale": 0.5}
    family = roamax.kinetic_l2e_family(**settings, form="paper")
    weights, posterior, batch = family.init(jax.random.key(0)), quartic_posterior(), jnp.asarray([1.0, 2.0])
    theta, r = random_tree(0)["matrix"], random_tree(1)["matrix"]
    gradient = jax.grad(posterior.energy)(theta, batch)

    def f(theta):
        return 0.5 * mlp_on(weights, [normalised(theta), normalised(gradient / NUM_DATA)])[0]

    half_square = jax.grad(lambda theta: 0.5 * jnp.sum(f(theta) ** 2))(theta)  # f grad f
    sampler = family.bind(weights, posterior)
    state = sampler.init(jax.random.key(1), theta)._replace(momentum=r, step=jnp.ones((), jnp.int32))
    state, _ = jax.jit(sampler.step)(jax.random.key(2), state, batch)
    expected = r - 0.1 * (gradient + half_square + 0.7 * (r - f(theta)))
    np.testing.assert_allclose(state.momentum, expected, atol=1e-5)
    np.testing.assert_allclose(state.position, theta + 0.1 * (r - f(theta)), atol=1e-5)
    assert np.max(np.abs(half_square)) > 0.01
    with pytest.raises(InputError, match="`form` must be a known name; got 'printed': known: consistent, paper"):
        roamax.kinetic_l2e_family(**settings, form="printed")


def check_recipe_step(sampler, diagonals, theta, r, batch, noise_key, step_key, signs=None):
    """Compare a step with the recipe's, in which Gamma is read off whole Jacobians of `diagonals(theta, r)`.

    With `signs`, the diagonal of a Jacobian J is estimated as signs * (J @ signs).
    """
    epsilon, temperature, posterior = 0.1, 0.8, quartic_posterior()

    def diagonal(jacobian):
        square = jacobian.reshape(theta.size, theta.size)
        found = jnp.diag(square) if signs is None else signs.reshape(-1) * (square @ signs.reshape(-1))
        return found.reshape(theta.shape)

    @jax.jit
    def expected():
        q, d = diagonals(theta, r)
        q_by_theta, _ = map(diagonal, jax.jacfwd(diagonals, 0)(theta, r))
        q_by_r, d_by_r = map(diagonal, jax.jacfwd(diagonals, 1)(theta, r))
        noise = jnp.sqrt(2 * d * epsilon * temperature) * trees.normal_like(noise_key, theta)
        force = q * jax.grad(posterior.energy)(theta, batch) + d * r - temperature * (q_by_theta + d_by_r)
        new_r = r - epsilon * force + noise
        return new_r, theta + epsilon * (q * new_r - temperature * q_by_r), (q_by_theta, q_by_r, d_by_r)

    new_r, new_theta, slopes = expected()
    state = sampler.init(jax.random.key(1), theta)._replace(momentum=r)
    state, _ = jax.jit(sampler.step)(step_key, state, batch)
    np.testing.assert_allclose(state.momentum, new_r, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(state.position, new_theta, rtol=1e-4, atol=1e-4)
    assert all(np.max(np.abs(slope)) > 0.01 for slope in slopes)


@pytest.mark.parametrize("gamma", ["autodiff", "finite_difference"])
def test_meta_sgmcmc_has_the_whole_correction(gamma, float64):
    family = roamax.meta_sgmcmc_family(step_size=0.1, temperature=0.8, d_clip=0.5, gamma=gamma)
    weights, posterior, batch = family.init(jax.random.key(1)), quartic_posterior(), jnp.asarray([1.0, 2.0])
    theta, r = (random_tree(seed)["cube"].astype(float) for seed in (0, 1))

    def diagonals(theta, r):
        energy, gradient = posterior.energy_and_grad(theta, batch)
        mean_energy = jnp.full(theta.shape, energy / NUM_DATA)
        (q,) = mlp_on(weights["q"], [mean_energy, normalised(r)])
        (d,) = mlp_on(weights["d"], [mean_energy, normalised(r), normalised(gradient / NUM_DATA)])
        return jnp.clip(q, -5, 5), jnp.minimum(jnp.abs(d), 0.5)

    check_recipe_step(family.bind(weights, posterior), diagonals, theta, r, batch, jax.random.key(2), jax.random.key(2))


def test_precond_l2e_has_the_whole_correction(float64):
    family = roamax.precond_l2e_family(step_size=0.1, friction=0.7, temperature=0.8, output_scale=0.5, decays=(0.3,))
    weights, posterior, batch = family.init(jax.random.key(1)), quartic_posterior(), jnp.asarray([1.0, 2.0])
    theta, r = (random_tree(seed)["cube"].astype(float) for seed in (0, 1))

    def diagonals(theta, r):
        gradient = jax.grad(posterior.energy)(theta, batch) / NUM_DATA
        q, d = mlp_on(weights, [normalised(x) for x in (gradient, theta, r, 0.7 * gradient)])
        return 1 + 0.5 * q, jnp.abs(0.7 + 0.5 * d)

    key = jax.random.key(2)
    noise_key, sign_key = jax.random.split(key)
    signs = jnp.sign(trees.normal_like(sign_key, theta))
    check_recipe_step(family.bind(weights, posterior), diagonals, theta, r, batch, noise_key, key, signs)


def without_gamma(key, position, momentum, gradient, matrices, epsilon, temperature):
    nothing = trees.zeros_like(position)
    matrices = matrices._replace(gamma_theta=nothing, gamma_r=nothing)
    return recipe_step(key, position, momentum, gradient, matrices, epsilon, temperature)


def test_kinetic_l2e_keeps_a_gaussian_with_random_weights_if_it_follows_the_gradient():
    settings = {"step_size": 0.05, "friction": 1.0, "output_scale": 1.0}
    assert long_run_error(random_member(roamax.kinetic_l2e_family(**settings, differentiate_gradient=True))) < 0.04
    assert long_run_error(random_member(roamax.kinetic_l2e_family(**settings)), FEW) > 0.1


def test_precond_l2e_keeps_a_gaussian_with_random_weights_and_needs_gamma_for_it(monkeypatch):
    family = roamax.precond_l2e_family(step_size=0.05, friction=1.0, output_scale=0.5, decays=())
    assert long_run_error(random_member(family)) < 0.03
    monkeypatch.setattr(precond_l2e, "recipe_step", without_gamma)
    assert long_run_error(random_member(family), FEW) > 0.1


def test_meta_sgmcmc_keeps_a_gaussian_with_random_weights_and_needs_gamma_for_it(monkeypatch):
    family = roamax.meta_sgmcmc_family(step_size=0.05)
    assert long_run_error(random_member(family)) < 0.08
    monkeypatch.setattr(meta_sgmcmc, "recipe_step", without_gamma)
    assert long_run_error(random_member(family), FEW) > 0.5


@pytest.mark.optimized
@pytest.mark.parametrize("size", [1, 2])
def test_meta_sgmcmc_keeps_a_gaussian_on_tiny_tensors(size):
    """Normalised, the momentum of one number is its sign: the mean was off by .9 deviations, the variance 2.4."""
    posterior = roamax.Posterior(lambda params, batch: 0 * batch, lambda params: -0.5 * jnp.sum((params - 0.5) ** 2), 1)
    sampler = random_member(roamax.meta_sgmcmc_family(step_size=0.05))(posterior)

    def chain(key):
        start, step_key = jax.random.split(key)
        state = sampler.init(start, 0.5 + jax.random.normal(key, (size,)))

        def step(state, number):
            state, _ = sampler.step(jax.random.fold_in(step_key, number), state, jnp.zeros(1))
            return state, state.position

        return jax.lax.scan(step, state, jnp.arange(600))[1][200::10]

    errors = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 1024)), float) - 0.5
    assert abs(errors.mean()) < 0.05
    assert abs((errors**2).mean() - 1) < 0.06


def test_stationarity_sees_that_random_weights_of_l2e_miss_the_target():
    def make(posterior):
        return roamax.l2e(
            posterior, _network.init_mlp(jax.random.key(0), WIDTHS), step_size=0.1, friction=1.0, output_scale=1.0
        )

    settings = {"covariance": np.diag([1.0, 2.0]), "num_steps": 1000, "burn_in": 200}
    biased = diagnostics.stationarity(make, jax.random.key(0), **settings)
    right = diagnostics.stationarity(lambda p: sghmc(p, step_size=0.1, friction=1.0), jax.random.key(0), **settings)
    assert max(biased["mean_error"], biased["covariance_error"]) > 0.5
    assert max(right["mean_error"], right["covariance_error"]) < 0.2
    assert 0.9 < right["variance_ratio"] < 1.1
    assert 0 < right["monte_carlo_error"] < 0.1


def write_weights(folder, weights, card=None, name="mine"):
    path = folder / f"{name}.safetensors"
    tensors = {name.replace("/", "."): np.asarray(leaf) for name, leaf in trees.named_leaves(weights).items()}
    files.write_bytes(path, files.pack_tensors(tensors))
    if card is not None:
        files.write_json(path.with_suffix(".json"), card)
    return path


def test_weights_from_a_file_bring_the_settings_of_their_card(tmp_path):
    weights, posterior = _network.init_mlp(jax.random.key(0), WIDTHS), quartic_posterior()
    path = write_weights(tmp_path, weights, {"step_size": 0.02, "friction": 0.3, "output_scale": 0.1})
    from_file = roamax.l2e(posterior, path, friction=0.4).settings
    given = roamax.l2e(posterior, weights, step_size=0.02, friction=0.4, output_scale=0.1).settings
    assert from_file == given
    assert json.loads(json.dumps(given)) == given
    assert roamax.l2e(posterior, str(path)).settings["friction"] == 0.3
    assert roamax.l2e(posterior, weights).settings["output_scale"] == 1e-3
    assert roamax.l2e(posterior, pretrained.read(path), friction=0.4).settings == given


def settings_of(sampler):
    """Settings without a default."""
    return {"cycle_length": 2000} if sampler == "roam" else {}


def test_a_kernel_reads_no_files():
    for name in ("l2e", "kinetic_l2e", "precond_l2e", "meta_sgmcmc", "roam"):
        with pytest.raises(InputError, match=r"`meta_params` must be weights here; .*; got 'pretrained'"):
            RECORDS[name].load()(quartic_posterior(), **settings_of(name))


def test_kinetic_weights_are_used_in_the_form_of_their_training(tmp_path):
    family = roamax.kinetic_l2e_family(step_size=0.1, friction=0.1)
    card = {"sampler": "kinetic_l2e", "form": "paper"}
    path = write_weights(tmp_path, family.init(jax.random.key(0)), card)
    posterior = quartic_posterior()
    assert roamax.kinetic_l2e(posterior, path).settings["form"] == "paper"
    assert "form" not in roamax.kinetic_l2e(posterior, path, form="consistent").settings
    assert "form" not in roamax.kinetic_l2e(posterior).settings


def test_every_set_of_weights_that_ships_works_by_name_and_has_a_card():
    for name in pretrained.names():
        card = pretrained.load(name).card
        assert {"sampler", "data", "architectures", "estimator", "seed", "meta_loss", "date", "version"} <= card.keys()
        assert {"temperature", "inner_steps", "outer_steps"} <= card.keys()
        assert "step_size" in card or card["sampler"] == "roam"
    with pytest.raises(InputError, match="`name` must be a known name; got 'nosuch'"):
        pretrained.load("nosuch")


def test_the_page_of_a_card_and_what_it_says_of_training_and_spread_are_those_of_their_sources():
    record = files.read_json(ROOT / "docs" / "bias.json")
    spreads = {bias.label_of(row["sampler"]): row["deviation"] for row in record["rows"] if row["target"] == "network"}
    assert (ROOT / "docs" / "bias.md").read_text() == bias.page(record)
    for name in pretrained.names():
        card = pretrained.load(name).card
        assert (pretrained.FOLDER / f"{name}.md").read_text() == cards.page(name, card)
        assert card["spread"] == spreads[name]
        trained = [f"{data}/{model}" for data in card["data"] for model in card["architectures"]]
        sizes = {int(re.search(r"train_size=(\d+)", task)[1]) for task in trained}
        assert card["num_data"] == [min(sizes), max(sizes)]
        assert card["kinds"] == ["classification", "regression"][: 1 + (name == "roam")]


def with_gap(num_data=85):
    """The posterior of a regression, as on a sine with a gap."""
    log_likelihood = roamax.gaussian(lambda params, x: (jnp.sin(x @ params), 0.1))
    return roamax.Posterior(log_likelihood, roamax.priors.gaussian(variance=1.0), num_data)


def test_weights_that_act_as_an_optimiser_warn_of_a_problem_far_from_their_card():
    image_like = dataclasses.replace(with_gap(50_000), log_likelihood=roamax.categorical(lambda p, x: x @ p))
    for name in pretrained.names():
        weights = pretrained.load(name)
        build = getattr(roamax, weights.card["sampler"])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            settings = settings_of(weights.card["sampler"])
            build(image_like, weights, **settings)
            assert not said
            build(with_gap(), weights, **settings)
        narrow = name in ("kinetic-l2e-paper", "l2e", "l2e-ce", "l2e-paper", "l2e-small")
        assert [(w.category, w.filename) for w in said] == [(CardWarning, __file__)] * narrow
    with pytest.warns(CardWarning, match=r"^85 examples and regression: .* 'l2e' \(classification with 50,000 "):
        roamax.l2e(with_gap())
    with pytest.warns(CardWarning, match=r"^Regression: .* use roamax.sghmc or roamax.nuts there"):
        roamax.l2e(with_gap(50_000))
    with pytest.warns(CardWarning, match=r"^4,999 examples: "):
        roamax.l2e(dataclasses.replace(image_like, num_data=4_999))
    # What the card does not tell is not held against the weights; what was never measured is.
    shipped = pretrained.load("l2e")
    told = {"step_size": 0.01, "num_data": [5000, 5000]}
    with pytest.warns(CardWarning, match="not been measured"):
        roamax.l2e(with_gap(), Weights(shipped.meta_params, told))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        roamax.l2e(with_gap(), Weights(shipped.meta_params, told | {"spread": 0.9}))
        roamax.l2e(with_gap(), Weights(shipped.meta_params, {"step_size": 0.01}))


def test_a_fit_and_a_command_say_it_once(capsys, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "sample", stop)
    with pytest.warns(CardWarning, match=r"^16 examples: ") as said, pytest.raises(KeyboardInterrupt):
        roamax.BayesianClassifier(sampler="l2e", num_chains=2).fit(np.eye(16), np.arange(16) % 2)
    assert len(said) == 1
    for warning in said:
        print_warning(warning.message, warning.category, warning.filename, warning.lineno)
        print_warning(warning.message, warning.category, "another.py", 1, file=None, line=None)
    assert capsys.readouterr().err == f"roamax: CardWarning: {said[0].message}\n"


def test_a_sampler_finds_the_weights_that_ship_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    write_weights(tmp_path, roamax.kinetic_l2e_family(step_size=0.1, friction=0.1).init(jax.random.key(0)),
                  {"step_size": 0.02}, "kinetic-l2e")  # fmt: skip
    assert roamax.kinetic_l2e(quartic_posterior()).settings["step_size"] == 0.02


def test_bad_weights_are_named_in_one_line(tmp_path, monkeypatch):
    weights, posterior = _network.init_mlp(jax.random.key(0), WIDTHS), quartic_posterior()
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    with pytest.raises(InputError, match="no weights of kinetic_l2e ship with this version yet; got 'pretrained'"):
        roamax.kinetic_l2e(posterior)
    with pytest.raises(FileError, match=r"nosuch\.safetensors could not be read"):
        roamax.l2e(posterior, tmp_path / "nosuch.safetensors")
    path = write_weights(tmp_path, {**weights, "layer2": {"w": np.zeros((32, 3)), "b": np.zeros(2)}})
    with pytest.raises(
        InputError, match=r"mine\.safetensors` must hold layer2/w of shape \(32, 2\); got shape \(32, 3\)"
    ):
        roamax.l2e(posterior, path)
    path = write_weights(tmp_path, {**weights, "layer2": {"w": np.full((32, 2), np.nan), "b": np.zeros(2)}})
    with pytest.raises(InputError, match=r"mine\.safetensors` must be finite; got NaN or infinity in layer2/w"):
        roamax.l2e(posterior, path)
    with pytest.raises(InputError, match="`meta_params` must hold layer0/b"):
        roamax.l2e(posterior, {"layer0": weights["layer0"]})
    with pytest.raises(InputError, match="`meta_params` must hold two networks, d and q; got layer0"):
        roamax.meta_sgmcmc(posterior, {"layer0": weights["layer0"]})


def momentum_families(temperature):
    settings = {"step_size": 0.1, "friction": 0.5, "temperature": temperature}
    return {
        "sghmc": lambda posterior: roamax.sghmc(posterior, **settings),
        "cyclical": lambda posterior: roamax.cyclical(posterior, **settings, cycle_length=10, exploration_ratio=0),
        "l2e": roamax.l2e_family(**settings),
        "kinetic_l2e": roamax.kinetic_l2e_family(**settings),
        "precond_l2e": roamax.precond_l2e_family(**settings),
        "meta_sgmcmc": roamax.meta_sgmcmc_family(step_size=0.1, temperature=temperature),
    }


@pytest.mark.parametrize("name", list(momentum_families(1.0)))
def test_momentum_starts_from_its_stationary_law(name):
    posterior, theta = quartic_posterior(), {"a": jnp.zeros((64, 64)), "b": jnp.zeros(1000)}

    def momentum(key, temperature):
        make = momentum_families(temperature)[name]
        sampler = make(posterior) if callable(make) else make.bind(make.init(jax.random.key(0)), posterior)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(sampler.init(key, theta).momentum)])

    drawn = momentum(jax.random.key(1), 2.0)
    drawn = drawn[drawn != 0]
    assert len(drawn) == trees.size(theta)  # Filling stays 0.
    assert abs(np.mean(drawn**2) - 2) < 0.15
    assert abs(np.mean(drawn)) < 0.1
    assert not np.array_equal(momentum(jax.random.key(1), 1.0), momentum(jax.random.key(2), 1.0))
    assert not momentum(jax.random.key(1), 0.0).any()


def test_kinetic_l2e_starts_around_its_mean():
    posterior = roamax.Posterior(lambda params, batch: 0 * batch, lambda params: 0 * jnp.sum(params), num_data=4)
    family = roamax.kinetic_l2e_family(step_size=0.1, friction=0.5, temperature=0.0, output_scale=1.0)
    sampler, theta = family.bind(family.init(jax.random.key(0)), posterior), jax.random.normal(jax.random.key(1), (5,))
    state, _ = sampler.step(jax.random.key(2), sampler.init(jax.random.key(3), theta), jnp.zeros(2))
    np.testing.assert_allclose(state.position, theta, atol=1e-6)
    assert np.max(np.abs(state.momentum)) > 0.05
