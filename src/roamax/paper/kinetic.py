"""Kinetic L2E, which learns the kinetic energy's mean and keeps its guarantee, against L2E."""

import dataclasses

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.findings import Findings
from roamax.paper.framework.lab import Lab, Record, averaged, measure
from roamax.paper.framework.scores import BETTER, COLUMNS, printed, scores
from roamax.paper.multimodality import figures_of
from roamax.report.tables import Table

METHODS = ("Kinetic L2E", "L2E")
PAPER = {
    ("Fashion-MNIST", "Kinetic L2E"): printed(0.9175, 0.2425, 0.0104, 0.1334),
    ("Fashion-MNIST", "L2E"): printed(0.9166, 0.2408, 0.0078, 0.0507),
    ("CIFAR-10", "Kinetic L2E"): printed(0.9131, 0.2867, 0.0527, 0.4152),
    ("CIFAR-10", "L2E"): printed(0.9123, 0.2909, 0.0563, 0.4344),
    ("CIFAR-100", "Kinetic L2E"): printed(0.7013, 1.114, 0.1212, 1.735),
    ("CIFAR-100", "L2E"): printed(0.6999, 1.131, 0.1403, 1.749),
    ("Tiny-ImageNet", "Kinetic L2E"): printed(0.5561, 1.966, 0.1731, 1.907),
    ("Tiny-ImageNet", "L2E"): printed(0.5583, 1.846, 0.1423, 0.9139),
}


def run(lab: Lab) -> Findings:
    """Scores on each data set that is here, and the geometry of the draws on CIFAR-10."""
    problems = lab.problems("fashion_mnist", "cifar10", "cifar100", "tiny_imagenet")
    rows = averaged(measure(lab, problems, METHODS, scores))
    first = dataclasses.replace(lab, seeds=lab.seeds[:1])
    spaces = measure(first, lab.problems("cifar10"), METHODS, _space)
    table = Table("Kinetic L2E", ("Data set", "L2E"), COLUMNS, rows, PAPER, compared="rows", better=BETTER, digits=4)
    return Findings({"kinetic": table}, figures_of(spaces))


def _space(chain: Chain) -> Record:
    return {"space": chain.space}
