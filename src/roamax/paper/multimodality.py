"""Multimodality of draws: cosine similarity, error on a plane through three draws, error between pairs."""

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.claims import Claim, above, below
from roamax.paper.framework.comparison import BETTER, Comparison, Rows
from roamax.paper.framework.geometry import geometry, panels
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.results import Findings

METHODS = ("DE", "cSGMCMC", "Meta-SGMCMC", "L2E")
IN_PARTS = "As in the paper, DE has several members, and each draw of cSGMCMC ends a cycle; the rest was searched for."


def run(lab: Lab) -> Findings:
    """Measure the geometry of each method's draws; the figure is that of the first seed, on CIFAR-10 if it was run."""
    problems = [problem.in_parts(problem.members) for problem in lab.problems("fashion_mnist", "cifar10")]
    found = lab.measure(problems, METHODS, _record)
    columns = ("cosine", "error barrier", "NLL barrier", "KLD")
    rows = averaged(found, columns)
    better = {**BETTER, "cosine": "min"}
    table = Comparison("Distance between draws", ("Data set", "Method"), columns, rows, compared="rows", better=better)
    pictured = {key: records for key, records in found.items() if key[0] == problems[-1].label}
    return Findings({"geometry": table}, panels(pictured), claims=claims(rows), remarks=[IN_PARTS])


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds on CIFAR-10, for each data set, from the rows of the table."""
    found = []
    for data in dict.fromkeys(data for data, _ in rows):
        l2e, cyclical = (rows.get((data, name), {}) for name in ("L2E", "cSGMCMC"))
        alike, barriers = ((l2e.get(key), cyclical.get(key)) for key in ("cosine", "error barrier"))
        found += [
            below("Draws are less alike with L2E than with cSGMCMC", *alike, f"{data}, cosine"),
            above("Error barriers between draws are higher with L2E than with cSGMCMC", *barriers, data),
        ]
    return found


def _record(chain: Chain) -> Record:
    return {"KLD": chain.scores["kld"], **geometry(chain)}
