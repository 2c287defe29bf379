"""IDX: MNIST, Fashion-MNIST and, in a zip archive, EMNIST."""

import gzip
import io
import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from roamax.data import archives
from roamax.data.archives import MEMBER_BYTES, Arrays, check_complete


def idx(content: bytes) -> np.ndarray:
    """Read an array of bytes in gzipped IDX: two zero bytes, 8, the number of axes, big-endian lengths, the data."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        magic = stream.read(4)
        if len(magic) != 4 or magic[:3] != b"\0\0\x08" or not 1 <= magic[3] <= 4:
            raise ValueError("it does not begin as an IDX file of bytes does")
        lengths = stream.read(4 * magic[3])
        if len(lengths) != 4 * magic[3]:
            raise ValueError("its header is cut short")
        shape = struct.unpack(f">{magic[3]}I", lengths)
        archives.check_claim(math.prod(shape), len(content))
        data = bytearray(stream.read(math.prod(shape) + 1))
    if len(data) != math.prod(shape):
        raise ValueError(f"its data are not the {math.prod(shape)} bytes that its header claims")
    return np.frombuffer(data, np.uint8).reshape(shape)


def mnist(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Arrays:
    """Read MNIST or Fashion-MNIST: four IDX files."""
    paths = {"x_train": train_images, "y_train": train_labels, "x_test": test_images, "y_test": test_labels}
    arrays = {}
    for name, path in paths.items():
        # Here as well, to name the damaged one of several files.
        with archives.reading(path):
            arrays[name] = idx(path.read_bytes())
    return arrays


def emnist(split: str, first_label: int) -> Callable[[Path], Arrays]:
    """Return a reader of a split of EMNIST: IDX files in a zip archive, with transposed images."""
    members = {
        f"gzip/emnist-{split}-{part}-{what}-ubyte.gz": f"{name}_{part}"
        for part in ("train", "test")
        for name, what in (("x", "images-idx3"), ("y", "labels-idx1"))
    }

    def read(archive: Path) -> Arrays:
        contents = dict(archives.zip_members(archive, members.__contains__, MEMBER_BYTES))
        check_complete(members, contents)
        arrays = {members[member]: idx(content) for member, content in contents.items()}
        for part in ("train", "test"):
            arrays[f"x_{part}"] = np.swapaxes(arrays[f"x_{part}"], 1, 2)
            arrays[f"y_{part}"] = arrays[f"y_{part}"].astype(np.int32) - first_label
        return arrays

    return read
