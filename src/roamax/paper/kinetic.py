"""Kinetic L2E, which learns the mean of the momentum, in the form that samples and in the printed one, vs. L2E."""

import dataclasses

from roamax.paper.framework.chain import scores
from roamax.paper.framework.comparison import BETTER, SCORES, Comparison, printed
from roamax.paper.framework.geometry import geometry, panels
from roamax.paper.framework.lab import Lab, averaged
from roamax.paper.framework.methods import KINETIC_AS_PRINTED
from roamax.paper.framework.problems import IMAGES
from roamax.paper.framework.results import Findings

METHODS = ("Kinetic L2E", KINETIC_AS_PRINTED, "L2E")
PAPER = printed(SCORES, {
    ("Fashion-MNIST", KINETIC_AS_PRINTED): (0.9175, 0.2425, 0.0104, 0.1334),
    ("Fashion-MNIST", "L2E"): (0.9166, 0.2408, 0.0078, 0.0507),
    ("CIFAR-10", KINETIC_AS_PRINTED): (0.9131, 0.2867, 0.0527, 0.4152),
    ("CIFAR-10", "L2E"): (0.9123, 0.2909, 0.0563, 0.4344),
    ("CIFAR-100", KINETIC_AS_PRINTED): (0.7013, 1.114, 0.1212, 1.735),
    ("CIFAR-100", "L2E"): (0.6999, 1.131, 0.1403, 1.749),
    ("Tiny-ImageNet", KINETIC_AS_PRINTED): (0.5561, 1.966, 0.1731, 1.907),
    ("Tiny-ImageNet", "L2E"): (0.5583, 1.846, 0.1423, 0.9139),
})  # fmt: skip
REMARK = (
    "Kinetic L2E samples the posterior in the limit of small steps, so that it is SGHMC but for its use of the "
    "gradient. The form that the paper prints, whose numbers are the paper's, keeps no known distribution; weights "
    "were trained in it."
)


def run(lab: Lab) -> Findings:
    """Score all on each installed data set, and show the geometry of the draws on CIFAR-10."""
    problems = lab.problems(*IMAGES)
    rows = averaged(lab.measure(problems, METHODS, scores))
    first = dataclasses.replace(lab, seeds=lab.seeds[:1])
    spaces = first.measure(lab.problems("cifar10"), METHODS, geometry)
    table = Comparison(
        "Kinetic L2E", ("Data set", "L2E"), SCORES, rows, PAPER, compared="rows", better=BETTER, digits=4
    )
    return Findings({"kinetic": table}, panels(spaces), remarks=[REMARK])
