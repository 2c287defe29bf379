"""Trained for the model average or for single draws: barriers between the draws of L2E."""

from roamax.experiments.findings import Findings
from roamax.experiments.lab import Chain, Lab, measure
from roamax.experiments.multimodality import geometry_numbers
from roamax.experiments.scores import BETTER, scores
from roamax.experiments.tables import Table, exceeds
from roamax.report.geometry import error_paths

METHODS = ("CE L2E", "L2E")
COLUMNS = ("ACC", "NLL", "KLD", "error barrier", "NLL barrier")


def run(lab: Lab) -> Findings:
    """Both sets of weights on CIFAR-10; the paper shows the error along segments as a figure."""
    shown: dict[str, dict] = {}

    def of_chain(chain: Chain) -> dict[str, float]:
        record = chain.space
        shown.setdefault(chain.method.name, {"space": record})
        return {**scores(chain), **geometry_numbers(record)}

    rows = measure(lab, lab.problems("cifar10"), METHODS, of_chain)
    better = {**BETTER, "error barrier": "max", "NLL barrier": "max"}
    table = Table("Meta-objective", ("Data set", "Method"), COLUMNS, rows, compared="rows", better=better)
    bma, ce = (rows.get(("CIFAR-10", name), {}) for name in ("L2E", "CE L2E"))
    claims = {
        "Trained for the average, L2E has higher barriers between its draws": exceeds(
            bma.get("error barrier"), ce.get("error barrier")
        ),
        "Trained for the average, L2E has more diverse draws (KLD)": exceeds(bma.get("KLD"), ce.get("KLD")),
    }
    return Findings({"objective": table}, {"segments": error_paths(shown)} if shown else {}, claims=claims)
