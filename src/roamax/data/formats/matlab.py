"""MATLAB 5.0: SVHN."""

import struct
import zlib
from pathlib import Path

import numpy as np

from roamax.data import archives
from roamax.data.archives import Arrays, check_complete

COMPRESSED = 15


def svhn(train: Path, test: Path) -> Arrays:
    """Read SVHN's cropped digits: MATLAB files with images of shape (32, 32, 3, n), and 10 as the label of zero."""
    arrays = {}
    for part, path in (("train", train), ("test", test)):
        with archives.reading(path):
            images, labels = _matlab(path)
            arrays[f"x_{part}"] = np.ascontiguousarray(np.moveaxis(images, 3, 0))
            arrays[f"y_{part}"] = labels.ravel().astype(np.int32) % 10
    return arrays


def _matlab(path: Path) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat

    _check_matlab_sizes(path)
    content = loadmat(path, appendmat=False, variable_names=("X", "y"))
    check_complete(("X", "y"), content)
    images, labels = content["X"], content["y"]
    if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype.kind not in "iu":
        raise ValueError(f"its X is {images.dtype} of shape {images.shape}, its y {labels.dtype}")
    return images, labels


def _check_matlab_sizes(path: Path) -> None:
    """Refuse arrays that claim to be larger than the file can hold, for which SciPy would allocate memory first."""
    with open(path, "rb") as file:
        header = file.read(128)
        if not header.startswith(b"MATLAB 5.0") or not header.endswith(b"IM"):
            raise ValueError("it does not begin as a little-endian MATLAB 5.0 file does")
        while tag := file.read(8):
            kind, length = struct.unpack("<2I", tag)
            start = file.read(min(length, 4096))
            compressed = kind == COMPRESSED
            # A compressed element contains a whole element, with its own tag.
            start = zlib.decompressobj().decompress(start, 4096)[8:] if compressed else start
            archives.check_claim(_matlab_data_bytes(start), length, archives.DEFLATE_RATIO if compressed else 1)
            file.seek(length - min(length, 4096), 1)


def _matlab_data_bytes(element: bytes) -> int:
    """Return the claimed length of the data of a numeric array, which follows its flags, its lengths and its name."""
    array_class, complex_flag = element[8], element[9] & 8
    if not 6 <= array_class <= 15 or complex_flag:
        raise ValueError("it holds something other than arrays of real numbers")
    place = 0
    for _ in range(3):
        kind, length = struct.unpack_from("<2I", element, place)
        # A short value may be stored in the tag itself, with its length in the upper half of the first word.
        place += 8 if kind >> 16 else 8 + length + -length % 8
    kind, length = struct.unpack_from("<2I", element, place)
    return kind >> 16 or length
