"""Geometry between draws on functions whose landscape is known, and the motion of a sampler as `sample` makes it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cosine

from roamax import priors
from roamax.errors import InputError
from roamax.evaluation import landscape
from roamax.host import files
from roamax.likelihoods import categorical
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.samplers.learned import _network
from roamax.samplers.learned.l2e import DECAYS, WIDTHS
from roamax.samplers.sghmc import sghmc
from roamax.sampling import batches
from roamax.sampling.draws import Draws
from roamax.sampling.runner import sample


def linear(params, x):
    return x @ params["w"] + params["b"][None]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3)).astype(np.float32)
    return x, np.argmax(x @ rng.normal(size=(3, 2)), axis=1).astype(np.uint8)


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(1)
    return {"w": rng.normal(size=(2, 3, 3, 2)).astype(np.float32), "b": rng.normal(size=(2, 3, 2)).astype(np.float32)}


def scores(params, data):
    x, y = data
    logits = x.astype(np.float64) @ params["w"] + params["b"]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.mean(logits.argmax(-1) != y), -np.mean(log_probs[np.arange(len(y)), y])


def test_cosine_similarity_matches_scipy_and_counts_chain_by_chain(draws):
    rows = np.concatenate([draws["b"].reshape(6, -1), draws["w"].reshape(6, -1)], axis=1)
    expected = [[1 - cosine(a, b) for b in rows] for a in rows]
    np.testing.assert_allclose(landscape.cosine_similarity(Draws.from_positions(draws)), expected, atol=1e-6)


def test_plane_goes_through_its_three_positions_in_an_orthonormal_basis(draws):
    corners = [jax.tree.map(lambda leaf, i=i: leaf[0, i], draws) for i in range(3)]
    through = landscape.plane(*corners)
    for corner, (a, b) in zip(corners, through.points, strict=True):
        jax.tree.map(lambda p, c: np.testing.assert_allclose(p, c, atol=1e-5), through.at(a, b), corner)
    u, v = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(axis)]) for axis in (through.u, through.v))
    np.testing.assert_allclose([u @ u, v @ v, u @ v], [1, 1, 0], atol=1e-6)
    assert through.points[1, 1] == 0


def test_error_surface_is_the_error_at_each_position_of_the_grid(draws, data):
    through = landscape.plane(*(jax.tree.map(lambda leaf, i=i: leaf[1, i], draws) for i in range(3)))
    surface = landscape.error_surface(linear, through, data, resolution=4, margin=0.5, batch_size=64)
    assert surface.error.shape == surface.nll.shape == (4, 4)
    for i, j in ((0, 0), (1, 3), (3, 2)):
        expected = scores(through.at(surface.a[j], surface.b[i]), data)
        np.testing.assert_allclose((surface.error[i, j], surface.nll[i, j]), expected, rtol=1e-4)
    low, high = through.points.min(0), through.points.max(0)
    np.testing.assert_allclose(
        [surface.a[0], surface.b[-1]], [1.5 * low[0] - 0.5 * high[0], 1.5 * high[1] - 0.5 * low[1]]
    )


def test_segments_start_and_end_at_their_draws(draws, data):
    found = landscape.error_segments(linear, draws, data, pairs=[(0, 4), (5, 1)], resolution=3)
    flat = jax.tree.map(lambda leaf: leaf.reshape(6, *leaf.shape[2:]), draws)
    for row, (i, j) in enumerate(found.pairs):
        start, end = ({name: leaf[k] for name, leaf in flat.items()} for k in (i, j))
        middle = jax.tree.map(lambda s, e: (s + e) / 2, start, end)
        for column, params in enumerate((start, middle, end)):
            expected = scores(params, data)
            np.testing.assert_allclose((found.error[row, column], found.nll[row, column]), expected, rtol=1e-4)


def test_barrier_stands_between_permuted_modes_and_not_within_one(data):
    # Swapping the two hidden units changes no output, but half-way both look along the useless direction.
    def apply(params, x):
        return jnp.tanh(x @ params["w"]) @ params["v"]

    x, y = data
    useful = np.linalg.lstsq(x, 2.0 * y - 1, rcond=None)[0]
    useless = 20 * np.cross(useful, [1.0, 0.0, 0.0])
    one = {
        "w": np.stack([5 * useful, useless], axis=1).astype(np.float32),
        "v": np.array([[-3.0, 3.0], [0.0, 0.0]], np.float32),
    }
    near = jax.tree.map(lambda leaf: 1.1 * leaf, one)
    swapped = {"w": one["w"][:, ::-1], "v": one["v"][::-1]}
    positions = jax.tree.map(lambda *leaves: np.stack(leaves)[None], one, near, swapped)
    found = landscape.error_segments(apply, positions, data, resolution=11)
    np.testing.assert_array_equal(found.pairs, [[0, 1], [1, 2]])
    np.testing.assert_allclose(found.error[1, -1], found.error[0, 0])
    np.testing.assert_allclose(found.error_barrier[0], 0, atol=0.02)
    assert found.error_barrier[1] > 0.2
    assert found.nll_barrier[1] > 0.2 > 0.05 > found.nll_barrier[0]


def test_barrier_is_the_rise_over_the_chord():
    np.testing.assert_allclose(landscape.barrier(np.array([[0, 3, 2], [0, 1, 2], [4, 0, 0.0]])), [2, 0, 0])


def test_a_dead_network_is_wrong_wherever_a_guess_is(data):
    zero = {"w": np.zeros((1, 2, 3, 2), np.float32), "b": np.zeros((1, 2, 2), np.float32)}
    found = landscape.error_segments(linear, zero, data, resolution=3)
    np.testing.assert_allclose(found.error, np.mean(data[1] != 0))
    found = landscape.error_segments(lambda p, x: linear(p, x) * jnp.nan, zero, data, resolution=3)
    np.testing.assert_array_equal(found.error, np.ones((1, 3)))


@pytest.mark.parametrize("batch_size", [None, 30])
def test_step_norms_are_those_of_the_chain_that_sample_runs(batch_size, data, monkeypatch):
    monkeypatch.setattr(batches, "WINDOW_INDICES", 2 * len(data[1]))  # windows of two epochs, 10 steps of 30
    data = jax.tree.map(lambda array: array.astype(np.int32) if array.dtype == np.uint8 else array, data)
    posterior = Posterior(categorical(linear), priors.gaussian(variance=1.0), num_data=150)
    sampler = sghmc(posterior, step_size=0.01, friction=5.0)
    start = {"w": jnp.zeros((3, 2)), "b": jnp.ones((2,))}
    key, steps = jax.random.key(3), 12
    found = landscape.step_norms(key, sampler, posterior, start, data, num_steps=steps, batch_size=batch_size)
    chain = sample(key, sampler, start, data, batch_size=batch_size, num_samples=steps, progress=False).positions
    path = jax.tree.map(lambda first, leaf: np.concatenate([first[None], leaf[0]]), start, chain)
    expected = sum(np.square(np.diff(leaf, axis=0)).reshape(steps, -1).sum(1) for leaf in jax.tree.leaves(path))
    np.testing.assert_allclose(found.squared_norm, expected, rtol=1e-3)
    assert expected.min() > 0
    if batch_size is None:
        nll = [scores(jax.tree.map(lambda leaf, i=i: leaf[i], path), data)[1] for i in range(steps)]
        np.testing.assert_allclose(found.nll, nll, rtol=1e-4)


def test_network_contours_are_the_network_with_averages_equal_to_the_gradient(tmp_path):
    weights = _network.init_mlp(jax.random.key(0), WIDTHS)
    grid = {"limit": 2.0, "resolution": 5, "parameters": (0.5,), "momenta": (-1.0, 1.0)}
    found = landscape.network_contours(weights, **grid)
    assert found.gradient_momentum.alpha.shape == (1, 5, 5)
    assert found.parameter_gradient.beta.shape == (2, 5, 5)

    def magnitudes(gradient, parameter, momentum):
        hidden = np.array([gradient, parameter, momentum] + [gradient] * len(DECAYS))
        for i in range(3):
            layer = jax.tree.map(np.asarray, weights[f"layer{i}"])
            hidden = (hidden if i == 0 else np.maximum(hidden, 0)) @ layer["w"] + layer["b"]
        return np.abs(1e-3 * hidden)

    alpha, beta = magnitudes(gradient=found.axis[1], parameter=0.5, momentum=found.axis[4])
    np.testing.assert_allclose(found.gradient_momentum.alpha[0, 1, 4], alpha, rtol=1e-5)
    np.testing.assert_allclose(found.gradient_momentum.beta[0, 1, 4], beta, rtol=1e-5)
    alpha, beta = magnitudes(gradient=found.axis[3], parameter=found.axis[0], momentum=1.0)
    np.testing.assert_allclose(found.parameter_gradient.alpha[1, 0, 3], alpha, rtol=1e-5)
    np.testing.assert_allclose(found.parameter_gradient.beta[1, 0, 3], beta, rtol=1e-5)

    flat = {name.replace("/", "."): np.asarray(leaf) for name, leaf in trees.named_leaves(weights).items()}
    files.write_bytes(tmp_path / "mine.safetensors", files.pack_tensors(flat))
    files.write_json(tmp_path / "mine.json", {"output_scale": 2e-3})
    doubled = landscape.network_contours(tmp_path / "mine.safetensors", **grid)
    np.testing.assert_allclose(doubled.gradient_momentum.alpha, 2 * found.gradient_momentum.alpha, rtol=1e-5)


POINT = {"w": np.array([1.0, 2.0])}
OTHER = {"w": np.array([3.0, 2.0])}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: landscape.plane(POINT, POINT, OTHER), "`second` must differ from `first`; got the same position."),
        (lambda: landscape.plane(POINT, OTHER, {"w": np.array([9.0, 2.0])}), "`third` must lie off the line"),
        (lambda: landscape.cosine_similarity(np.zeros((1, 2, 3))), "`draws` must be different from zero"),
        (
            lambda: landscape.error_segments(linear, np.ones((1, 1, 2)), None),
            "`draws` must hold at least 2 draws; got 1.",
        ),
        (
            lambda: landscape.error_segments(linear, np.ones((1, 3, 2)), (np.ones((1, 1)), [0]), pairs=[(0, 3)]),
            "`pairs` must name draws 0 to 2; got (0, 3).",
        ),
        (
            lambda: landscape.error_segments(linear, np.ones((1, 3, 2)), (np.ones((1, 1)), [0.0])),
            "`data` must be (x, y) with whole-number labels; got dtype float64.",
        ),
        (lambda: landscape.network_contours({"layer0": {}}), "`meta_params` must hold layer0/b"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
