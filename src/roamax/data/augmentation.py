"""Augmentation on the device, as a function of a key."""

import jax
import jax.numpy as jnp

from roamax.errors import check
from roamax.types import Key


def augment(key: Key, images: jax.Array, padding: int = 4, flip: bool = True) -> jax.Array:
    """Crop each image at a random place after padding it with zeros, and mirror it left to right by chance.

    Every image gets a place of its own, uniform over the (2 · padding + 1)² that there are, and a coin of its own.

    Args:
        key: Decides places and coins.
        images: Shape (n, height, width, channels), of any dtype.
        padding: Zeros around each image.
        flip: False for images that mean something else when mirrored, such as digits.

    Returns:
        As many images, of the same shape and dtype.
    """
    check(images.ndim == 4, "images", "have shape (n, height, width, channels)", images.shape)
    check(padding >= 0, "padding", "be >= 0", padding)
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
