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
    problems = lab.problems("cifar10", "cifar10_cnn", "mnist_mlp")
    found = lab.measure(problems, METHODS, _record)
    rows = averaged(found, COLUMNS)
    shown = {name: records[0] for (label, name), records in found.items() if label == "CIFAR-10"}
    table = Comparison("Meta-objective", ("Data set", "Method"), COLUMNS, rows, compared="rows", better=BETTER)
    return Findings({"objective": table}, {"segments": error_paths(shown)} if shown else {}, claims=claims(rows))


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds, on CIFAR-10 only, from the rows of the table."""
    bma, ce = (rows.get(("CIFAR-10", name), {}) for name in ("L2E", "CE L2E"))
    statement = "Draws of L2E are farther apart than those of CE L2E"
    return [above(statement, bma.get(key), ce.get(key), f"CIFAR-10, {key}") for key in ("error barrier", "KLD")]


def _record(chain: Chain) -> Record:
    return {**scores(chain), **geometry(chain)}
