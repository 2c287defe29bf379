"""Data sets by name, with checksums; splits, corruptions, augmentation.

roamax.data.fetch("cifar10")
cifar10 = roamax.data.load("cifar10")
train, valid, test = roamax.data.split(cifar10)
"""

from roamax.data.augmentation import augment
from roamax.data.catalogue import Row, corrupted, fetch, load, names, table
from roamax.data.dataset import Dataset, Splits, split
from roamax.data.downloads import data_dir

__all__ = ["Dataset", "Row", "Splits", "augment", "corrupted", "data_dir", "fetch", "load", "names", "split", "table"]
