"""A sine with a gap: the mean and the 95 % band of L2E, a deep ensemble and HMC, and the band's width by region.

The network is smaller than the paper's (100-100), so that HMC, here NUTS, can converge: chains are continued until
R-hat of the mean in the gap is small.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roamax.evaluation import diagnostics
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.claims import Claim, above
from roamax.paper.framework.comparison import Comparison, Rows, Value
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import Problem
from roamax.paper.framework.results import Findings
from roamax.report.figures import INK, new_figure
from roamax.runs import read_config
from roamax.samplers.hmc import nuts
from roamax.sampling.runner import sample
from roamax.tasks import Task, TaskSpec

MEMBERS, MEMBER_STEPS = 20, 1000
PROBLEM = Problem(
    "sine",
    TaskSpec("regression_1d_gap", "mlp_regression", {"hidden": [20], "activation": "tanh", "noise_scale": 0.1}),
    burn_in=1000,
    draws=50,
    thinning=50,
    members=MEMBERS,
    hyper={"Adam DE": {"learning_rate": 0.01, "members": MEMBERS}},
)
CHAINS, ADAPTATION_STEPS = 4, 300
DRAWS = (200, 400, 800, 1600)
"""Draws per chain of NUTS: the next number is taken if R-hat is not under `RHAT`."""
RHAT = 1.05
EXACT = ("R-hat", "NUTS")
"""The row of R-hat."""
GRID = np.linspace(-7.0, 6.0, 261)
REGIONS = {"in the data": ((-5, -1), (1, 4)), "in the gap": ((-1, 1),), "outside": ((-7, -5), (4, 6))}


def run(lab: Lab) -> Findings:
    """Measure band widths over seeds, without the noise of the data; the figure is that of the first seed."""
    if not lab.wants(PROBLEM.task.data, PROBLEM.label):
        return Findings()
    task = PROBLEM.task.build()
    members = PROBLEM._replace(burn_in=0, draws=MEMBERS, thinning=MEMBER_STEPS)
    l2e, ensemble = lab.look(_chain_means, [lab.setup(PROBLEM, "L2E"), lab.setup(members, "Adam DE")])
    exact, rhat = _exact(lab, task)
    means = {name: found for name, found in (("L2E", l2e), ("DE", ensemble), ("HMC", list(exact))) if found}
    rows = {("width of the band", name): _widths(found) for name, found in means.items()}
    heads = ("Metric", "Method")
    tables = {
        "bands": Comparison("Width of the 95 % band of the mean", heads, tuple(REGIONS), rows, compared="rows"),
        "rhat": Comparison(
            "R-hat of NUTS, of the mean in the gap",
            heads,
            ("largest R-hat", "draws per chain"),
            {EXACT: {"largest R-hat": Value(rhat), "draws per chain": Value(exact.shape[1])}},
            digits=4,
            style="g",
        ),
    }
    remarks = [
        f"The network has one layer of 20 units, the paper's two of 100. DE has {MEMBERS} members by Adam; HMC is NUTS "
        f"with {CHAINS} chains, over which its standard deviation is."
    ]
    if not rhat < RHAT:
        remarks.append(f"NUTS did not reach an R-hat under {RHAT}: whether its band is wider is not testable.")
    figure = _figure(task, {name: found[0] for name, found in means.items()})
    measured = {key: row for table in tables.values() for key, row in table.rows.items()}
    return Findings(tables, {"bands": figure}, claims=claims(measured), remarks=remarks)


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds, from the rows of both tables; of HMC only if it has converged."""
    in_gap = {name: row.get("in the gap") for (_, name), row in rows.items()}
    pairs = [("L2E", "DE"), ("HMC", "L2E")] if rows[EXACT]["largest R-hat"].mean < RHAT else [("L2E", "DE")]
    return [
        above(f"In the gap, {wide} has a wider band than {narrow}", in_gap.get(wide), in_gap.get(narrow), PROBLEM.label)
        for wide, narrow in pairs
    ]


def _exact(lab: Lab, task: Task) -> tuple[np.ndarray, float]:
    """Return the means of each chain's draws of NUTS on the grid, and the largest R-hat in the gap."""
    sampler, out = nuts(task.posterior, adaptation_steps=ADAPTATION_STEPS), lab.runs / "sine-nuts"
    lab.count_time(out)
    means, rhat = np.zeros(0), np.inf
    config = out / "config.json"
    # A run that was continued does not go back to fewer draws.
    reached = read_config(config)["num_samples"] if config.exists() else 0
    for draws in filter(lambda draws: draws >= reached, DRAWS):
        found = sample(
            jax.random.key(0),
            sampler,
            task.init,
            task.train,
            burn_in=ADAPTATION_STEPS,
            num_samples=draws,
            num_chains=CHAINS,
            out=out,
            progress=lab.progress,
        )
        means = np.asarray(diagnostics.function_space(lambda params, x: task.apply(params, x)[0], found, _grid(task)))
        rhat = float(np.max(diagnostics.rhat(means[..., _within(REGIONS["in the gap"])])))
        if rhat < RHAT:
            break
    return means, rhat


def _widths(means: list[np.ndarray]) -> dict[str, Value]:
    """Compute the mean width of each seed's band in each region."""
    widths = [2 * 1.96 * one.std(axis=0) for one in means]
    return {
        region: Value.over([float(width[_within(intervals)].mean()) for width in widths])
        for region, intervals in REGIONS.items()
    }


def _chain_means(chain: Chain) -> np.ndarray:
    """Compute each draw's mean on the grid."""
    return np.stack([np.asarray(chain.task.apply(position, _grid(chain.task))[0]) for position in chain.draws])


def _grid(task: Task) -> jax.Array:
    return jnp.asarray(GRID[:, None], task.test[0].dtype)


def _within(intervals: tuple[tuple[float, float], ...]) -> np.ndarray:
    return np.any([(low < GRID) & (high > GRID) for low, high in intervals], axis=0)


def _figure(task: Task, bands: dict[str, np.ndarray]) -> Any:
    figure, axes = new_figure(max(1, len(bands)), width=3.6)
    x, y = (np.asarray(array) for array in task.train)
    for axis, (name, means) in zip(axes.flat, bands.items(), strict=False):
        middle, spread = means.mean(axis=0), 1.96 * means.std(axis=0)
        axis.fill_between(GRID, middle - spread, middle + spread, alpha=0.3)
        axis.plot(GRID, middle, linewidth=1.2)
        axis.plot(GRID, np.sin(GRID), color=INK, linestyle="--", linewidth=1)
        axis.plot(x[::5, 0], y[::5], ".", color="black", markersize=2)
        axis.set_ylim(-3, 3)
        axis.set_title(name, fontsize=9)
    return figure
