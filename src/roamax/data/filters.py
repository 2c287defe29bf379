"""Filters and textures for batches of images, float32 of shape (n, height, width, channels)."""

import numpy as np


def convolve(images: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Correlate each image with `kernel`, with reflecting boundaries."""
    from scipy.ndimage import correlate

    return correlate(images, kernel[None, :, :, None])


def blur(images: np.ndarray, sigma: float) -> np.ndarray:
    """Blur with a Gaussian of `sigma` pixels."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(images, (0, sigma, sigma, 0))


def disk(radius: float, alias_sigma: float) -> np.ndarray:
    """Return the kernel of a lens out of focus: a disk, smoothed by a Gaussian over 3 × 3 pixels."""
    reach = int(radius) + 1
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    spot = ((rows**2 + columns**2) <= radius**2).astype(np.float32)[None, :, :, None]
    weights = np.exp(-0.5 * (np.arange(-1, 2) / alias_sigma) ** 2)
    soft = convolve(np.pad(spot, ((0, 0), (1, 1), (1, 1), (0, 0))), np.outer(weights, weights))[0, :, :, 0]
    return soft / soft.sum()


def streak(angle: float, sigma: float) -> np.ndarray:
    """Return the kernel of motion along `angle` (radians) that fades as a Gaussian of `sigma` pixels."""
    reach = int(np.ceil(3 * sigma))
    kernel = np.zeros((2 * reach + 3, 2 * reach + 3))
    distances = np.arange(0, 3 * sigma, 0.25)
    rows, columns = reach + 1 + distances * np.sin(angle), reach + 1 + distances * np.cos(angle)
    weights = np.exp(-0.5 * (distances / sigma) ** 2)
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    for down in (0, 1):
        for right in (0, 1):
            share = np.abs(1 - down - (rows - top)) * np.abs(1 - right - (columns - left))
            np.add.at(kernel, (top + down, left + right), weights * share)
    return kernel / kernel.sum()


def zoom(images: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Average each image over its magnifications by `factors` about the centre, by linear interpolation.

    All factors are combined into one sparse matrix, since a SciPy call for each of up to 27 factors would take many
    times as long.
    """
    from scipy.sparse import csr_array, kron

    number, height, width, channels = images.shape
    pixels = height * width
    operator = csr_array((pixels, pixels), dtype=np.float32)
    for factor in factors:
        operator = operator + csr_array(kron(_zoom_matrix(height, factor), _zoom_matrix(width, factor)))
    columns = images.reshape(number, pixels, channels).swapaxes(0, 1).reshape(pixels, -1)
    zoomed = (operator @ columns) / np.float32(len(factors))
    return zoomed.reshape(pixels, number, channels).swapaxes(0, 1).reshape(images.shape)


def _zoom_matrix(size: int, factor: float) -> np.ndarray:
    centre = (size - 1) / 2
    places = centre + (np.arange(size) - centre) / factor
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(size)[None, :])).astype(np.float32)


def displace(images: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Replace each pixel by that (`down`, `right`) pixels away, linearly interpolated; both are (n, height, width)."""
    from scipy.ndimage import map_coordinates

    height, width, channels = images.shape[1:]
    places = np.stack([np.arange(height)[:, None] + down, np.arange(width) + right], axis=1)
    moved = np.empty_like(images)
    for image, place, target in zip(images, places, moved, strict=True):
        for channel in range(channels):
            map_coordinates(image[..., channel], place, target[..., channel], order=1, mode="nearest")
    return moved


def clouds(rng: np.random.Generator, number: int, height: int, width: int, exponent: float) -> np.ndarray:
    """Draw textures, (number, height, width) in [0, 1], whose amplitudes fall with frequency f as f ** -exponent."""
    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequencies[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.standard_normal((number, height, width), np.float32)) * frequencies**-exponent
    texture = np.fft.irfft2(spectrum, (height, width))
    low, high = texture.min((1, 2), keepdims=True), texture.max((1, 2), keepdims=True)
    return ((texture - low) / (high - low)).astype(np.float32)


def frost(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw a texture like ice on a window, (size, size) in [0, 1]: sharp ridges at several scales over a haze."""
    ground = clouds(rng, 1, size, size, 1.7)[0]
    ridges = 1 - np.abs(2 * clouds(rng, 5, size, size, 1.9) - 1)
    needles = np.max(ridges**16, axis=0)
    return np.clip(0.4 * ground + 0.8 * needles, 0, 1)
