"""Parsers of the formats that the data sets are published in.

Each takes the paths of the published files, in the order of the registry, and gives arrays by the names `x_train`,
`y_train`, `x_test`, `y_test` (and `x_valid`, `y_valid` where the publishers have such a split). None of them uses
pickle. They raise whatever the decoders beneath them raise: `archives.reading` makes one line of it.
"""

import gzip
import io
import math
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from roamax.data import archives

Arrays = dict[str, np.ndarray]
MATLAB_COMPRESSED = 15
MEMBER_BYTES = 256 * 1024**2
"""No single file in the archives of images is larger."""


def idx(content: bytes) -> np.ndarray:
    """An array of bytes in gzipped IDX: two zero bytes, 8, the number of axes, big-endian lengths, the data."""
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
        raise ValueError(f"its header promises {math.prod(shape)} bytes of data, and others are there")
    return np.frombuffer(data, np.uint8).reshape(shape)


def mnist(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Arrays:
    """MNIST and Fashion-MNIST: four IDX files."""
    paths = {"x_train": train_images, "y_train": train_labels, "x_test": test_images, "y_test": test_labels}
    return {name: _parsed(path, lambda path: idx(path.read_bytes())) for name, path in paths.items()}


def _parsed(path: Path, parse: Callable[[Path], np.ndarray]) -> np.ndarray:
    """Name the one file of several that is damaged."""
    with archives.reading(path):
        return parse(path)


def emnist(split: str, first_label: int) -> Callable[[Path], Arrays]:
    """A split of EMNIST: IDX files in a zip archive, whose images are stored transposed."""
    members = {
        f"gzip/emnist-{split}-{part}-{what}-ubyte.gz": f"{name}_{part}"
        for part in ("train", "test")
        for name, what in (("x", "images-idx3"), ("y", "labels-idx1"))
    }

    def parse(archive: Path) -> Arrays:
        contents = dict(archives.zip_members(archive, members.__contains__, MEMBER_BYTES))
        _check_complete(members, contents)
        arrays = {members[member]: idx(content) for member, content in contents.items()}
        for part in ("train", "test"):
            arrays[f"x_{part}"] = np.swapaxes(arrays[f"x_{part}"], 1, 2)
            arrays[f"y_{part}"] = arrays[f"y_{part}"].astype(np.int32) - first_label
        return arrays

    return parse


def medmnist(path: Path) -> Arrays:
    """MedMNIST: an npz file with images and labels, of shape (n, 1), for train, val and test."""
    parts = {"train": "train", "val": "valid", "test": "test"}
    keys = {f"{part}_{what}": f"{name}_{ours}" for part, ours in parts.items()
            for name, what in (("x", "images"), ("y", "labels"))}  # fmt: skip
    arrays = archives.npz_arrays(path, keys.__contains__)
    _check_complete(keys, arrays)
    return {keys[key]: array for key, array in arrays.items()}


def cifar(train: Iterable[str], test: str, label_bytes: int) -> Callable[[Path], Arrays]:
    """CIFAR's binary version: records of labels, the last of them the one that counts, and 3 × 32 × 32 pixels."""
    train = tuple(train)

    def parse(archive: Path) -> Arrays:
        contents = dict(archives.tar_members(archive, {*train, test}.__contains__, MEMBER_BYTES))
        _check_complete((*train, test), contents)
        x_train, y_train = _cifar_records(b"".join(contents[name] for name in train), label_bytes)
        x_test, y_test = _cifar_records(contents[test], label_bytes)
        return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}

    return parse


def _cifar_records(content: bytes, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    length = label_bytes + 3 * 32 * 32
    if len(content) % length:
        raise ValueError(f"its {len(content)} bytes are not whole records of {length}")
    records = np.frombuffer(content, np.uint8).reshape(-1, length)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, label_bytes - 1]


def cifar10_c(archive: Path) -> Arrays:
    """All images of CIFAR-10-C: for each of the 15 kinds in turn, severities 1 to 5 one after the other."""
    from roamax.data.corruptions import KINDS

    parts = [cifar10_c_part(archive, kind, severity) for kind in KINDS for severity in range(1, 6)]
    return {"x_test": np.concatenate([x for x, _ in parts]), "y_test": np.concatenate([y for _, y in parts])}


def cifar10_c_part(archive: Path, kind: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of CIFAR-10-C of one kind and severity, read from their place in the tar archive.

    Each kind is an npy file of the five severities one after the other, each in the order of CIFAR-10's test set.
    """
    with tarfile.open(archive) as members:
        return _fifth(members, f"CIFAR-10-C/{kind}.npy", severity), _fifth(members, "CIFAR-10-C/labels.npy", severity)


def _fifth(archive: tarfile.TarFile, name: str, severity: int) -> np.ndarray:
    member = archive.getmember(name)
    stream = archive.extractfile(member)
    if stream is None:
        raise ValueError(f"{name} in it is not a file")
    header = archives.npy_header(stream)
    if header.fortran_order or header.dtype != np.uint8 or not header.shape or header.shape[0] % 5:
        raise ValueError(f"{name} in it is not bytes for five severities")
    archives.check_limit(name, header.num_bytes, MEMBER_BYTES)
    size = header.num_bytes // 5
    stream.seek(header.start + (severity - 1) * size)
    content = bytearray(stream.read(size))
    return np.frombuffer(content, np.uint8).reshape(header.shape[0] // 5, *header.shape[1:])


def svhn(train: Path, test: Path) -> Arrays:
    """SVHN's cropped digits: MATLAB files with images of shape (32, 32, 3, n), and 10 as the label of zero."""
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
    _check_complete(("X", "y"), content)
    images, labels = content["X"], content["y"]
    if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype.kind not in "iu":
        raise ValueError(f"its X is {images.dtype} of shape {images.shape}, its y {labels.dtype}")
    return images, labels


def _check_matlab_sizes(path: Path) -> None:
    """Refuse an array that is said to be longer than the file can hold: SciPy would set its memory aside first."""
    with open(path, "rb") as file:
        header = file.read(128)
        if not header.startswith(b"MATLAB 5.0") or not header.endswith(b"IM"):
            raise ValueError("it does not begin as a little-endian MATLAB 5.0 file does")
        while tag := file.read(8):
            kind, length = struct.unpack("<2I", tag)
            start = file.read(min(length, 4096))
            compressed = kind == MATLAB_COMPRESSED
            # What is compressed is a whole element, with a tag of its own.
            start = zlib.decompressobj().decompress(start, 4096)[8:] if compressed else start
            archives.check_claim(_matlab_data_bytes(start), length, archives.DEFLATE_RATIO if compressed else 1)
            file.seek(length - min(length, 4096), 1)


def _matlab_data_bytes(element: bytes) -> int:
    """How long the data of a numeric array are said to be: after its flags, its lengths and its name."""
    array_class, complex_flag = element[8], element[9] & 8
    if not 6 <= array_class <= 15 or complex_flag:
        raise ValueError("it holds something else than arrays of real numbers")
    place = 0
    for _ in range(3):
        kind, length = struct.unpack_from("<2I", element, place)
        # A short value may stand in the tag itself, which then has its length in the upper half of the first word.
        place += 8 if kind >> 16 else 8 + length + -length % 8
    kind, length = struct.unpack_from("<2I", element, place)
    return kind >> 16 or length


def tiny_imagenet(size: int) -> Callable[[Path], Arrays]:
    """Tiny-ImageNet: JPEG files in folders, in a zip archive; its validation set is the test set here.

    At `size` 32 each pixel is the mean of 2 × 2. Classes are numbered in the order of their WordNet names.
    """
    root = "tiny-imagenet-200"
    train_name = re.compile(rf"{root}/train/(n\d{{8}})/images/[^/]+\.JPEG").fullmatch
    valid_name = re.compile(rf"{root}/val/images/([^/]+\.JPEG)").fullmatch
    annotations = f"{root}/val/val_annotations.txt"

    def wanted(name: str) -> bool:
        return name == annotations or bool(train_name(name) or valid_name(name))

    def parse(archive: Path) -> Arrays:
        contents = dict(archives.zip_members(archive, wanted, 2**20))
        _check_complete([annotations], contents)
        lines = contents.pop(annotations).decode("ascii").splitlines()
        classes_of_valid = {
            f"{root}/val/images/{file}": name for file, name in (line.split("\t")[:2] for line in lines)
        }
        classes_of_train = {name: match[1] for name in contents if (match := train_name(name))}
        numbers = {name: i for i, name in enumerate(sorted(set(classes_of_train.values())))}
        _check_complete(classes_of_valid, contents)
        arrays = {}
        for part, classes in (("train", classes_of_train), ("test", classes_of_valid)):
            names = sorted(classes)
            arrays[f"x_{part}"] = _images([contents[name] for name in names], "JPEG", "RGB", 64, 64 // size)
            arrays[f"y_{part}"] = np.asarray([numbers[classes[name]] for name in names], np.int32)
        return arrays

    return parse


def notmnist(archive: Path) -> Arrays:
    """The small set of notMNIST: PNG files in a folder for each of the letters A to J. Two of them are empty."""
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
    """Decoded square images of `size`, each axis made smaller by `factor` with the means of the pixels."""
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


def imdb(archive: Path) -> Arrays:
    """IMDB's reviews as token ids: the 20,000 commonest words of the training set, the first 400 of each review."""
    from roamax.data import text

    name_of = re.compile(r"aclImdb/(train|test)/(neg|pos)/\d+_\d+\.txt").fullmatch
    members = archives.tar_members(archive, lambda name: name_of(name) is not None, 2**20)
    reviews = {name: text.tokens(content.decode("utf-8")) for name, content in members}
    names = {
        part: sorted(name for name in reviews if name.startswith(f"aclImdb/{part}/")) for part in ("train", "test")
    }
    words = text.vocabulary((reviews[name] for name in names["train"]), text.VOCABULARY_SIZE)
    arrays = {}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = text.encode([reviews[name] for name in names[part]], words, text.LENGTH)
        arrays[f"y_{part}"] = np.asarray(["/pos/" in name for name in names[part]], np.int32)
    return arrays


def _check_complete(names: Iterable[str], there: Iterable[str]) -> None:
    missing = sorted(set(names) - set(there))
    if missing:
        raise ValueError(f"{missing[0]} is missing from it")
