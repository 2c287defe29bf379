"""Small convolutional networks: the family that a sampler is meta-trained on, and two kinds it is tried on."""

from collections.abc import Callable

import flax.linen as nn
import jax

from roamax.models.conv import Conv, max_pool2x2
from roamax.models.model import activation as activation_named
from roamax.models.model import as_images, check_whole


class CNN(nn.Module):
    """3x3 convolutions at full resolution, one 2x2 max pool, then dense.

    With `residual` the input, projected by a 1x1 convolution, is added at the last convolution, before its
    activation. `bottleneck` is the width of a linear layer in front of the output layer.
    """

    num_classes: int
    channels: int
    depth: int
    residual: bool
    bottleneck: int | None
    activation: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits from images."""
        images = as_images(x, least=2)
        x = images
        for layer in range(self.depth):
            x = Conv(self.channels, name=f"conv{layer}")(x)
            if self.residual and layer == self.depth - 1:
                x = x + Conv(self.channels, (1, 1), name="shortcut")(images)
            x = self.activation(x)
        x = max_pool2x2(x)
        x = x.reshape(x.shape[0], -1)
        if self.bottleneck is not None:
            x = nn.Dense(self.bottleneck, name="bottleneck")(x)
        return nn.Dense(self.num_classes, name="output")(x)


class PooledCNN(nn.Module):
    """Two unpadded 3x3 convolutions, each with an activation and a 2x2 max pool, and one hidden dense layer."""

    num_classes: int
    channels: int
    hidden: int
    activation: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits from images."""
        x = as_images(x, least=10)
        for layer in range(2):
            # An unpadded convolution is the padded one without its rim.
            x = Conv(self.channels, name=f"conv{layer}")(x)[:, 1:-1, 1:-1]
            x = max_pool2x2(self.activation(x))
        x = self.activation(nn.Dense(self.hidden, name="hidden")(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes, name="output")(x)


def cnn(
    num_classes: int = 10,
    channels: int = 16,
    depth: int = 1,
    residual: bool = False,
    bottleneck: int | None = None,
    activation: str = "relu",
) -> nn.Module:
    """Build a member of the meta-training family.

    The paper draws channels from {4, 8, 16}, depth from 1..5, residual from {no, yes}.
    """
    check_whole(num_classes, "num_classes", least=2)
    check_whole(channels, "channels")
    check_whole(depth, "depth")
    if bottleneck is not None:
        check_whole(bottleneck, "bottleneck")
    return CNN(num_classes, channels, depth, residual, bottleneck, activation_named(activation))


def cnn_fashion(num_classes: int = 10) -> nn.Module:
    """Build the one-layer network for Fashion-MNIST: convolution to 16 channels, pool, linear 20, output."""
    return cnn(num_classes, channels=16, depth=1, bottleneck=20)


def cnn_cifar(num_classes: int = 10) -> nn.Module:
    """Build a small network for CIFAR-10: two convolutions to 8 channels, pool, linear 20, output."""
    return cnn(num_classes, channels=8, depth=2, bottleneck=20)


def cnn_pooled(num_classes: int = 10, channels: int = 16, hidden: int = 100, activation: str = "relu") -> nn.Module:
    """Build the CIFAR-10 network of the comparison with Meta-SGMCMC.

    Gong et al. (2018) meta-train with 8 channels and 50 hidden units (15,768 parameters) and test with 16 and
    100 (61,478).
    """
    check_whole(num_classes, "num_classes", least=2)
    check_whole(channels, "channels")
    check_whole(hidden, "hidden")
    return PooledCNN(num_classes, channels, hidden, activation_named(activation))
