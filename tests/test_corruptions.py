"""Corruptions of images: what each does, that severity is severity, and the published files in their place."""

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

import published_files as published
from roamax import data
from roamax.data import corruptions, filters, registry
from roamax.data.corruptions import KINDS, corrupt
from roamax.errors import InputError


@pytest.fixture(scope="module")
def photographs():
    """128 pieces of photographs that ship with scikit-image, 32 × 32 in colour."""
    from skimage.data import astronaut, coffee

    pieces = []
    for picture in (astronaut()[:512, :512], coffee()[:384, :512]):
        half = picture.reshape(picture.shape[0] // 2, 2, 256, 2, 3).mean((1, 3))
        tiles = half.reshape(-1, 32, 8, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
        pieces.append(tiles[tiles.std((1, 2, 3)) > 10])
    return np.rint(np.concatenate(pieces)).astype(np.uint8)[:128]


def distance(one, other):
    return np.abs(one.astype(float) - other).mean()


def grey(level, number=50, channels=3):
    return np.full((number, 32, 32, channels), level, np.uint8)


def test_there_are_fifteen():
    assert len(KINDS) == 15


@pytest.mark.parametrize("kind", KINDS)
def test_each_severity_is_worse_than_the_one_before(kind, photographs):
    distances = [distance(corrupt(photographs, kind, severity), photographs) for severity in range(1, 6)]
    assert distances[0] > 0.5
    assert np.all(np.diff(distances) > 0.2), distances
    assert distances[4] < 70


@pytest.mark.parametrize("kind", KINDS)
def test_grey_images_of_another_size_and_seeds(kind, photographs):
    images = photographs[:20, 2:30, 2:30, :1]
    one = corrupt(images, kind, 3)
    assert (one.shape, one.dtype) == ((20, 28, 28, 1), np.uint8)
    np.testing.assert_array_equal(one, corrupt(images, kind, 3))
    random = not np.array_equal(one, corrupt(images, kind, 3, seed=1))
    fixed = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
    assert random == (kind not in fixed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_images_themselves_are_not_touched(kind, photographs):
    before = photographs.copy()
    corrupt(photographs, kind, 5)
    np.testing.assert_array_equal(photographs, before)


def test_large_arrays_are_worked_on_in_pieces_with_noise_of_their_own(monkeypatch):
    monkeypatch.setattr(corruptions, "CHUNK", 4)
    noisy = corrupt(grey(128, number=10), "gaussian_noise", 5)
    assert len(np.unique(noisy.reshape(10, -1), axis=0)) == 10
    np.testing.assert_array_equal(noisy[:4], corrupt(grey(128, number=4), "gaussian_noise", 5))


@pytest.mark.parametrize(("severity", "scale"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.10)])
def test_gaussian_noise_has_the_published_scale(severity, scale):
    noise = corrupt(grey(128), "gaussian_noise", severity) / 255 - 128 / 255
    assert abs(noise.mean()) < 1e-3
    assert abs(noise.std() / scale - 1) < 0.02


@pytest.mark.parametrize(("severity", "photons"), [(1, 500), (2, 250), (3, 100), (4, 75), (5, 50)])
def test_shot_noise_has_the_variance_of_counted_photons(severity, photons):
    noise = corrupt(grey(100), "shot_noise", severity) / 255 - 100 / 255
    assert abs(noise.var() / (100 / 255 / photons) - 1) < 0.05


@pytest.mark.parametrize(("severity", "share"), [(1, 0.01), (2, 0.02), (3, 0.03), (4, 0.05), (5, 0.07)])
def test_impulse_noise_turns_a_share_black_and_as_many_white(severity, share):
    noisy = corrupt(grey(100), "impulse_noise", severity)
    np.testing.assert_allclose([np.mean(noisy == 0), np.mean(noisy == 255)], share / 2, rtol=0.1)
    assert set(np.unique(noisy)) == {0, 100, 255}


@pytest.mark.parametrize(("severity", "factor"), [(1, 0.75), (2, 0.5), (3, 0.4), (4, 0.3), (5, 0.15)])
def test_contrast_shrinks_towards_the_mean(severity, factor, photographs):
    mean = photographs.mean((1, 2), keepdims=True)
    expected = mean + factor * (photographs - mean)
    np.testing.assert_allclose(corrupt(photographs, "contrast", severity), expected, atol=0.51)


@pytest.mark.parametrize(("severity", "amount"), [(1, 0.05), (2, 0.1), (3, 0.15), (4, 0.2), (5, 0.3)])
def test_brightness_adds_to_the_value_and_keeps_the_hue(severity, amount, photographs):
    from skimage.color import hsv2rgb, rgb2hsv

    hsv = rgb2hsv(photographs)
    hsv[..., 2] = np.minimum(hsv[..., 2] + amount, 1)
    np.testing.assert_allclose(corrupt(photographs, "brightness", severity), hsv2rgb(hsv) * 255, atol=0.51)


@pytest.mark.parametrize(("severity", "quality"), [(1, 80), (2, 65), (3, 58), (4, 50), (5, 40)])
def test_jpeg_is_pillows_at_the_published_quality(severity, quality, photographs):
    buffer = io.BytesIO()
    Image.fromarray(photographs[0]).save(buffer, "JPEG", quality=quality)
    np.testing.assert_array_equal(corrupt(photographs[:1], "jpeg_compression", severity)[0], Image.open(buffer))


@pytest.mark.parametrize(("severity", "size"), [(1, 30), (2, 28), (3, 27), (4, 24), (5, 20)])
def test_pixelate_keeps_as_many_pixels_as_published(severity, size, photographs):
    small = Image.fromarray(photographs[0]).resize((size, size), Image.Resampling.BOX)
    expected = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
    np.testing.assert_array_equal(corrupt(photographs[:1], "pixelate", severity)[0], expected)


def test_blurs_keep_what_is_even_and_spread_what_is_not():
    dot = grey(0, number=200, channels=1)
    dot[:, 16, 16] = 255
    for kind in ("defocus_blur", "motion_blur", "glass_blur"):
        np.testing.assert_array_equal(corrupt(grey(200), kind, 5), grey(200))
        spread = corrupt(dot, kind, 5).astype(float)
        assert spread.max() < 255 if kind != "glass_blur" else spread.mean((0, 3)).max() < 60
        assert abs(spread.sum((1, 2, 3)).mean() / 255 - 1) < 0.15


def test_defocus_at_severity_5_is_the_mean_of_nine(photographs):
    """A disk of radius 1.5 covers 3 × 3 pixels; its softening of 0.1 is nothing."""
    from scipy.ndimage import uniform_filter

    expected = uniform_filter(photographs.astype(float), (1, 3, 3, 1))
    np.testing.assert_allclose(corrupt(photographs, "defocus_blur", 5), expected, atol=0.51)


def test_streaks_point_where_they_should():
    rows, columns = np.mgrid[-10:11, -10:11]
    for degrees in (-45, 0, 30, 135):
        kernel = filters.streak(np.deg2rad(degrees), 3.0)
        assert abs(kernel.sum() - 1) < 1e-9
        assert kernel.shape == (21, 21)
        direction = np.rad2deg(np.arctan2((kernel * rows).sum(), (kernel * columns).sum()))
        assert abs(direction - degrees) < 1


def test_zoom_shows_the_middle_larger():
    ramp = np.broadcast_to(np.arange(32, dtype=np.float32)[None, :, None, None], (2, 32, 32, 1)).copy()
    expected = 15.5 + (np.arange(32) - 15.5) / 1.5
    np.testing.assert_allclose(filters.zoom(ramp, np.asarray([1.5]))[0, :, 7, 0], expected, rtol=1e-5)


def test_displacement_by_whole_pixels_moves_them(photographs):
    images = photographs[:3].astype(np.float32)
    ones = np.ones(images.shape[:3], np.float32)
    moved = filters.displace(images, 2 * ones, -1 * ones)
    np.testing.assert_array_equal(moved[:, :30, 1:], images[:, 2:, :31])


def test_displacement_by_parts_of_pixels_mixes_the_four_around(photographs):
    images = photographs[:3].astype(np.float32)
    down, right = (np.full(images.shape[:3], part, np.float32) for part in (0.25, 0.5))
    across = 0.5 * images[:, :, :-1] + 0.5 * images[:, :, 1:]
    expected = 0.75 * across[:, :-1] + 0.25 * across[:, 1:]
    np.testing.assert_allclose(filters.displace(images, down, right)[:, :31, :31], expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((grey(1), "fogg", 1), "`kind` must be a known name; got 'fogg': did you mean 'fog'"),
        ((grey(1), "fog", 0), r"`severity` must be a whole number in \[1, 5\]; got 0"),
        ((grey(1), "fog", 2.5), r"`severity` must be a whole number in \[1, 5\]; got 2.5"),
        ((grey(1) / 255, "fog", 1), "`images` must hold uint8 images .*; got float64 of shape"),
        ((grey(1)[0], "fog", 1), "`images` must hold uint8 images"),
        ((grey(1, channels=2), "fog", 1), "with 1 or 3 channels; got uint8 of shape"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        corrupt(*arguments)


def test_no_images_are_no_images():
    assert corrupt(grey(1, number=0), "fog", 1).shape == (0, 32, 32, 3)


def test_the_published_images_come_first(monkeypatch, tmp_path, photographs):
    y = published.labels(len(photographs), 10)
    np.savez(tmp_path / "cifar10.npz", x_test=photographs, y_test=y)
    made, labels = data.corrupted("cifar10", "fog", 2, tmp_path, seed=3)
    np.testing.assert_array_equal(made, corrupt(photographs, "fog", 2, seed=3))
    np.testing.assert_array_equal(labels, y)
    entry = registry.REGISTRY["cifar10_c"]
    (file,) = entry.files
    (tmp_path / file.path).parent.mkdir()
    path = published.cifar10_c(tmp_path / file.path, KINDS, 4)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(
        registry.REGISTRY, "cifar10_c", entry._replace(files=(file._replace(checksum=f"sha256:{digest}"),))
    )
    read, labels = data.corrupted("cifar10", "fog", 2, tmp_path)
    np.testing.assert_array_equal(read, grey(10 * KINDS.index("fog") + 2, number=4))
    assert (labels.dtype, labels.tolist()) == (np.int32, [0, 1, 2, 3])
    other, _ = data.corrupted("cifar10", "jpeg_compression", 5, tmp_path)
    assert other.max() == 10 * KINDS.index("jpeg_compression") + 5
    with pytest.raises(InputError, match="`kind` must be a known name; got 'rain'"):
        data.corrupted("cifar10", "rain", 2, tmp_path)
