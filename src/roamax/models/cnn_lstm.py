"""A convolutional and recurrent network for sentiment classification, from Wenzel et al. (2020)."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from roamax.errors import check, whole

PADDING = 0
"""The token that pads short texts."""


class Conv1D(nn.Module):
    """An unpadded convolution over time: one product for all positions of the kernel, then shifted and summed.

    On CPUs, derivatives of XLA's own convolution are slow inside a loop, and so are three-dimensional products; a
    single matrix product is fast.
    """

    features: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (n, time, channels) to (n, time - width + 1, features)."""
        _, time, channels = x.shape
        shape = (self.width, channels, self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        products = _flat_product(x, kernel.transpose(1, 0, 2).reshape(channels, -1))
        length = time - self.width + 1
        places = (
            products[:, place : place + length, place * self.features :][..., : self.features]
            for place in range(self.width)
        )
        return functools.reduce(jnp.add, places) + bias.reshape(1, 1, -1)


class LSTM(nn.Module):
    """An LSTM that returns its last state.

        a_i, a_f, a_o, a_g = W x + R h + b
        c <- sigmoid(a_f + 1) * c + sigmoid(a_i) * tanh(a_g)
        h <- sigmoid(a_o) * tanh(c)

    The state does not change at steps where `present` is false.
    """

    units: int

    @nn.compact
    def __call__(self, x: jax.Array, present: jax.Array) -> jax.Array:
        """Map (n, time, features) and (n, time) to (n, units)."""
        features, gates = x.shape[-1], 4 * self.units
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (features, gates), jnp.float32)
        recurrent = self.param("recurrent_kernel", nn.initializers.orthogonal(), (self.units, gates), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (gates,), jnp.float32)

        def step(state: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]):
            h, c = state
            projected, here = inputs
            i, f, o, g = jnp.split(projected + h @ recurrent, 4, axis=-1)
            # With the 1, a prior centred at 0 is centred at a memory that keeps rather than forgets.
            new_c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
            return (jnp.where(here, new_h, h), jnp.where(here, new_c, c)), None

        # The part that does not depend on the state is one large product outside the loop.
        projected = (_flat_product(x, kernel) + bias.reshape(1, 1, -1)).swapaxes(0, 1)
        start = jnp.zeros((x.shape[0], self.units), projected.dtype)
        (h, _), _ = jax.lax.scan(step, (start, start), (projected, present.T[:, :, None]))
        return h


class CNNLSTM(nn.Module):
    """Embedding, convolution over time, ReLU, max pool over time, LSTM, dense."""

    num_classes: int
    vocabulary: int
    embedding: int
    filters: int
    kernel: int
    pool: int
    units: int
    length: int | None

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return logits for token ids of shape (n, length)."""
        check(tokens.ndim == 2, "x", "hold rows of token ids, shape (n, length)", tokens.shape)
        tokens = tokens[:, : self.length]
        least = self.kernel + self.pool - 1
        check(tokens.shape[1] >= least, "x", f"hold at least {least} words per row", tokens.shape[1])
        x = nn.Embed(self.vocabulary, self.embedding, name="embedding")(tokens)
        x = jax.nn.relu(Conv1D(self.filters, self.kernel, name="conv")(x))
        x = _over_time(x, x.shape[1] // self.pool, self.pool).max(2)
        present = _over_time(tokens[..., None] != PADDING, x.shape[1], self.pool).any((2, 3))
        return nn.Dense(self.num_classes, name="output")(LSTM(self.units, name="lstm")(x, present))


def cnn_lstm(
    num_classes: int = 2,
    vocabulary: int = 20_000,
    embedding: int = 128,
    filters: int = 64,
    kernel: int = 5,
    pool: int = 4,
    units: int = 70,
    length: int | None = None,
) -> nn.Module:
    """Build a network that classifies texts given as token ids; 0 pads short texts, at either end.

    Izmailov et al. (2021) use `units=128`.

    Args:
        num_classes: The number of logits.
        vocabulary: The number of token ids.
        embedding: The size of the embedding.
        filters: The features of the convolution.
        kernel: The width of the convolution, in tokens.
        pool: The width of the max pool over time.
        units: The units of the LSTM.
        length: The number of tokens at which texts are cut off; None for all.

    Returns:
        The flax module.
    """
    whole(num_classes, "num_classes", 2)
    sizes = {"vocabulary": vocabulary, "embedding": embedding, "filters": filters, "kernel": kernel, "pool": pool}
    for argument, value in {**sizes, "units": units, "length": 1 if length is None else length}.items():
        whole(value, argument)
    return CNNLSTM(num_classes, vocabulary, embedding, filters, kernel, pool, units, length)


def _flat_product(x: jax.Array, matrix: jax.Array) -> jax.Array:
    return (x.reshape(-1, x.shape[-1]) @ matrix).reshape(*x.shape[:-1], -1)


def _over_time(x: jax.Array, steps: int, pool: int) -> jax.Array:
    """Reshape (n, time, features) to (n, steps, pool, features), without the remainder at the end."""
    return x[:, : steps * pool].reshape(x.shape[0], steps, pool, x.shape[-1])
