"""Conversion of images to the input shape of a network that was trained on another data set."""

from typing import Any

import numpy as np

from roamax.errors import InputError


def as_shape(x: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Convert images to the height, width and channels that a network takes.

    Args:
        x: The images, uint8 of shape (n, height, width, channels), or other inputs that already have the right shape.
        shape: The shape of one input of the network.
        name: The name of the data in errors.
    """
    if x.ndim != 4 or len(shape) != 3:
        if x.shape[1:] == shape:
            return x
        raise InputError(f"`ood` must name data of shape {shape}; got {name!r} of shape {x.shape[1:]}.")
    height, width, channels = shape
    if x.shape[1:3] == (2 * height, 2 * width):
        x = _as_bytes(x.reshape(len(x), height, 2, width, 2, x.shape[3]).mean(axis=(2, 4)))
    elif x.shape[1:3] != (height, width):
        x = _resized(x, height, width)
    if x.shape[3] != channels:
        x = np.repeat(x, channels, axis=3) if channels == 3 else _as_bytes(x.mean(axis=3, keepdims=True))
    return x


def _resized(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """Interpolate linearly between pixels, after a blur if the image shrinks."""
    from scipy.ndimage import gaussian_filter, zoom

    scales = height / x.shape[1], width / x.shape[2]
    sigmas = [max(0.0, (1 / scale - 1) / 2) for scale in scales]
    blurred = gaussian_filter(x.astype(np.float64), (0, *sigmas, 0), mode="mirror")
    return _as_bytes(zoom(blurred, (1, *scales, 1), order=1, mode="mirror", grid_mode=True))


def _as_bytes(x: Any) -> np.ndarray:
    return np.rint(x).astype(np.uint8)
