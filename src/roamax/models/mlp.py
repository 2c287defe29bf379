"""Multi-layer perceptrons: classes, and real targets with a noise scale."""

import math
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from roamax.errors import check
from roamax.models.model import activation as activation_named
from roamax.models.model import check_whole


class MLP(nn.Module):
    """Dense layers with an activation between them; inputs of any shape are flattened."""

    features: int
    hidden: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits."""
        return nn.Dense(self.features, name="output")(_hidden_layers(x, self.hidden, self.activation))


class RegressionMLP(nn.Module):
    """An MLP for the mean of real targets, and a noise scale that is given or a parameter, the same for all inputs."""

    outputs: int
    hidden: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array]
    noise_scale: float | None

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and scale."""
        mean = nn.Dense(self.outputs, name="output")(_hidden_layers(x, self.hidden, self.activation))
        mean = mean[:, 0] if self.outputs == 1 else mean
        if self.noise_scale is not None:
            return mean, jnp.full_like(mean, self.noise_scale)
        log_scale = self.param("log_scale", nn.initializers.zeros, mean.shape[1:], jnp.float32)
        return mean, jnp.broadcast_to(jnp.exp(log_scale), mean.shape)


def mlp(num_classes: int = 10, hidden: Sequence[int] = (100, 100), activation: str = "relu") -> nn.Module:
    """Build a network for logits of `num_classes` from dense layers of the widths `hidden`.

    Gong et al. (2018) meta-train on MNIST with `hidden=(20,)` (15,910 parameters) and test on `hidden=(40, 40)`,
    with "relu" and with "sigmoid".
    """
    check_whole(num_classes, "num_classes", least=2)
    _check_widths(hidden)
    return MLP(num_classes, tuple(hidden), activation_named(activation))


def mlp_regression(
    outputs: int = 1,
    hidden: Sequence[int] = (100, 100),
    activation: str = "relu",
    noise_scale: float | None = None,
) -> nn.Module:
    """Build a network for the mean and the scale of N(mean, scale^2) of real targets.

    With one output the mean has shape (n,), with k of them (n, k). `noise_scale` is the scale where it is known;
    None makes its logarithm one parameter per output, which starts at 0.
    """
    check_whole(outputs, "outputs")
    _check_widths(hidden)
    if noise_scale is not None:
        check(math.isfinite(noise_scale) and noise_scale > 0, "noise_scale", "be a finite number > 0", noise_scale)
    return RegressionMLP(outputs, tuple(hidden), activation_named(activation), noise_scale)


def _hidden_layers(x: jax.Array, hidden: tuple[int, ...], activation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    x = x.reshape(x.shape[0], -1)
    for index, width in enumerate(hidden):
        x = activation(nn.Dense(width, name=f"hidden{index}")(x))
    return x


def _check_widths(hidden: Sequence[int]) -> None:
    for width in hidden:
        check_whole(width, "hidden")
