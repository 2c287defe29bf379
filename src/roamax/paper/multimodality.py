"""Multimodality of draws: cosine similarity, error on a plane through three draws, error between pairs."""

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import BETTER, Comparison, exceeds
from roamax.paper.framework.geometry import geometry, panels
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.results import Findings

METHODS = ("DE", "cSGMCMC", "Meta-SGMCMC", "L2E")
IN_PARTS = "As in the paper, DE has several members, and each draw of cSGMCMC ends a cycle; the rest was searched for."


def run(lab: Lab) -> Findings:
    """Measure the geometry of each method's draws on CIFAR-10; the figure is that of the first seed."""
    problems = [problem.in_parts(problem.members) for problem in lab.problems("cifar10")]
    found = lab.measure(problems, METHODS, _record)
    columns = ("cosine", "error barrier", "NLL barrier", "KLD")
    rows = averaged(found, columns)
    better = {**BETTER, "cosine": "min"}
    table = Comparison("Distance between draws", ("Data set", "Method"), columns, rows, compared="rows", better=better)
    l2e, cyclical = (rows.get(("CIFAR-10", name), {}) for name in ("L2E", "cSGMCMC"))
    claims = {
        "Draws of L2E are less alike than those of cSGMCMC": exceeds(cyclical.get("cosine"), l2e.get("cosine")),
        "Barriers between draws of L2E are higher than between those of cSGMCMC": exceeds(
            l2e.get("error barrier"), cyclical.get("error barrier")
        ),
    }
    return Findings({"geometry": table}, panels(found), claims=claims, remarks=[IN_PARTS])


def _record(chain: Chain) -> Record:
    return {"KLD": chain.scores["kld"], **geometry(chain)}
