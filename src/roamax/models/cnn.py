"""Small convolutional networks: the family for meta-training, and two for evaluation."""

from collections.abc import Callable

import flax.linen as nn
import jax

from roamax.errors import whole
from roamax.models.conv import Conv, max_pool2x2
from roamax.models.model import INCREASING, as_images
from roamax.models.model import activation as activation_named


class CNN(nn.Module):
    """3x3 convolutions at full resolution, one 2x2 max pool, then dense.

    With `residual`, a 1x1 convolution of the input is added to the last convolution, before its activation.
    `bottleneck` is the width of a linear layer before the output layer.
    """

    num_classes: int
    channels: int
    depth: int
    residual: bool
    bottleneck: int | None
    activation: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits for images."""
        images = as_images(x, least=2)
        x = images
        for layer in range(self.depth - 1):
            x = self.activation(Conv(self.channels, name=f"conv{layer}")(x))
        last = f"conv{self.depth - 1}"
        if self.residual:
            x = Conv(self.channels, name=last)(x) + Conv(self.channels, (1, 1), name="shortcut")(images)
            x = max_pool2x2(self.activation(x))
        else:
            x = _pooled(x, self.channels, self.activation, last)
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
        """Return logits for images."""
        x = as_images(x, least=10)
        for layer in range(2):
            x = _pooled(x, self.channels, self.activation, f"conv{layer}", is_padded=False)
        x = self.activation(nn.Dense(self.hidden, name="hidden")(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes, name="output")(x)


def _pooled(
    x: jax.Array, channels: int, activation: Callable[[jax.Array], jax.Array], name: str, is_padded: bool = True
) -> jax.Array:
    """Return a layer with an activation and a 2x2 max pool, in the order that costs less if it does not matter."""
    if activation in INCREASING:
        return activation(Conv(channels, pools=True, is_padded=is_padded, name=name)(x))
    x = activation(Conv(channels, name=name)(x))
    # An unpadded convolution is the padded one without its border.
    return max_pool2x2(x if is_padded else x[:, 1:-1, 1:-1])


def cnn(
    num_classes: int = 10,
    channels: int = 16,
    depth: int = 1,
    residual: bool = False,
    bottleneck: int | None = None,
    activation: str = "relu",
) -> nn.Module:
    """Build a network of the meta-training family.

    In the paper, channels are 4, 8 or 16, and the depth is 1 to 5, with and without `residual`.

    Args:
        num_classes: The number of logits.
        channels: The channels of each convolution.
        depth: The number of convolutions.
        residual: Whether to add a shortcut from the input to the last convolution.
        bottleneck: The width of a linear layer before the output layer; None for none.
        activation: The name of the activation.

    Returns:
        The flax module.
    """
    whole(num_classes, "num_classes", 2)
    whole(channels, "channels")
    whole(depth, "depth")
    if bottleneck is not None:
        whole(bottleneck, "bottleneck")
    return CNN(num_classes, channels, depth, residual, bottleneck, activation_named(activation))


def cnn_fashion(num_classes: int = 10) -> nn.Module:
    """Build a small network for Fashion-MNIST: a convolution with 16 channels, pool, linear layer of 20, output."""
    return cnn(num_classes, channels=16, depth=1, bottleneck=20)


def cnn_cifar(num_classes: int = 10) -> nn.Module:
    """Build a small network for CIFAR-10: two convolutions with 8 channels, pool, linear layer of 20, output."""
    return cnn(num_classes, channels=8, depth=2, bottleneck=20)


def cnn_pooled(num_classes: int = 10, channels: int = 16, hidden: int = 100, activation: str = "relu") -> nn.Module:
    """Build the CIFAR-10 network of the comparison with Meta-SGMCMC.

    Gong et al. (2018) meta-train with 8 channels and 50 hidden units (15,768 parameters) and test with 16 and
    100 (61,478).
    """
    whole(num_classes, "num_classes", 2)
    whole(channels, "channels")
    whole(hidden, "hidden")
    return PooledCNN(num_classes, channels, hidden, activation_named(activation))
