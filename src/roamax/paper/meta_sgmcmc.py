"""Generalisation as Gong et al. measure it: to an unseen network (NT), activation (AF) and classes (Data).

Their Meta-SGMCMC was trained on half the classes with a smaller network. Here both samplers have the weights that ship,
which were trained on MNIST but not on CIFAR-10.
"""

import itertools

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import Comparison, Value, printed
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.problems import Problem
from roamax.paper.framework.results import Findings
from roamax.tasks import TaskSpec

METHODS = ("Meta-SGMCMC", "L2E")
KINDS = ("NT", "NT+AF", "NT+Data")
COLUMNS = tuple(f"{kind} {metric}" for metric in ("ACC", "NLL") for kind in KINDS)
NETWORKS = {
    "MNIST": {
        "NT": ("mlp", {"hidden": [40, 40]}, None),
        "NT+AF": ("mlp", {"hidden": [40, 40], "activation": "sigmoid"}, None),
        "NT+Data": ("mlp", {"hidden": [40, 40]}, (5, 6, 7, 8, 9)),
    },
    "CIFAR-10": {
        "NT": ("cnn_pooled", {}, None),
        "NT+AF": ("cnn_pooled", {"activation": "sigmoid"}, None),
        "NT+Data": ("cnn_pooled", {}, (5, 6, 7, 8, 9)),
    },
}
DATA = {"MNIST": "mnist", "CIFAR-10": "cifar10"}
UNITS = {"MNIST": 1, "CIFAR-10": 0.01}
"""Units of their tables: the NLL is summed over the test set, and in hundreds on CIFAR-10."""
STEPS = 500, 100
EPOCHS = 100, 10
"""Steps at cpu scale, and epochs at paper scale, of burn-in and between draws."""
HALVED = {"cpu": ("CIFAR-10",)}
"""Data sets whose images are halved to save time, by scale."""
DRAWS = 20
BATCH_SIZE = 128


PAPER = printed(COLUMNS, {
    ("CIFAR-10", "Meta-SGMCMC"): ((78.12, 0.035), (74.41, 0.11), (89.97, 0.04), (68.88, 0.15), (79.55, 0.057),
                                        (15.66, 0.28)),
    ("CIFAR-10", "L2E"): ((79.21, 0.203), (75.91, 0.2), (92.49, 0.234), (63.23, 0.46), (72.11, 0.22),
                                (11.82, 0.81)),
    ("MNIST", "Meta-SGMCMC"): ((98.36, 0.02), (97.72, 0.02), (98.62, 0.02), (640, 6.25), (875, 3.19),
                                     (230, 3.23)),
    ("MNIST", "L2E"): ((98.39, 0.05), (98.07, 0.08), None, (558, 3.19), (679, 6.65), None),
})  # fmt: skip


def run(lab: Lab) -> Findings:
    """Compute accuracy in percent and NLL in their units."""
    problems = [found for pair in itertools.product(NETWORKS, KINDS) if (found := _problem(lab, *pair))]
    rows: dict[tuple[str, str], dict[str, Value]] = {}
    for (where, name), row in averaged(lab.measure(problems, METHODS, _record)).items():
        label, kind = where.split()
        entries = rows.setdefault((label, name), {})
        entries[f"{kind} ACC"] = row["ACC"]
        entries[f"{kind} NLL"] = Value(*(UNITS[label] * number for number in row["NLL"] if number is not None))
    better = {column: "max" if column.endswith("ACC") else "min" for column in COLUMNS}
    table = Comparison("Generalisation", ("Data set", "Method"), COLUMNS, rows, PAPER, "rows", better, digits=2)
    return Findings({"generalisation": table})


def _problem(lab: Lab, label: str, kind: str) -> Problem | None:
    if not lab.wants(DATA[label], label):
        return None
    network, options, classes = NETWORKS[label][kind]
    halve = label in HALVED.get(lab.scale, ())
    spec = TaskSpec(DATA[label], network, options, classes=classes, halve=halve, batch_size=BATCH_SIZE)
    task = lab.attempt(spec.build)
    if task is None:
        return None
    epoch = task.posterior.num_data // spec.batch_size
    burn_in, thinning = [epochs * epoch for epochs in EPOCHS] if lab.scale == "paper" else STEPS
    return Problem(f"{label} {kind}", spec, burn_in, DRAWS, thinning, DRAWS, {})


def _record(chain: Chain) -> Record:
    return {"ACC": 100 * chain.scores["acc"], "NLL": len(chain.labels) * chain.scores["nll"]}
