"""Telling foreign data apart by the confidence of the averaged prediction: AUROC."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roamax import data
from roamax.errors import FileError
from roamax.evaluation import metrics
from roamax.evaluation.evaluate import as_shape
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.findings import Findings
from roamax.paper.framework.lab import Lab, Record, averaged, measure, methods_as_columns
from roamax.report.tables import Table, Value

METHODS = ("DE", "cSGMCMC", "L2E")
FOREIGN = {
    "fashion_mnist": ("mnist", "notmnist"),
    "cifar10": ("cifar100", "svhn", "tiny_imagenet_32"),
    "cifar100": ("cifar10", "svhn", "tiny_imagenet_32"),
}
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN", "tiny_imagenet_32": "Tiny-ImageNet",
          "mnist": "MNIST", "notmnist": "notMNIST"}  # fmt: skip
IMAGES = 5000
"""Foreign images that are predicted at cpu scale, at most."""


def _paper(de: Value, cyclical: Value, l2e: Value, hmc: float) -> dict[str, Value]:
    return {"DE": de, "cSGMCMC": cyclical, "L2E": l2e, "HMC": Value(hmc)}


PAPER = {
    ("CIFAR-10", "CIFAR-100"): _paper(Value(0.844, 0.001), Value(0.833, 0.002), Value(0.857, 0.001), 0.853),
    ("CIFAR-10", "SVHN"): _paper(Value(0.837, 0.005), Value(0.858, 0.022), Value(0.944, 0.007), 0.892),
    ("CIFAR-10", "Tiny-ImageNet"): _paper(Value(0.859, 0.001), Value(0.842, 0.006), Value(0.884, 0.001), 0.849),
    ("CIFAR-100", "CIFAR-10"): _paper(Value(0.726, 0.000), Value(0.717, 0.001), Value(0.743, 0.002), 0.725),
    ("CIFAR-100", "SVHN"): _paper(Value(0.545, 0.013), Value(0.555, 0.006), Value(0.786, 0.004), 0.858),
    ("CIFAR-100", "Tiny-ImageNet"): _paper(Value(0.773, 0.001), Value(0.765, 0.001), Value(0.791, 0.008), 0.770),
}


def run(lab: Lab) -> Findings:
    """AUROC of every pair of data sets that is here."""
    rows: dict[tuple[str, str], dict[str, Value]] = {}
    for problem in lab.problems(*FOREIGN):
        names = [name for name in FOREIGN[problem.task.data] if _is_here(lab, name)]
        aurocs = functools.partial(_aurocs, names=names, count=None if lab.scale == "paper" else IMAGES)
        turned = methods_as_columns(averaged(measure(lab, [problem], METHODS, aurocs)))
        rows |= {(inside, outside): row for (outside, inside), row in turned.items()}
    better = {key[0]: "max" for key in [*rows, *PAPER]}
    return Findings({"auroc": Table("AUROC", ("In-dist", "OOD"), (*METHODS, "HMC"), rows, PAPER, better=better)})


def _is_here(lab: Lab, name: str) -> bool:
    try:
        data.load(name)
    except FileError as error:
        lab.note(str(error))
        return False
    return True


def _aurocs(chain: Chain, names: Sequence[str], count: int | None) -> Record:
    shape = np.shape(chain.task.test[0])[1:]
    foreign = {LABELS[name]: as_shape(_images(data.data_dir(), name, count), shape, name) for name in names}
    return {label: metrics.ood_auroc(chain.average, chain.predict(images)) for label, images in foreign.items()}


@functools.lru_cache(maxsize=4)
def _images(folder: Path, name: str, count: int | None) -> np.ndarray:
    return data.load(name, folder).x_test[:count].copy()
