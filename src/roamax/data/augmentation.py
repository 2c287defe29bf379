"""Data augmentation on the device, as a function of a key."""

import jax
import jax.numpy as jnp

from roamax.errors import check, whole
from roamax.types import Key


def augment(key: Key, images: jax.Array, padding: int = 4, flip: bool = True) -> jax.Array:
    """Pad each image with zeros, crop it at a random position, and flip it left to right with probability 1/2.

    Positions, uniform over all (2 · padding + 1)², and flips are independent between images.

    Args:
        key: The random key.
        images: Images of shape (n, height, width, channels) and any dtype.
        padding: The width of the zeros around each image.
        flip: Whether to flip; False for images whose meaning changes when mirrored, such as digits.

    Returns:
        Images of the same shape and dtype.
    """
    check(images.ndim == 4, "images", "have shape (n, height, width, channels)", images.shape)
    padding = whole(padding, "padding", 0)
    crop_key, flip_key = jax.random.split(key)
    number, height, width = images.shape[:3]
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    places = jax.random.randint(crop_key, (2, number), 0, 2 * padding + 1)
    rows = places[0][:, None] + jnp.arange(height)[None, :]
    columns = places[1][:, None] + jnp.arange(width)[None, :]
    if flip:
        coins = jax.random.bernoulli(flip_key, 0.5, (number, 1))
        columns = jnp.where(coins, columns[:, ::-1], columns)
    which = jnp.arange(number)[:, None, None]
    return padded.at[which, rows[:, :, None], columns[:, None, :]].get(mode="promise_in_bounds")
