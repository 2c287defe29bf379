"""The convolution for CPU against XLA's own: values, derivatives of both orders and modes, vmap, and the layer."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.test_util import check_grads

from roamax.errors import InputError
from roamax.host import native
from roamax.models import _conv_products as products
from roamax.models.conv import Conv, conv2d, convolve_and_pool, max_pool2x2

CASES = {
    "first layer, grouped by 2": ((28, 28), (3, 3), 1, 1, 16),
    "colour images, grouped by 4": ((8, 8), (3, 3), 1, 3, 16),
    "narrow, grouped by 4": ((28, 28), (3, 3), 1, 8, 8),
    "odd width, not grouped": ((7, 9), (3, 3), 1, 5, 4),
    "wide": ((6, 6), (3, 3), 1, 32, 24),
    "5x3 window": ((8, 6), (5, 3), 1, 4, 6),
    "1x1 window": ((7, 6), (1, 1), 1, 5, 7),
    "stride 2": ((8, 8), (3, 3), 2, 16, 32),
    "stride 2, grouped": ((12, 16), (3, 3), 2, 8, 16),
    "stride 2, odd size": ((7, 9), (3, 3), 2, 3, 5),
    "stride 2, 1x1 window": ((8, 7), (1, 1), 2, 4, 8),
}


WAYS = {"C++": None, "XLA, one core": 1, "XLA, four cores": 4}
"""The ways to compute the products: in C++, if there is a compiler, or by XLA on so many cores."""


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    cores = WAYS[request.param]
    if cores is None and not native.has_function(products.CONVOLVE, products.SOURCE):
        pytest.skip("there is no C++ compiler")
    if cores is not None:
        monkeypatch.setattr(products, "has_function", lambda *_: False)
        monkeypatch.setattr(products, "_cores", lambda: cores)
    return request.param


def xla_conv(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def operands(image=(8, 8), window=(3, 3), channels=4, features=6, images=6, members=None):
    lead = () if members is None else (members,)
    normal = np.random.default_rng(0).standard_normal  # a generator of JAX would compile anew for each shape
    x = normal((*lead, images, *image, channels))
    kernel = normal((*lead, *window, channels, features)) / np.sqrt(window[0] * window[1] * channels)
    return jnp.asarray(x, float), jnp.asarray(kernel, float)


def assert_close(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max()), got, expected)


def value_and_gradients(convolve):
    def loss(x, kernel):
        y = convolve(x, kernel)
        return jnp.mean(jnp.sin(y)), y

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradients_are_those_of_xla(case, way):
    image, window, stride, channels, features = CASES[case]
    x, kernel = operands(image, window, channels, features)
    got = value_and_gradients(lambda x, k: conv2d(x, k, stride))(x, kernel)
    assert_close(got, value_and_gradients(lambda x, k: xla_conv(x, k, stride))(x, kernel))


POOLED = {
    "first layer": ((28, 28), (3, 3), 1, 16, True),
    "odd size": ((7, 9), (3, 3), 3, 5, True),
    "odd size, unpadded": ((9, 8), (3, 3), 3, 12, False),
    "two vectors of features, unpadded": ((15, 15), (3, 3), 16, 32, False),
    "5x3 window": ((8, 6), (5, 3), 4, 4, True),
    "1x1 window": ((6, 7), (1, 1), 3, 4, True),
}


def pooled_by_xla(is_padded):
    def convolve(x, kernel):
        padding = "SAME" if is_padded else "VALID"
        y = lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return nn.max_pool(y, (2, 2), (2, 2))

    return convolve


@pytest.mark.parametrize("case", POOLED)
def test_a_pooled_convolution_and_its_gradients_are_those_of_xla(case, way):
    image, window, channels, features, is_padded = POOLED[case]
    x, kernel = operands(image, window, channels, features)
    got = value_and_gradients(lambda x, k: convolve_and_pool(x, k, is_padded))(x, kernel)
    assert_close(got, value_and_gradients(pooled_by_xla(is_padded))(x, kernel))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (2, 4)], ids=str)
def test_a_pooled_convolution_under_vmap_is_that_of_xla(axes):
    x, kernel = operands(members=3)
    x = x[0] if axes[0] is None else jnp.moveaxis(x, 0, axes[0])
    kernel = kernel[0] if axes[1] is None else jnp.moveaxis(kernel, 0, axes[1])
    ours, xlas = (jax.vmap(value_and_gradients(c), in_axes=axes) for c in (convolve_and_pool, pooled_by_xla(True)))
    assert_close(ours(x, kernel), xlas(x, kernel))


@pytest.mark.parametrize("is_padded", [True, False])
def test_derivatives_of_a_pooled_convolution_agree_with_differences(float64, is_padded):
    x, kernel = operands(image=(6, 5), channels=2, features=3, images=2)
    function = jax.jit(lambda x, k: jnp.sin(convolve_and_pool(x, k, is_padded)))
    check_grads(function, (x, kernel), order=2, modes=("fwd", "rev"), eps=1e-5)


def test_derivatives_of_second_order_in_single_precision_are_those_of_xla(way):
    x, kernel = operands(image=(6, 6), channels=4, features=4, images=3)

    def meta(convolve):
        loss = lambda k: jnp.mean(jnp.sin(convolve(jnp.tanh(conv2d(x, k)), k)))  # noqa: E731
        return jax.jit(jax.grad(lambda k: loss(k - 0.1 * jax.grad(loss)(k))))(kernel)

    assert_close(meta(convolve_and_pool), meta(pooled_by_xla(True)))


def test_a_number_that_is_not_finite_stays_in_the_maxima(way):
    x, kernel = operands(image=(4, 4))
    pooled = convolve_and_pool(x.at[:, 2, 1].set(jnp.nan), kernel)
    assert np.isnan(pooled[:, 1, 0]).all()


def test_images_of_a_batch_may_have_any_leading_axes():
    x, kernel = operands(images=6)
    expected = xla_conv(x, kernel)
    assert_close(conv2d(x[0], kernel), expected[0])
    assert_close(conv2d(x.reshape(2, 3, *x.shape[1:]), kernel), expected.reshape(2, 3, *expected.shape[1:]))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (2, 4)], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_vmap_over_inputs_and_weights_without_grouped_convolutions(axes, stride):
    x, kernel = operands(members=3)
    x = x[0] if axes[0] is None else jnp.moveaxis(x, 0, axes[0])
    kernel = kernel[0] if axes[1] is None else jnp.moveaxis(kernel, 0, axes[1])
    ours, xlas = (
        jax.jit(jax.vmap(value_and_gradients(lambda x, k, c=convolve: c(x, k, stride)), in_axes=axes))
        for convolve in (conv2d, xla_conv)
    )
    assert_close(ours(x, kernel), xlas(x, kernel))
    groups = r"(feature|batch)_group_count = [2-9]"
    assert re.search(groups, xlas.lower(x, kernel).as_text()) or axes != (0, 0), "XLA's own should be grouped"
    assert not re.search(groups, ours.lower(x, kernel).as_text())


def meta_loss(convolve):
    """The loss after three gradient steps, as truncated backpropagation through an inner loop has it."""

    def loss(kernel, x):
        return jnp.mean(jnp.square(convolve(jnp.tanh(convolve(x, kernel)), kernel)))

    def unrolled(kernel, x):
        def step(kernel, _):
            return kernel - 0.1 * jax.grad(loss)(kernel, x), None

        return loss(lax.scan(step, kernel, None, length=3)[0], x)

    return loss, unrolled


@pytest.mark.parametrize("window", [(3, 3), (1, 1)], ids=str)
def test_reverse_over_reverse_is_that_of_xla(window):
    x, kernel = operands(window=window, features=4, images=3)
    gradients = [jax.jit(jax.grad(meta_loss(c)[1], argnums=(0, 1)))(kernel, x) for c in (conv2d, xla_conv)]
    assert_close(*gradients)


@pytest.mark.parametrize("axes", [(0, None), (0, 0)], ids=str)
def test_reverse_over_reverse_under_vmap_is_that_of_xla(axes):
    x, kernel = operands(features=4, images=3, members=2)
    x = x[0] if axes[1] is None else x
    ours, xlas = (jax.jit(jax.vmap(jax.grad(meta_loss(c)[1]), in_axes=axes))(kernel, x) for c in (conv2d, xla_conv))
    assert_close(ours, xlas)


def test_hessian_vector_products_forward_over_reverse_are_those_of_xla():
    x, kernel = operands(features=4, images=3)
    direction = jnp.cos(jnp.arange(kernel.size, dtype=kernel.dtype)).reshape(kernel.shape)

    def product(convolve):
        gradient = jax.grad(meta_loss(convolve)[0])
        return jax.jit(lambda k: jax.jvp(lambda k: gradient(k, x), (k,), (direction,))[1])(kernel)

    assert_close(product(conv2d), product(xla_conv))


@pytest.mark.parametrize("stride", [1, 2])
def test_derivatives_of_both_orders_and_modes_agree_with_differences(float64, stride):
    x, kernel = operands(image=(5, 4), channels=2, features=3, images=2)
    check_grads(jax.jit(lambda x, k: jnp.sin(conv2d(x, k, stride))), (x, kernel), order=2, modes=("fwd", "rev"))


def test_no_convolution_with_a_window_as_large_as_the_image_in_a_training_step(monkeypatch):
    monkeypatch.setattr(products, "has_function", lambda *_: False)
    x, kernel = operands(image=(28, 28), channels=16, features=16)

    def step(convolve):
        text = value_and_gradients(convolve).lower(x, kernel).as_text()
        calls = re.findall(r"stablehlo\.convolution\(.*?tensor<\d+x\d+x\d+x\d+xf32>, tensor<([\dx]+)xf32>", text)
        return {tuple(int(n) for n in call.split("x")) for call in calls}

    assert any(28 in shape for shape in step(xla_conv)), "the kernel gradient of XLA has the window 28x28"
    assert step(conv2d)
    assert {max(shape[:2]) for shape in step(conv2d)} <= {3, 4}


def test_input_gradient_is_not_computed_where_only_weights_are_learned():
    x, kernel = operands()
    text = str(jax.make_jaxpr(jax.grad(lambda k: jnp.sum(conv2d(x, k) ** 2)))(kernel))
    assert "kernel_gradient" in text
    assert "input_gradient" not in text


def test_accelerators_keep_the_convolution_of_xla(monkeypatch):
    x, kernel = operands()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    text = str(jax.make_jaxpr(conv2d)(x, kernel))
    assert "conv_general_dilated" in text
    assert "convolve" not in text
    assert_close(conv2d(x, kernel, 2), xla_conv(x, kernel, 2))


@pytest.mark.parametrize(("window", "stride"), [((3, 3), 1), ((3, 3), 2), ((1, 1), 2)])
def test_layer_has_the_parameters_and_the_result_of_flax(window, stride):
    x, _ = operands()
    ours, flax = Conv(5, window, stride), nn.Conv(5, window, stride)
    params = ours.init(jax.random.key(1), x)
    assert_close(params, flax.init(jax.random.key(1), x))
    params["params"]["bias"] = jax.random.normal(jax.random.key(2), (5,))
    with jax.numpy_rank_promotion("allow"):
        expected = flax.apply(params, x)
    assert_close(ours.apply(params, x), expected)


@pytest.mark.parametrize("image", [(6, 8), (7, 9)], ids=str)
def test_max_pool_and_its_gradient_are_those_of_flax(image):
    x, _ = operands(image)

    def value_and_gradient(pool):
        y, pull = jax.vjp(pool, x)
        return y, pull(jnp.cos(y))

    assert_close(value_and_gradient(max_pool2x2), value_and_gradient(lambda x: nn.max_pool(x, (2, 2), (2, 2))))


def test_max_pool_shares_the_gradient_among_equals():
    gradient = jax.grad(lambda x: jnp.sum(max_pool2x2(x)))(jnp.zeros((2, 2, 1)))
    assert_close(gradient, jnp.full((2, 2, 1), 0.25))


@pytest.mark.parametrize(
    ("x_shape", "kernel_shape", "stride", "message"),
    [
        ((8, 8), (3, 3, 1, 1), 1, "`x` must have axes (..., height, width, channels); got shape (8, 8)."),
        (
            (1, 8, 8, 2),
            (3, 3, 2),
            1,
            "`kernel` must have axes (height, width, channels, features); got shape (3, 3, 2).",
        ),
        ((1, 8, 8, 2), (2, 2, 2, 4), 1, "`kernel` must be odd in height and width; got (2, 2)."),
        ((1, 8, 8, 2), (3, 3, 3, 4), 1, "`kernel` must take 2 channels; got 3."),
        ((1, 8, 8, 2), (3, 3, 2, 4), 3, "`stride` must be 1 or 2; got 3."),
    ],
)
def test_wrong_shapes_are_named(x_shape, kernel_shape, stride, message):
    with pytest.raises(InputError, match=re.escape(message)):
        conv2d(jnp.zeros(x_shape), jnp.zeros(kernel_shape), stride)


def test_dtypes_must_agree():
    with pytest.raises(InputError, match=re.escape("`kernel` must be of dtype float32; got float16.")):
        conv2d(jnp.zeros((1, 4, 4, 1)), jnp.zeros((3, 3, 1, 1), jnp.float16))
