"""The zoo against formulas worked out by hand, and adapters against the libraries they adapt."""

import subprocess
import sys

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from roamax import models
from roamax.errors import InputError
from roamax.models.cnn_lstm import LSTM, Conv1D
from roamax.models.resnet_frn import FilterResponseNorm
from roamax.numerics import trees

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 10, 10, 3), dtype=np.uint8)
TOKENS = np.random.default_rng(0).integers(1, 30, (3, 20), dtype=np.int32)
SMALL = {
    "mlp": {"hidden": [7, 5]},
    "mlp_regression": {"hidden": [7]},
    "mlp_heteroscedastic": {"hidden": [7]},
    "cnn": {"channels": 2, "depth": 2, "residual": True},
    "cnn_fashion": {},
    "cnn_cifar": {},
    "cnn_pooled": {"channels": 2, "hidden": 5},
    "resnet8_frn": {"width": 2},
    "resnet20_frn": {"width": 1},
    "resnet56_frn": {"width": 1},
    "cnn_lstm": {"vocabulary": 30, "embedding": 4, "filters": 3, "units": 5},
}


def inputs_of(name):
    return TOKENS if name == "cnn_lstm" else IMAGES


def random_params(model, x):
    """Parameters away from the zeros and ones that some start at; from NumPy, because there is nothing to compile."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda key: model.init(key, x), KEY)
    return jax.tree.map(lambda leaf: (0.4 * rng.normal(size=leaf.shape)).astype(leaf.dtype), shapes)


def run(model, params, x):
    return jax.jit(model.apply)(params, x)


def test_every_model_has_a_row_in_these_tests():
    assert set(SMALL) == set(models.names())


@pytest.mark.parametrize(
    ("name", "options", "shape", "count"),
    [
        # Izmailov et al. (2021) give 274,042; He et al. (2016) 0.27 and 0.85 million for the plain kind.
        ("resnet20_frn", {}, (32, 32, 3), 274_042),
        ("resnet56_frn", {}, (32, 32, 3), 860_026),
        # The counts in the code of Gong et al. (2018).
        ("mlp", {"hidden": (20,)}, (28, 28), 15_910),
        ("cnn_pooled", {"channels": 8, "hidden": 50}, (32, 32, 3), 15_768),
        ("cnn_pooled", {}, (32, 32, 3), 61_478),
        ("cnn_fashion", {}, (28, 28), 16 * 10 + (14 * 14 * 16 + 1) * 20 + 21 * 10),
        ("mlp_regression", {}, (1,), 200 + 101 * 100 + 101 + 1),
        ("cnn_lstm", {}, (100,), 20_000 * 128 + (5 * 128 + 1) * 64 + (64 + 70 + 1) * 4 * 70 + 71 * 2),
    ],
)
def test_parameter_counts(name, options, shape, count):
    model = models.get(name, **options)
    x = jax.ShapeDtypeStruct((1, *shape), jnp.int32 if name == "cnn_lstm" else jnp.uint8)
    params = jax.eval_shape(lambda key: model.init(key, jnp.zeros(x.shape, x.dtype)), KEY)
    assert trees.size(params) == count


# Deeper ResNets are the same code, and the counts above have traced them.
@pytest.mark.parametrize("name", [name for name in SMALL if name not in ("resnet20_frn", "resnet56_frn")])
def test_a_model_is_two_pure_functions_on_plain_dictionaries(name):
    model, x = models.get(name, **SMALL[name]), inputs_of(name)

    def total(params, x):
        output = model.apply(params, x)
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(output)), output

    params = random_params(model, x[:1])
    again = trees.from_named_leaves(trees.named_leaves(params))
    assert jax.tree.structure(again) == jax.tree.structure(params)
    (_, output), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(params, x)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, output))} == {jnp.dtype("float32")}
    assert all(np.any(leaf) for leaf in jax.tree.leaves(grads))
    # One example does not see the others in its batch.
    for one, all_of_them in zip(jax.tree.leaves(run(model, params, x[1:2])), jax.tree.leaves(output), strict=True):
        np.testing.assert_allclose(one, all_of_them[1:2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "cnn", "cnn_pooled", "resnet8_frn", "cnn_lstm", "mlp_regression"])
def test_double_precision_parameters_compute_in_double_precision(name, float64):
    model, x = models.get(name, **SMALL[name]), inputs_of(name)
    params = jax.eval_shape(lambda key: model.init(key, x[:1]), KEY)
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float64), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(model.apply, params, x))} == {jnp.dtype("float64")}


def test_new_parameters_have_the_precision_of_the_inputs(float64):
    model = models.get("mlp", hidden=(4,))
    for dtype, expected in ((np.uint8, "float32"), (np.float32, "float32"), (np.float64, "float64")):
        params = jax.eval_shape(lambda key, dtype=dtype: model.init(key, np.zeros((1, 3), dtype)), KEY)
        assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {expected}


def test_bytes_are_scaled_and_floats_are_not():
    model = models.get("mlp", hidden=())
    params = random_params(model, IMAGES)
    expected = run(model, params, IMAGES.astype(np.float32) / 255)
    np.testing.assert_allclose(run(model, params, IMAGES), expected, rtol=1e-4, atol=1e-5)
    assert np.any(np.abs(run(model, params, IMAGES.astype(np.float32)) - expected) > 1)


def test_grey_images_need_no_channel_axis():
    model = models.get("cnn", channels=2)
    params = random_params(model, IMAGES[..., 0])
    np.testing.assert_array_equal(run(model, params, IMAGES[..., 0]), run(model, params, IMAGES[..., :1]))
    with pytest.raises(InputError, match=r"`x` must hold images .*; got \(64,\)\."):
        model.init(KEY, np.zeros((1, 64), np.float32))
    with pytest.raises(InputError, match=r"`x` must hold images of at least 10 by 10; got \(9, 12\)\."):
        models.get("cnn_pooled").init(KEY, np.zeros((1, 9, 12), np.float32))


def test_the_same_options_give_the_same_functions():
    chosen = models.get("cnn", channels=4, depth=1)
    assert models.get("cnn", depth=1, channels=4, residual=False) is chosen
    assert models.get("mlp", hidden=[3, 4]) is models.get("mlp", hidden=(3, 4))
    assert models.get("cnn", channels=8) is not chosen


def conv(x, layer, stride=1, padding="SAME"):
    layout = ("NHWC", "HWIO", "NHWC")
    convolved = jax.lax.conv_general_dilated(x, layer["kernel"], (stride, stride), padding, dimension_numbers=layout)
    return convolved + layer["bias"].reshape(1, 1, 1, -1)


def dense(x, layer):
    return x @ layer["kernel"] + layer["bias"].reshape(1, -1)


def pool(x):
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


def check_by_hand(model, by_hand):
    params = random_params(model, IMAGES)
    expected = jax.jit(by_hand)(params, IMAGES.astype(np.float32) / 255)
    np.testing.assert_allclose(run(model, params, IMAGES), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("residual", [False, True])
def test_cnn_is_what_the_paper_describes(residual):
    def by_hand(params, x):
        h = jnp.maximum(conv(x, params["conv0"]), 0.0)
        h = conv(h, params["conv1"]) + (conv(x, params["shortcut"]) if residual else 0.0)
        h = pool(jnp.maximum(h, 0.0)).reshape(3, -1)
        return dense(dense(h, params["bottleneck"]), params["output"])

    check_by_hand(models.get("cnn", num_classes=4, channels=3, depth=2, residual=residual, bottleneck=6), by_hand)


def test_pooled_cnn_is_unpadded():
    def by_hand(params, x):
        for layer in ("conv0", "conv1"):
            x = pool(jnp.maximum(conv(x, params[layer], padding="VALID"), 0.0))
        return dense(jnp.maximum(dense(x.reshape(3, -1), params["hidden"]), 0.0), params["output"])

    check_by_hand(models.get("cnn_pooled", channels=2, hidden=5), by_hand)


def test_resnet_is_the_one_that_hmc_was_run_on():
    def layer(x, params, name, stride=1):
        x, norm = conv(x, params[f"{name}_conv"], stride), params[f"{name}_frn"]
        gamma, beta, tau = (norm[part].reshape(1, 1, 1, -1) for part in ("gamma", "beta", "tau"))
        return jnp.maximum(gamma * x / jnp.sqrt(jnp.mean(x**2, (1, 2), keepdims=True) + 1e-6) + beta, tau)

    def swish(x):
        return x / (1 + jnp.exp(-x))

    def by_hand(params, x):
        x = swish(layer(x, params, "stem"))
        for stage, stride in ((0, 1), (1, 2), (2, 2)):
            name = f"stage{stage}_block0"
            y = layer(swish(layer(x, params, f"{name}_0", stride)), params, f"{name}_1")
            shortcut = layer(x, params, f"{name}_shortcut", stride) if stage > 0 else x
            x = swish(shortcut + y)
        return dense(jnp.mean(x, (1, 2)), params["output"])

    check_by_hand(models.get("resnet8_frn", width=2), by_hand)


def test_activation_is_a_choice():
    params = random_params(models.get("mlp", hidden=(4,)), IMAGES)
    z = IMAGES.reshape(3, -1) / np.float32(255) @ params["hidden0"]["kernel"] + params["hidden0"]["bias"]
    for name, hidden in (("sigmoid", 1 / (1 + np.exp(-z))), ("tanh", np.tanh(z)), ("swish", z / (1 + np.exp(-z)))):
        expected = hidden @ params["output"]["kernel"] + params["output"]["bias"]
        model = models.get("mlp", hidden=(4,), activation=name)
        np.testing.assert_allclose(run(model, params, IMAGES), expected, rtol=1e-4, atol=1e-5)


def test_filter_response_norm_formula():
    x = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)
    norm = models.from_linen(FilterResponseNorm(epsilon=0.1, learn_epsilon=True))
    params = random_params(norm, x)
    square = np.mean(x**2, axis=(1, 2), keepdims=True) + 0.1 + abs(params["epsilon"])
    expected = np.maximum(params["gamma"] * x / np.sqrt(square) + params["beta"], params["tau"])
    np.testing.assert_allclose(run(norm, params, x), expected, rtol=1e-5, atol=1e-6)


def test_regression_gives_a_mean_and_a_scale():
    x = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    fixed = models.get("mlp_regression", hidden=(4,), noise_scale=0.3)
    mean, scale = run(fixed, random_params(fixed, x), x)
    assert mean.shape == (5,)
    np.testing.assert_allclose(scale, np.full(5, 0.3))
    learned = models.get("mlp_regression", hidden=(4,), outputs=2)
    params = {**random_params(learned, x), "log_scale": np.log(np.array([2, 3], np.float32))}
    mean, scale = run(learned, params, x)
    assert mean.shape == (5, 2)
    np.testing.assert_allclose(scale, np.broadcast_to([2.0, 3.0], (5, 2)), rtol=1e-6)


def test_lstm_and_convolution_over_time_match_a_plain_loop():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, 3)).astype(np.float32)
    conv = models.from_linen(Conv1D(4, 3))
    params = random_params(conv, x)
    kernel, bias = params["kernel"], params["bias"]
    expected = np.stack([np.einsum("nkc,kcf->nf", x[:, t : t + 3], kernel) + bias for t in range(4)], axis=1)
    np.testing.assert_allclose(run(conv, params, x), expected, rtol=1e-4, atol=1e-5)

    lstm, present = LSTM(5), np.array([[True] * 6, [True, True, True, False, False, False]])
    shapes = {"kernel": (3, 20), "recurrent_kernel": (5, 20), "bias": (20,)}
    params = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    states = jax.jit(lstm.apply)({"params": params}, x, present)
    for row, steps in ((0, 6), (1, 3)):
        h, c = np.zeros(5), np.zeros(5)
        for t in range(steps):
            i, f, o, g = np.split(x[row, t] @ params["kernel"] + h @ params["recurrent_kernel"] + params["bias"], 4)
            c = c / (1 + np.exp(-f - 1)) + np.tanh(g) / (1 + np.exp(-i))
            h = np.tanh(c) / (1 + np.exp(-o))
        np.testing.assert_allclose(states[row], h, rtol=1e-4, atol=1e-5)


def test_padding_does_not_change_what_a_text_says():
    model = models.get("cnn_lstm", **SMALL["cnn_lstm"])
    params = random_params(model, TOKENS)
    short = np.concatenate([TOKENS, np.zeros((3, 8), np.int32)], axis=1)
    shorter = np.concatenate([TOKENS, np.zeros((3, 40), np.int32)], axis=1)
    np.testing.assert_allclose(run(model, params, short), run(model, params, shorter), rtol=1e-5, atol=1e-6)
    cut = models.get("cnn_lstm", **SMALL["cnn_lstm"], length=12)
    np.testing.assert_allclose(run(cut, params, TOKENS), run(model, params, TOKENS[:, :12]), rtol=1e-5)
    with pytest.raises(InputError, match="`x` must hold at least 8 words per row; got 7"):
        model.apply(params, TOKENS[:, :7])


class NNXNetwork(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(4, 5, rngs=rngs), nnx.Linear(5, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.dropout(self.norm(jnp.tanh(self.layers[0](x)))))


def nnx_pair():
    original = NNXNetwork(nnx.Rngs(KEY))
    original.eval()
    return models.from_nnx(NNXNetwork), original


def equinox_pair():
    return (
        models.from_equinox(lambda key: eqx.nn.MLP(4, 3, 8, 2, key=key)),
        jax.vmap(eqx.nn.MLP(4, 3, 8, 2, key=KEY)),
    )


class LinenNetwork(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(jnp.tanh(nn.Dense(5)(x)))


def linen_pair():
    variables = LinenNetwork().init(KEY, np.zeros((1, 4), np.float32))
    return models.from_linen(LinenNetwork()), lambda x: LinenNetwork().apply(variables, x)


@pytest.mark.parametrize("pair", [nnx_pair, equinox_pair, linen_pair])
def test_adapted_models_compute_what_the_originals_do(pair):
    model, original = pair()
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    init = jax.jit(lambda key: model.init(key, x))
    params = init(KEY)
    np.testing.assert_allclose(run(model, params, x), original(x), rtol=1e-5, atol=1e-6)
    # Plain dictionaries, which survive being written to disk by the names of their leaves.
    again = trees.from_named_leaves(trees.named_leaves(params))
    assert jax.tree.structure(again) == jax.tree.structure(params)
    assert np.any(run(model, init(jax.random.key(1)), x) != run(model, params, x))
    grads = jax.jit(jax.grad(lambda p: jnp.sum(jnp.square(model.apply(p, x)))))(params)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(grads))


def test_a_linen_module_with_other_state_is_refused():
    model = models.from_linen(nn.BatchNorm(use_running_average=False))
    with pytest.raises(InputError, match="`module` must hold nothing but parameters; got also"):
        model.init(KEY, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet20", {}, "`model` must be a known name; got 'resnet20': did you mean 'resnet20_frn'?"),
        ("cnn", {"chanels": 4}, "`chanels` must be an option of the model 'cnn': did you mean 'channels'?"),
        ("mlp", {"activation": "rel"}, "`activation` must be a known name; got 'rel': did you mean 'relu'?"),
        ("mlp", {"hidden": (3, 0)}, "`hidden` must be a whole number >= 1; got 0."),
        ("mlp", {"num_classes": 1}, "`num_classes` must be a whole number >= 2; got 1."),
        ("mlp_regression", {"noise_scale": 0.0}, "`noise_scale` must be a finite number > 0; got 0.0."),
        ("cnn", {"depth": 1.5}, "`depth` must be a whole number >= 1; got 1.5."),
        ("resnet8_frn", {"width": 0}, "`width` must be a whole number >= 1; got 0."),
        ("cnn_lstm", {"pool": 0}, "`pool` must be a whole number >= 1; got 0."),
    ],
)
def test_bad_choices_are_one_line(name, options, message):
    with pytest.raises(InputError) as error:
        models.get(name, **options)
    assert str(error.value) == message


def test_flax_is_imported_only_for_a_model():
    code = "import sys, roamax.models, roamax.tasks; sys.exit('flax' in sys.modules or 'equinox' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
