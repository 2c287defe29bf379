"""L2E trained for the model average vs. for single draws: barriers between its draws."""

from roamax.paper.framework.chain import Chain, scores
from roamax.paper.framework.claims import Claim, above
from roamax.paper.framework.comparison import BETTER, Comparison, Rows
from roamax.paper.framework.geometry import geometry
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.results import Findings
from roamax.report.geometry import error_paths

METHODS = ("CE L2E", "L2E")
COLUMNS = ("ACC", "NLL", "KLD", "error barrier", "NLL barrier")


def run(lab: Lab) -> Findings:
    """Compare both sets of weights; the paper shows the error along segments on CIFAR-10 as a figure."""
    problems = lab.problems("fashion_mnist", "cifar10", "cifar10_cnn", "mnist_mlp")
    found = lab.measure(problems, METHODS, _record)
    rows = averaged(found, COLUMNS)
    shown = {name: records[0] for (label, name), records in found.items() if label == "CIFAR-10"}
    table = Comparison("Meta-objective", ("Data set", "Method"), COLUMNS, rows, compared="rows", better=BETTER)
    return Findings({"objective": table}, {"segments": error_paths(shown)} if shown else {}, claims=claims(rows))


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds on CIFAR-10, for the data of its tables, from the rows of the table."""
    statement = "Draws of L2E are farther apart than those of CE L2E"
    return [
        above(statement, rows[data, "L2E"].get(key), rows[data, "CE L2E"].get(key), f"{data}, {key}")
        for data in ("Fashion-MNIST", "CIFAR-10")
        if {(data, name) for name in METHODS} <= rows.keys()
        for key in ("error barrier", "KLD")
    ]


def _record(chain: Chain) -> Record:
    return {**scores(chain), **geometry(chain)}
