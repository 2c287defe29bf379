"""Residual networks with filter response normalisation.

Unlike with batch normalisation, the likelihood of an example does not depend on the others in its batch, as a posterior
requires.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from roamax.errors import whole
from roamax.models.conv import Conv
from roamax.models.model import activation as activation_named
from roamax.models.model import as_images


class FilterResponseNorm(nn.Module):
    """Filter response normalisation with its thresholded linear unit (Singh and Krishnan, 2020).

        y = max(gamma * x / sqrt(mean(x^2) + epsilon) + beta, tau)

    The mean is over the positions of one channel of one image. With `learn_epsilon`, the absolute value of a learned
    parameter is added to epsilon, for feature maps with so few positions that the mean may be near 0.
    """

    epsilon: float = 1e-6
    learn_epsilon: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise images of shape (n, height, width, channels)."""

        def per_channel(name: str, initializer: nn.initializers.Initializer) -> jax.Array:
            return self.param(name, initializer, (x.shape[-1],), jnp.float32).reshape(1, 1, 1, -1)

        gamma = per_channel("gamma", nn.initializers.ones)
        beta = per_channel("beta", nn.initializers.zeros)
        tau = per_channel("tau", nn.initializers.zeros)
        square = jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True) + self.epsilon
        if self.learn_epsilon:
            learned = self.param("epsilon", nn.initializers.constant(1e-4), (), jnp.float32)
            square = square + jnp.abs(learned).reshape(1, 1, 1, 1)
        return jnp.maximum(x * (gamma * jax.lax.rsqrt(square)) + beta, tau)


class ResNetFRN(nn.Module):
    """Three stages of residual blocks at 1, 1/2 and 1/4 of the resolution, global mean pool, dense."""

    num_classes: int
    blocks: int
    width: int
    activation: Callable[[jax.Array], jax.Array]
    learn_epsilon: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits for images."""
        x = self.activation(self._layer(as_images(x), "stem", self.width))
        for stage in range(3):
            for block in range(self.blocks):
                name, channels = f"stage{stage}_block{block}", self.width * 2**stage
                shrinks = stage > 0 and block == 0
                stride = 2 if shrinks else 1
                y = self.activation(self._layer(x, f"{name}_0", channels, stride=stride))
                y = self._layer(y, f"{name}_1", channels)
                if shrinks:
                    x = self._layer(x, f"{name}_shortcut", channels, kernel=1, stride=stride)
                x = self.activation(x + y)
        return nn.Dense(self.num_classes, kernel_init=nn.initializers.he_normal(), name="output")(x.mean((1, 2)))

    def _layer(self, x: jax.Array, name: str, channels: int, kernel: int = 3, stride: int = 1) -> jax.Array:
        x = Conv(channels, (kernel, kernel), stride, kernel_init=nn.initializers.he_normal(), name=f"{name}_conv")(x)
        return FilterResponseNorm(learn_epsilon=self.learn_epsilon, name=f"{name}_frn")(x)


def resnet8_frn(
    num_classes: int = 10, width: int = 16, activation: str = "swish", learn_epsilon: bool = False
) -> nn.Module:
    """Build ResNet-8, the smallest of the family: one block per stage, 78,714 parameters for CIFAR-10."""
    return _resnet(8, num_classes, width, activation, learn_epsilon)


def resnet20_frn(
    num_classes: int = 10, width: int = 16, activation: str = "swish", learn_epsilon: bool = False
) -> nn.Module:
    """Build ResNet-20 as Izmailov et al. (2021) sampled it with HMC: 274,042 parameters for CIFAR-10."""
    return _resnet(20, num_classes, width, activation, learn_epsilon)


def resnet56_frn(
    num_classes: int = 10, width: int = 16, activation: str = "swish", learn_epsilon: bool = False
) -> nn.Module:
    """Build ResNet-56, for Tiny-ImageNet: nine blocks per stage."""
    return _resnet(56, num_classes, width, activation, learn_epsilon)


def _resnet(depth: int, num_classes: int, width: int, activation: str, learn_epsilon: bool) -> nn.Module:
    whole(num_classes, "num_classes", 2)
    whole(width, "width")
    # The depth counts the stem, three stages of blocks with two convolutions each, and the output layer.
    return ResNetFRN(num_classes, (depth - 2) // 6, width, activation_named(activation), learn_epsilon)
