"""Do draws lie in several modes? Cosine similarity, error on a plane through three draws, error between pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import BETTER, Comparison, exceeds
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.results import Findings
from roamax.report import geometry

METHODS = ("DE", "cSGMCMC", "Meta-SGMCMC", "L2E")


def run(lab: Lab) -> Findings:
    """The geometry of each method's draws on CIFAR-10, and its figure from the first seed."""
    found = lab.measure(lab.problems("cifar10"), METHODS, _record)
    columns = ("cosine", "error barrier", "NLL barrier", "KLD")
    rows = averaged(found, columns)
    better = {**BETTER, "cosine": "min"}
    table = Comparison("How far apart draws are", ("Data set", "Method"), columns, rows, compared="rows", better=better)
    l2e, cyclical = (rows.get(("CIFAR-10", name), {}) for name in ("L2E", "cSGMCMC"))
    claims = {
        "Draws of L2E are less alike than those of cSGMCMC": exceeds(cyclical.get("cosine"), l2e.get("cosine")),
        "Barriers between draws of L2E are higher than between those of cSGMCMC": exceeds(
            l2e.get("error barrier"), cyclical.get("error barrier")
        ),
    }
    return Findings({"geometry": table}, figures_of(found), claims=claims)


def _record(chain: Chain) -> Record:
    space = chain.space
    return {"space": space, "KLD": chain.scores["kld"], **geometry_numbers(space)}


def geometry_numbers(record: dict) -> dict[str, float]:
    """The mean similarity of different draws, and the mean height of barriers between successive ones."""
    cosine = np.asarray(record["cosine"])
    different = ~np.eye(len(cosine), dtype=bool)
    return {
        "cosine": float(cosine[different].mean()),
        "error barrier": float(np.mean(record["segments"]["error_barrier"])),
        "NLL barrier": float(np.mean(record["segments"]["nll_barrier"])),
    }


def figures_of(found: Mapping[tuple[str, str], Sequence[Record]]) -> dict[str, Any]:
    """The paper's three panels, a method each column, of the first seed."""
    shown = {name: records[0] for (_, name), records in found.items()}
    if not shown:
        return {}
    return {
        "cosine": geometry.cosine_matrices(shown),
        "surface": geometry.error_surfaces(shown),
        "segments": geometry.error_paths(shown),
    }
