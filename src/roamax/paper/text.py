"""Text: IMDB reviews with a CNN-LSTM, a kind of data and of network that no sampler was trained on."""

from roamax.paper.framework.findings import Findings
from roamax.paper.framework.lab import Lab, averaged, measure
from roamax.paper.framework.scores import BETTER, COLUMNS, printed, scores
from roamax.report.tables import Table

METHODS = ("DE", "cSGMCMC", "Meta-SGMCMC", "L2E")
PAPER = {
    ("IMDB", "DE"): printed((0.867, 0.000), (0.386, 0.000)),
    ("IMDB", "cSGMCMC"): printed((0.848, 0.007), (0.401, 0.032)),
    ("IMDB", "HMC"): printed((0.868, 0.000), (0.308, 0.000)),
    ("IMDB", "Meta-SGMCMC"): printed((0.820, 0.003), (0.401, 0.001)),
    ("IMDB", "L2E"): printed((0.873, 0.001), (0.301, 0.001)),
}


def run(lab: Lab) -> Findings:
    """Every method on IMDB."""
    rows = averaged(measure(lab, lab.problems("imdb"), METHODS, scores))
    table = Table("IMDB", ("Data set", "Method"), COLUMNS, rows, PAPER, compared="rows", better=BETTER)
    return Findings({"text": table})
