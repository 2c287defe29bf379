"""Multilayer perceptrons for classes, and for real targets with a noise scale."""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from roamax.errors import finite, whole
from roamax.models.model import activation as activation_named
from roamax.models.model import widths

LEAST_NOISE = 1e-3
"""The least scale that depends on the inputs: where one target is met exactly, its density must not be infinite."""


class MLP(nn.Module):
    """Dense layers with an activation between them; inputs of any shape are flattened."""

    features: int
    hidden: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return logits."""
        return nn.Dense(self.features, name="output")(_hidden_layers(x, self.hidden, self.activation))


class RegressionMLP(nn.Module):
    """An MLP for the mean of real targets, with a noise scale, fixed or learned, that is the same for all inputs."""

    outputs: int
    hidden: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array]
    noise_scale: float | None

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and scale."""
        mean = nn.Dense(self.outputs, name="output")(_hidden_layers(x, self.hidden, self.activation))
        mean = mean[:, 0] if self.outputs == 1 else mean
        if self.noise_scale is not None:
            return mean, jnp.full_like(mean, self.noise_scale)
        log_scale = self.param("log_scale", nn.initializers.zeros, mean.shape[1:], jnp.float32)
        return mean, jnp.broadcast_to(jnp.exp(log_scale), mean.shape)


class HeteroscedasticMLP(nn.Module):
    """An MLP for the mean of real targets and, from the same hidden units, the scale of their noise."""

    outputs: int
    hidden: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and scale."""
        units = _hidden_layers(x, self.hidden, self.activation)
        mean, raw = (nn.Dense(self.outputs, name=name)(units) for name in ("output", "noise"))
        scale = LEAST_NOISE + nn.softplus(raw)
        return (mean[:, 0], scale[:, 0]) if self.outputs == 1 else (mean, scale)


def mlp(num_classes: int = 10, hidden: Sequence[int] | int = (100, 100), activation: str = "relu") -> nn.Module:
    """Build an MLP for classification.

    Gong et al. (2018) meta-train on MNIST with `hidden=(20,)` (15,910 parameters) and test on `hidden=(40, 40)`,
    with "relu" and with "sigmoid".

    Args:
        num_classes: The number of logits.
        hidden: The widths of the hidden layers.
        activation: The name of the activation.

    Returns:
        The flax module.
    """
    whole(num_classes, "num_classes", 2)
    return MLP(num_classes, widths(hidden), activation_named(activation))


def mlp_regression(
    outputs: int = 1,
    hidden: Sequence[int] | int = (100, 100),
    activation: str = "relu",
    noise_scale: float | None = None,
) -> nn.Module:
    """Build an MLP for regression that returns the mean and the scale of N(mean, scale^2).

    Args:
        outputs: The number of targets; the mean has shape (n,) for one, (n, k) for k.
        hidden: The widths of the hidden layers.
        activation: The name of the activation.
        noise_scale: The scale, if known; None learns its logarithm, one parameter per output that starts at 0.

    Returns:
        The flax module.
    """
    whole(outputs, "outputs")
    noise_scale = None if noise_scale is None else finite(noise_scale, "noise_scale", above=0)
    return RegressionMLP(outputs, widths(hidden), activation_named(activation), noise_scale)


def mlp_heteroscedastic(
    outputs: int = 1, hidden: Sequence[int] | int = (100, 100), activation: str = "relu"
) -> nn.Module:
    """Build an MLP for regression whose noise depends on the inputs; it returns the mean and the scale.

    Args:
        outputs: The number of targets; mean and scale have shape (n,) for one, (n, k) for k.
        hidden: The widths of the hidden layers.
        activation: The name of the activation.

    Returns:
        The flax module.
    """
    whole(outputs, "outputs")
    return HeteroscedasticMLP(outputs, widths(hidden), activation_named(activation))


def _hidden_layers(x: jax.Array, hidden: tuple[int, ...], activation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    x = x.reshape(x.shape[0], -1)
    for index, width in enumerate(hidden):
        x = activation(nn.Dense(width, name=f"hidden{index}")(x))
    return x
