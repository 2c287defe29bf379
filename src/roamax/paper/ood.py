"""AUROC of out-of-distribution detection by the confidence of the averaged prediction."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roamax import data
from roamax.evaluation import metrics
from roamax.evaluation.images import as_shape
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import Comparison, Value, printed
from roamax.paper.framework.lab import Lab, Record, averaged, methods_as_columns
from roamax.paper.framework.results import Findings

METHODS = ("DE", "cSGMCMC", "L2E")
OUTSIDE = {
    "fashion_mnist": ("mnist", "notmnist"),
    "cifar10": ("cifar100", "svhn", "tiny_imagenet_32"),
    "cifar100": ("cifar10", "svhn", "tiny_imagenet_32"),
}
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN", "tiny_imagenet_32": "Tiny-ImageNet",
          "mnist": "MNIST", "notmnist": "notMNIST"}  # fmt: skip
IMAGES = 5000
"""The most out-of-distribution images per data set at cpu scale."""


PAPER = printed((*METHODS, "HMC"), {
    ("CIFAR-10", "CIFAR-100"): ((0.844, 0.001), (0.833, 0.002), (0.857, 0.001), 0.853),
    ("CIFAR-10", "SVHN"): ((0.837, 0.005), (0.858, 0.022), (0.944, 0.007), 0.892),
    ("CIFAR-10", "Tiny-ImageNet"): ((0.859, 0.001), (0.842, 0.006), (0.884, 0.001), 0.849),
    ("CIFAR-100", "CIFAR-10"): ((0.726, 0.000), (0.717, 0.001), (0.743, 0.002), 0.725),
    ("CIFAR-100", "SVHN"): ((0.545, 0.013), (0.555, 0.006), (0.786, 0.004), 0.858),
    ("CIFAR-100", "Tiny-ImageNet"): ((0.773, 0.001), (0.765, 0.001), (0.791, 0.008), 0.770),
})  # fmt: skip


def run(lab: Lab) -> Findings:
    """Compute the AUROC of every pair of installed data sets."""
    rows: dict[tuple[str, str], dict[str, Value]] = {}
    for problem in lab.problems(*OUTSIDE):
        here = {name: lab.attempt(functools.partial(data.load, name)) for name in OUTSIDE[problem.task.data]}
        names = [name for name, found in here.items() if found is not None]
        aurocs = functools.partial(_aurocs, names=names, count=None if lab.scale == "paper" else IMAGES)
        turned = methods_as_columns(averaged(lab.measure([problem], METHODS, aurocs)))
        rows |= {(inside, outside): row for (outside, inside), row in turned.items()}
    better = {key[0]: "max" for key in [*rows, *PAPER]}
    return Findings({"auroc": Comparison("AUROC", ("In-dist", "OOD"), (*METHODS, "HMC"), rows, PAPER, better=better)})


def _aurocs(chain: Chain, names: Sequence[str], count: int | None) -> Record:
    shape = np.shape(chain.task.test[0])[1:]
    outside = {LABELS[name]: as_shape(_images(data.data_dir(), name, count), shape, name) for name in names}
    return {label: metrics.ood_auroc(chain.average, chain.predict(images)) for label, images in outside.items()}


@functools.lru_cache(maxsize=4)
def _images(folder: Path, name: str, count: int | None) -> np.ndarray:
    return data.load(name, folder).x_test[:count].copy()
