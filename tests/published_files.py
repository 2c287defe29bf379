"""Small files in the formats that data sets are published in, for the tests of their parsers."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

RNG = np.random.default_rng(0)


def images(number, *shape):
    return RNG.integers(0, 256, (number, *shape), np.uint8)


def labels(number, classes):
    return (np.arange(number) % classes).astype(np.uint8)


def idx(array):
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes(), 1, mtime=0)


def tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def picture(array, kind):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind)
    return buffer.getvalue()


def emnist(path, split, arrays):
    names = {"x": "images-idx3", "y": "labels-idx1"}
    members = {
        f"gzip/emnist-{split}-{part}-{names[name]}-ubyte.gz": idx(arrays[f"{name}_{part}"])
        for part in ("train", "test")
        for name in "xy"
    }
    return zipped(path, members)


def cifar_records(pixels, *labels):
    return np.concatenate([*(column[:, None] for column in labels), pixels.reshape(len(pixels), -1)], 1).tobytes()


def svhn(path, pixels, labels):
    savemat(path, {"X": np.moveaxis(pixels, 0, 3), "y": labels[:, None]}, do_compression=True)
    return path


def tiny_imagenet(path, train, valid):
    """`train` and `valid` map WordNet names to lists of pictures."""
    root = "tiny-imagenet-200"
    members = {f"{root}/wnids.txt": "\n".join(train), f"{root}/test/images/test_0.JPEG": b"no picture"}
    for name, pictures in train.items():
        members |= {f"{root}/train/{name}/images/{name}_{i}.JPEG": picture(p, "JPEG") for i, p in enumerate(pictures)}
    lines = []
    for name, pictures in valid.items():
        for content in pictures:
            file = f"val_{len(lines)}.JPEG"
            members[f"{root}/val/images/{file}"] = picture(content, "JPEG")
            lines.append(f"{file}\t{name}\t0\t0\t62\t62")
    members[f"{root}/val/val_annotations.txt"] = "\n".join(lines) + "\n"
    return zipped(path, members)


def cifar10_c(path, kinds, number):
    """Images that tell their kind and severity: 10 · (place of the kind) + severity."""
    severities = np.repeat(np.arange(1, 6, dtype=np.uint8), number)
    members = {"CIFAR-10-C/labels.npy": npy(np.tile(labels(number, 10), 5))}
    for place, kind in enumerate(kinds):
        pixels = np.broadcast_to((10 * place + severities)[:, None, None, None], (5 * number, 32, 32, 3))
        members[f"CIFAR-10-C/{kind}.npy"] = npy(np.ascontiguousarray(pixels))
    return tar(path, members, "w")


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
