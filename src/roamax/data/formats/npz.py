"""NumPy archives: MedMNIST."""

from pathlib import Path

from roamax.data import archives
from roamax.data.archives import Arrays, check_complete

MEDMNIST = {
    f"{theirs}_{what}": f"{name}_{part}"
    for theirs, part in (("train", "train"), ("val", "valid"), ("test", "test"))
    for what, name in (("images", "x"), ("labels", "y"))
}
"""The fields of `Dataset`, by MedMNIST's names of arrays."""


def medmnist(path: Path) -> Arrays:
    """Read MedMNIST: an npz file with images and labels, of shape (n, 1), for train, val and test."""
    arrays = archives.npz_arrays(path, MEDMNIST.__contains__)
    check_complete(MEDMNIST, arrays)
    return {MEDMNIST[key]: array for key, array in arrays.items()}
