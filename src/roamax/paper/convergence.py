"""Effective sample size per second and the share of parameters with cR-hat < 1.1, whole and by layer."""

import numpy as np

from roamax.evaluation import diagnostics
from roamax.evaluation.compare import step_timer
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import Comparison, Rows, Value, printed
from roamax.paper.framework.lab import Lab, Record, averaged, methods_as_columns
from roamax.paper.framework.problems import IMAGES, Problem
from roamax.paper.framework.results import Findings
from roamax.report.geometry import rhat_by_layer

ROUNDS = 5
METHODS = ("cSGMCMC", "Meta-SGMCMC", "L2E")


PAPER = printed(METHODS, {
    ("ESS/s", "Fashion-MNIST"): ((219.85, 6.64), (33.34, 8.42), (136.31, 0.42)),
    ("ESS/s", "CIFAR-10"): ((56.61, 2.51), (17.31, 5.11), (82.97, 0.57)),
    ("ESS/s", "CIFAR-100"): ((41.14, 1.51), (48.29, 7.43), (63.81, 0.00)),
    ("ESS/s", "Tiny-ImageNet"): ((2.43, 0.01), (0.91, 0.19), (2.62, 0.00)),
    ("cR̂ < 1.1", "Fashion-MNIST"): (0.765, 0.524, 0.946),
    ("cR̂ < 1.1", "CIFAR-10"): (0.804, 0.160, 0.968),
    ("cR̂ < 1.1", "CIFAR-100"): (0.732, 0.750, 0.897),
    ("cR̂ < 1.1", "Tiny-ImageNet"): (0.737, 0.131, 0.806),
})  # fmt: skip
SHARE = "cR̂ < 1.1"
ESS_RULE = "tfp"
"""The paper's, so that its numbers can stand next to ours."""
UNIT = 1e5
"""The paper divides the sum of effective sample sizes over all parameters by this."""


DRAWS = 100
"""At least so many: with ten, even independent draws often have cR-hat > 1.1."""
CYCLES = 10
"""Cycles of cSGMCMC where their number is not tuned."""


def run(lab: Lab) -> Findings:
    """Compute both statistics from the draws of each method; the layers from the first seed on CIFAR-10."""
    problems = [_with_many_draws(problem) for problem in lab.problems(*IMAGES)]
    found = lab.measure(problems, METHODS, _record)
    layers = {name: records[0] for (label, name), records in found.items() if label == "CIFAR-10"}
    better = {"ESS/s": "max", SHARE: "max"}
    rows = methods_as_columns(averaged(found, tuple(better)))
    known = references()
    tables = {
        "convergence": Comparison(
            "Convergence",
            ("Metric", "Data set"),
            METHODS,
            rows,
            PAPER,
            better=better,
            untestable=untestable(rows, known),
        ),
        "references": known,
    }
    figures = {"layers": rhat_by_layer(layers)} if layers else {}
    remark = 'ESS is by the rule of TensorFlow Probability, as in the paper: `diagnostics.ess(draws, method="tfp")`.'
    return Findings(tables, figures, remarks=[remark])


def untestable(rows: Rows, known: Comparison) -> str:
    """Return why the chains cannot be compared, or nothing if one is nearer to its target than a random walk is."""
    walk = known.rows[("random walk",)][SHARE].mean
    shares = [value.mean for key, row in rows.items() if key[0] == SHARE for value in row.values()]
    if shares and max(shares) <= walk:
        return f"no chain has a larger share of {SHARE} than a random walk: at this length, none has converged."
    return ""


def _with_many_draws(problem: Problem) -> Problem:
    """Return the problem with `DRAWS` draws or more, from the same steps."""
    cyclical = {"cycles": CYCLES, **problem.hyper.get("cSGMCMC", {})}
    draws = max(DRAWS, problem.draws)
    thinning = problem.draws * problem.thinning // draws
    burn_in = problem.steps - draws * thinning
    return problem._replace(
        burn_in=burn_in, draws=draws, thinning=thinning, hyper={**problem.hyper, "cSGMCMC": cyclical}
    )


def references() -> Comparison:
    """Return what both statistics are of 1,000 independent numbers per draw, and of as many random walks."""
    steps = np.random.default_rng(0).standard_normal((1, DRAWS, 1000))
    kinds = {"independent draws": steps, "random walk": steps.cumsum(axis=1)}
    rows = {
        (name,): {
            SHARE: Value(diagnostics.share_under(diagnostics.chain_rhat(numbers))),
            "ESS per draw": Value(float(np.mean(diagnostics.ess(numbers, method=ESS_RULE))) / DRAWS),
        }
        for name, numbers in kinds.items()
    }
    return Comparison(f"References, {DRAWS} draws", ("Draws",), (SHARE, "ESS per draw"), rows)


def _record(chain: Chain) -> Record:
    steps = chain.draws.steps
    timer = step_timer(chain.method.sampler, chain.task)
    # Without compilation, whose time a kept chain, or that of another seed, does not spend.
    interval = float(np.median([timer() for _ in range(ROUNDS)])) * (steps[-1] - steps[0]) / (len(steps) - 1)
    found = diagnostics.summary(chain.draws)
    return {
        "ESS/s": diagnostics.ess_per_second(chain.draws, interval, ESS_RULE) / UNIT,
        SHARE: found["chain_rhat_share"],
        "diagnostics": {"parameters": found},
    }
