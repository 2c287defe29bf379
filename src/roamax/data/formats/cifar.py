"""CIFAR's binary records, and the arrays of CIFAR-10-C, in tar archives."""

import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from roamax.data import archives
from roamax.data.archives import MEMBER_BYTES, Arrays, check_complete
from roamax.data.corruptions import KINDS


def cifar(train: Iterable[str], test: str, label_bytes: int) -> Callable[[Path], Arrays]:
    """Return a reader of CIFAR's binary version: records of labels, of which the last is used, and pixels."""
    train = tuple(train)

    def read(archive: Path) -> Arrays:
        contents = dict(archives.tar_members(archive, {*train, test}.__contains__, MEMBER_BYTES))
        check_complete((*train, test), contents)
        x_train, y_train = _cifar_records(b"".join(contents[name] for name in train), label_bytes)
        x_test, y_test = _cifar_records(contents[test], label_bytes)
        return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}

    return read


cifar10 = cifar(
    [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)],
    "cifar-10-batches-bin/test_batch.bin",
    label_bytes=1,
)
cifar100 = cifar(["cifar-100-binary/train.bin"], "cifar-100-binary/test.bin", label_bytes=2)


def _cifar_records(content: bytes, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    length = label_bytes + 3 * 32 * 32
    if len(content) % length:
        raise ValueError(f"its {len(content)} bytes are not whole records of {length}")
    records = np.frombuffer(content, np.uint8).reshape(-1, length)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, label_bytes - 1]


def cifar10_c(archive: Path) -> Arrays:
    """Read all images of CIFAR-10-C: for each of the 15 kinds in turn, severities 1 to 5."""
    parts = [cifar10_c_part(archive, kind, severity) for kind in KINDS for severity in range(1, 6)]
    return {"x_test": np.concatenate([x for x, _ in parts]), "y_test": np.concatenate([y for _, y in parts])}


def cifar10_c_part(archive: Path, kind: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels of one kind and severity of CIFAR-10-C directly from the tar archive.

    Each kind is an npy file with the five severities in turn, each in the order of CIFAR-10's test set.
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
