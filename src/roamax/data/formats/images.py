"""Pictures in archives: Tiny-ImageNet and notMNIST."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from roamax.data import archives
from roamax.data.archives import Arrays, check_complete


def tiny_imagenet(size: int) -> Callable[[Path], Arrays]:
    """Return a reader of Tiny-ImageNet: JPEG files in folders, in a zip archive.

    Its validation set serves as the test set. At `size` 32 each pixel is the mean of 2 × 2. Classes are numbered in the
    order of their WordNet ids.
    """
    root = "tiny-imagenet-200"
    train_name = re.compile(rf"{root}/train/(n\d{{8}})/images/[^/]+\.JPEG").fullmatch
    valid_name = re.compile(rf"{root}/val/images/([^/]+\.JPEG)").fullmatch
    annotations = f"{root}/val/val_annotations.txt"

    def wanted(name: str) -> bool:
        return name == annotations or bool(train_name(name) or valid_name(name))

    def read(archive: Path) -> Arrays:
        contents = dict(archives.zip_members(archive, wanted, 2**20))
        check_complete([annotations], contents)
        lines = contents.pop(annotations).decode("ascii").splitlines()
        classes_of_valid = {
            f"{root}/val/images/{file}": name for file, name in (line.split("\t")[:2] for line in lines)
        }
        classes_of_train = {name: match[1] for name in contents if (match := train_name(name))}
        numbers = {name: i for i, name in enumerate(sorted(set(classes_of_train.values())))}
        check_complete(classes_of_valid, contents)
        arrays = {}
        for part, classes in (("train", classes_of_train), ("test", classes_of_valid)):
            names = sorted(classes)
            arrays[f"x_{part}"] = _images([contents[name] for name in names], "JPEG", "RGB", 64, 64 // size)
            arrays[f"y_{part}"] = np.asarray([numbers[classes[name]] for name in names], np.int32)
        return arrays

    return read


def notmnist(archive: Path) -> Arrays:
    """Read the small set of notMNIST: PNG files, of which two are empty, in one folder per letter from A to J."""
    name_of = re.compile(r"notMNIST_small/([A-J])/[^/]+\.png").fullmatch
    members = archives.tar_members(archive, lambda name: name_of(name) is not None, 2**20)
    contents = {name: content for name, content in members if content}
    names = sorted(contents)
    labels = [ord(match[1]) - ord("A") for name in names if (match := name_of(name))]
    return {
        "x_test": _images([contents[name] for name in names], "PNG", "L", 28),
        "y_test": np.asarray(labels, np.int32),
    }


def _images(contents: list[bytes], kind: str, mode: str, size: int, factor: int = 1) -> np.ndarray:
    """Decode square images of `size` × `size` pixels, and downsample them by `factor` by averaging."""
    from concurrent.futures import ThreadPoolExecutor

    from PIL import Image

    def decode(content: bytes) -> np.ndarray:
        with Image.open(io.BytesIO(content), formats=(kind,)) as image:
            if image.size != (size, size):
                raise ValueError(f"an image in it has {image.size[0]} × {image.size[1]} pixels, not {size} × {size}")
            pixels = np.asarray(image.convert(mode))
        if factor == 1:
            return pixels
        blocks = pixels.reshape(size // factor, factor, size // factor, factor, -1)
        return np.rint(blocks.mean((1, 3))).astype(np.uint8)

    with ThreadPoolExecutor() as pool:
        return np.stack(list(pool.map(decode, contents)))
