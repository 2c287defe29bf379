"""Learned samplers: their equations, what they guarantee, and their weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roamax import Posterior
from roamax.samplers import networks
from roamax.samplers.l2e import l2e_family

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


@pytest.mark.parametrize("written_out", [False, True], ids=["plain", "written-out"])
@pytest.mark.parametrize("passes", [1, 2])
def test_l2e_is_its_equations(passes, written_out, monkeypatch):
    monkeypatch.setattr(networks, "SMALL", 0 if written_out else 10**9)
    family = l2e_family(
        step_size=STEP_SIZE, friction=FRICTION, temperature=TEMPERATURE, output_scale=OUTPUT_SCALE, passes=passes
    )
    weights = jax.tree.map(lambda w: w + 0.1, family.init(jax.random.key(0)))
    sampler, theta = family.bind(weights, quartic_posterior()), random_tree(1)
    state, step = sampler.init(jax.random.key(2), theta), jax.jit(sampler.step)
    expected = {name: NumpyL2E(weights, leaf, passes) for name, leaf in theta.items()}
    sizes = {name: int(np.prod(shape)) for name, shape in sorted(SHAPES.items())}
    for i in range(4):
        key, batch = jax.random.key(i), jnp.asarray([0.5, 1.0 + i])
        state, _ = step(key, state, batch)
        noise = np.asarray(jax.random.normal(jax.random.fold_in(key, 0), (sum(sizes.values()),)))
        pieces = np.split(noise, np.cumsum(list(sizes.values()))[:-1])
        for name, piece in zip(sizes, pieces, strict=True):
            expected[name].step(batch, piece.reshape(SHAPES[name]))
    for name, reference in expected.items():
        np.testing.assert_allclose(state.position[name], reference.theta, atol=1e-5)
        np.testing.assert_allclose(state.momentum[name], reference.r, atol=1e-5)
        if name != "empty":
            assert np.max(np.abs(reference.theta - theta[name])) > 1e-3
