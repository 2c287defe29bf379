"""Text: IMDB reviews with a CNN-LSTM, data and a network unlike any in meta-training."""

from roamax.paper.framework.chain import scores
from roamax.paper.framework.comparison import BETTER, SCORES, Comparison, printed
from roamax.paper.framework.lab import Lab, averaged
from roamax.paper.framework.results import Findings

METHODS = ("DE", "cSGMCMC", "Meta-SGMCMC", "L2E")
PAPER = printed(SCORES, {
    ("IMDB", "DE"): ((0.867, 0.000), (0.386, 0.000)),
    ("IMDB", "cSGMCMC"): ((0.848, 0.007), (0.401, 0.032)),
    ("IMDB", "HMC"): ((0.868, 0.000), (0.308, 0.000)),
    ("IMDB", "Meta-SGMCMC"): ((0.820, 0.003), (0.401, 0.001)),
    ("IMDB", "L2E"): ((0.873, 0.001), (0.301, 0.001)),
})  # fmt: skip


def run(lab: Lab) -> Findings:
    """Score every method on IMDB."""
    rows = averaged(lab.measure(lab.problems("imdb"), METHODS, scores))
    table = Comparison("IMDB", ("Data set", "Method"), SCORES, rows, PAPER, compared="rows", better=BETTER)
    return Findings({"text": table})
