"""The 15 corruptions of CIFAR-10-C at 5 severities, generated from arrays, for when the published files are missing.

For gaussian_noise, shot_noise, impulse_noise, defocus_blur, zoom_blur, brightness, contrast, pixelate and
jpeg_compression the constants are those of the published generator (Hendrycks and Dietterich, 2019). For glass_blur,
motion_blur, snow, frost, fog and elastic_transform, whose published versions depend on pictures or programs that are
not available here, the constants are our own, chosen so that the distance to the clean image grows with severity.
Accuracies are therefore close to, but not the same as, those on the published images, which `roamax.data.corrupted`
uses if present.
"""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from roamax.data import filters
from roamax.errors import check, lookup, whole

CHUNK = 1000
"""The number of images processed at once, to bound memory."""


def corrupt(images: np.ndarray, kind: str, severity: int, seed: int = 0) -> np.ndarray:
    """Corrupt uint8 images of shape (n, height, width, channels), with 1 or 3 channels.

    Random numbers (noise, angles, positions) depend on `seed` and `kind` only, not on the severity, so that each image
    gets worse with severity.

    Args:
        images: Images of at least 4 × 4 pixels.
        kind: One of `KINDS`.
        severity: From 1 to 5.
        seed: The random seed.

    Returns:
        Images of the same shape.
    """
    images = np.asarray(images)
    function, constants = lookup(_TABLE, kind, "kind")
    severity = whole(severity, "severity", 1, 5)
    good = images.dtype == np.uint8 and images.ndim == 4 and images.shape[3] in (1, 3) and min(images.shape[1:3]) >= 4
    rule = "hold uint8 images (n, height, width, channels), at least 4 × 4, with 1 or 3 channels"
    check(good, "images", rule, f"{images.dtype} of shape {images.shape}")
    result = np.empty_like(images)
    for start in range(0, len(images), CHUNK):
        rng = np.random.default_rng([seed, KINDS.index(kind), start])
        pixels = images[start : start + CHUNK].astype(np.float32) / 255
        result[start : start + CHUNK] = _as_bytes(function(pixels, constants[severity - 1], rng))
    return result


def _as_bytes(pixels: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)


def _gaussian_noise(x: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    return x + scale * rng.standard_normal(x.shape, np.float32)


def _shot_noise(x: np.ndarray, photons: float, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(x * photons).astype(np.float32) / photons


def _impulse_noise(x: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    chance = rng.random(x.shape, np.float32)
    return np.where(chance < share / 2, 0, np.where(chance > 1 - share / 2, 1, x))


def _defocus_blur(x: np.ndarray, spot: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    return filters.convolve(x, filters.disk(*spot))


def _glass_blur(x: np.ndarray, constants: tuple[float, int], rng: np.random.Generator) -> np.ndarray:
    """Blur, for some rounds replace a share of the pixels by neighbours, and blur again."""
    share, rounds = constants
    x = filters.blur(x, 0.5)
    for _ in range(rounds):
        steps = rng.integers(-1, 2, (2, *x.shape[:3])) * (rng.random(x.shape[:3], np.float32) < share)
        x = filters.displace(x, steps[0].astype(np.float32), steps[1].astype(np.float32))
    return filters.blur(x, 0.5)


def _motion_blur(x: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    return _streaked(x, sigma, rng.integers(-45, 46, len(x)) // 3 * 3)


def _streaked(x: np.ndarray, sigma: float, degrees: np.ndarray) -> np.ndarray:
    result = np.empty_like(x)
    for angle in np.unique(degrees):
        result[degrees == angle] = filters.convolve(x[degrees == angle], filters.streak(np.deg2rad(angle), sigma))
    return result


def _zoom_blur(x: np.ndarray, largest: float, rng: np.random.Generator) -> np.ndarray:
    factors = np.concatenate([[1.0], np.arange(1, largest, 0.01)])
    return filters.zoom(x, factors)


def _snow(x: np.ndarray, constants: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """Add motion-blurred flakes to a picture that is partly whitened."""
    amount, whiteness = constants
    noise = filters.zoom(rng.standard_normal((*x.shape[:3], 1), np.float32), np.asarray([2.0]))
    flakes = np.clip(amount + 0.3 * noise - 0.5, 0, None)
    flakes = _streaked(flakes, 1.5, rng.integers(-135, -44, len(x)) // 3 * 3)
    pale = np.maximum(x, 1.5 * x.mean(3, keepdims=True) + 0.5)
    return (1 - whiteness) * x + whiteness * pale + 1.5 * (flakes + flakes[:, ::-1, ::-1])


def _frost(x: np.ndarray, constants: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """Dim the picture and add a random part of an icy window."""
    light, ice = constants
    height, width = x.shape[1:3]
    window = filters.frost(rng, 4 * max(height, width))
    top, left = (rng.integers(0, len(window) - size + 1, len(x)) for size in (height, width))
    rows, columns = top[:, None] + np.arange(height), left[:, None] + np.arange(width)
    tint = np.asarray([0.9, 0.97, 1.0], np.float32)[: x.shape[3]] if x.shape[3] == 3 else np.ones(1, np.float32)
    return light * x + ice * window[rows[:, :, None], columns[:, None, :]][..., None] * tint


def _fog(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    brightest = np.maximum(x.max((1, 2, 3), keepdims=True), 1e-3)
    haze = filters.clouds(rng, *x.shape[:3], exponent=1.8)[..., None]
    return (x + amount * haze) * brightest / (brightest + amount)


def _brightness(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    """Increase the value in HSV; a black pixel, which has no hue, becomes grey."""
    value = x.max(3, keepdims=True)
    brighter = np.minimum(value + amount, 1)
    return np.where(value > 0, x * brighter / np.maximum(value, 1e-6), brighter)


def _contrast(x: np.ndarray, factor: float, rng: np.random.Generator) -> np.ndarray:
    mean = x.mean((1, 2), keepdims=True)
    return mean + factor * (x - mean)


def _elastic_transform(x: np.ndarray, pixels: float, rng: np.random.Generator) -> np.ndarray:
    """Displace pixels by a smooth random field with a root mean square of `pixels`."""
    fields = filters.blur(rng.standard_normal((*x.shape[:3], 2), np.float32), 3.0)
    fields *= pixels / np.sqrt(np.mean(fields**2, axis=(1, 2), keepdims=True))
    return filters.displace(x, fields[..., 0], fields[..., 1])


def _pixelate(x: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    from PIL import Image

    height, width = x.shape[1:3]

    def coarse(image: Any) -> Any:
        small = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
        return small.resize((width, height), Image.Resampling.BOX)

    return _each(x, coarse)


def _jpeg_compression(x: np.ndarray, quality: int, rng: np.random.Generator) -> np.ndarray:
    from PIL import Image

    def compressed(image: Any) -> Any:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _each(x, compressed)


def _each(x: np.ndarray, change: Callable[[Any], Any]) -> np.ndarray:
    """Apply a function of Pillow images to each image."""
    from PIL import Image

    grey = x.shape[3] == 1
    images = (Image.fromarray(image[..., 0] if grey else image) for image in _as_bytes(x))
    return np.stack([np.asarray(change(image)) for image in images]).reshape(x.shape).astype(np.float32) / 255


_TABLE: dict[str, tuple[Callable[..., np.ndarray], tuple[Any, ...]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (_glass_blur, ((0.3, 1), (0.6, 1), (1, 1), (1, 2), (1, 3))),
    "motion_blur": (_motion_blur, (0.8, 1.2, 1.7, 2.3, 3.0)),
    "zoom_blur": (_zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    "snow": (_snow, ((0.05, 0.05), (0.10, 0.08), (0.15, 0.12), (0.20, 0.16), (0.25, 0.20))),
    "frost": (_frost, ((1.0, 0.2), (0.95, 0.3), (0.9, 0.4), (0.85, 0.5), (0.8, 0.6))),
    "fog": (_fog, (0.2, 0.5, 0.75, 1.0, 1.5)),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": (_elastic_transform, (0.5, 0.8, 1.1, 1.5, 2.0)),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (_jpeg_compression, (80, 65, 58, 50, 40)),
}
"""Each corruption, with its constants at severities 1 to 5."""

KINDS: tuple[str, ...] = tuple(_TABLE)
