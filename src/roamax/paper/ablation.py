"""Ablation of the task distribution and the parameterisation: small, precond and full L2E, 10 draws."""

from roamax.paper.framework.chain import scores
from roamax.paper.framework.claims import Claim, below
from roamax.paper.framework.comparison import BETTER, SCORES, Comparison, Rows, printed
from roamax.paper.framework.lab import Lab, averaged
from roamax.paper.framework.problems import IMAGES
from roamax.paper.framework.results import Findings

METHODS = ("Small L2E", "Precond L2E", "L2E")
PAPER = printed(SCORES, {
    ("Fashion-MNIST", "Small L2E"): (0.9158, 0.2520, 0.0120, 0.0797),
    ("Fashion-MNIST", "Precond L2E"): (0.8801, 0.3461, 0.0382, 0.2597),
    ("Fashion-MNIST", "L2E"): (0.9166, 0.2408, 0.0078, 0.0507),
    ("CIFAR-10", "Small L2E"): (0.8952, 0.3465, 0.0610, 0.5008),
    ("CIFAR-10", "Precond L2E"): (0.7503, 0.7950, 0.1349, 0.4126),
    ("CIFAR-10", "L2E"): (0.9009, 0.3231, 0.0480, 0.6263),
    ("CIFAR-100", "Small L2E"): (0.6536, 1.3067, 0.1237, 1.4391),
    ("CIFAR-100", "Precond L2E"): (0.3397, 2.6761, 0.1508, 0.7449),
    ("CIFAR-100", "L2E"): (0.6702, 1.2345, 0.1224, 1.2632),
    ("Tiny-ImageNet", "Small L2E"): (0.4759, 2.318, 0.0672, 2.8437),
    ("Tiny-ImageNet", "L2E"): (0.5287, 1.979, 0.1478, 0.8124),
})  # fmt: skip


MORE = ("cifar10_cnn", "mnist_mlp")
"""Networks and data that are not in the paper, to measure the effect of the task distribution. The preconditioner is
left out there, because its steps take three times as long."""


def run(lab: Lab) -> Findings:
    """Score each set of weights on each installed data set."""
    theirs, more = ([problem._replace(draws=10) for problem in lab.problems(*names)] for names in (IMAGES, MORE))
    found = lab.measure(theirs, METHODS, scores) | lab.measure(more, ("Small L2E", "L2E"), scores)
    rows = averaged(found)
    table = Comparison("Ablation", ("Data set", "L2E"), SCORES, rows, PAPER, compared="rows", better=BETTER, digits=4)
    return Findings({"ablation": table}, claims=claims(rows))


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds on its data, from the rows of the table."""
    nll = {key: row.get("NLL") for key, row in rows.items()}
    return [
        below("L2E has a lower NLL than its variants", nll.get((data, "L2E")), nll.get((data, name)), f"{data}, {name}")
        for data in dict.fromkeys(data for data, _ in PAPER)
        for name in METHODS[:2]
    ]
