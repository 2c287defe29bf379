"""A sine with a gap: the mean and the 95 % band of L2E, a deep ensemble and HMC, and the band's width by region.

The network of the scales `cpu` and `long` is smaller than the paper's, so that HMC, there NUTS, can converge: chains
are continued until R-hat of the mean in the gap is small. At the scale `paper`, all is as in the paper.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.evaluation import diagnostics
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.claims import Claim, above
from roamax.paper.framework.comparison import Comparison, Rows, Value
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import Hyper, Problem
from roamax.paper.framework.results import Findings
from roamax.report.figures import INK, new_figure
from roamax.runs import read_config
from roamax.samplers.hmc import hmc, nuts
from roamax.sampling.runner import sample
from roamax.tasks import Task, TaskSpec
from roamax.types import Sampler


class Setting(NamedTuple):
    """The problem, the steps of each member of the ensemble, and HMC: its sampler, adaptation and draws per chain.

    If R-hat is not under `RHAT`, the next number of draws is taken.
    """

    problem: Problem
    member_steps: int
    reference: str
    sampler: Callable[..., Sampler]
    adaptation_steps: int
    draws: tuple[int, ...]
    remark: str


def _problem(network: Hyper, members: int) -> Problem:
    task = TaskSpec("regression_1d_gap", "mlp_regression", {**network, "noise_scale": 0.1})
    hyper = {"Adam DE": {"learning_rate": 0.01, "members": members}}
    return Problem("sine", task, burn_in=1000, draws=50, thinning=50, members=members, hyper=hyper)


CHAINS = 4
RHAT = 1.05
SMALL = Setting(
    _problem({"hidden": [20], "activation": "tanh"}, members=20),
    member_steps=1000,
    reference="NUTS",
    sampler=nuts,
    adaptation_steps=300,
    draws=(200, 400, 800, 1600),
    remark="The network has one layer of 20 units, the paper's two of 100.",
)
PAPER = Setting(
    _problem({"hidden": [100, 100]}, members=50),
    member_steps=300,
    reference="HMC",
    sampler=partial(hmc, num_integration_steps=100),
    adaptation_steps=1000,
    draws=(50,),
    remark="Network, steps and draws are the paper's; it does not say the noise, which is 0.1 here.",
)
RHAT_ROW, LARGEST = "R-hat", "largest R-hat"
GRID = np.linspace(-7.0, 6.0, 261)
REGIONS = {"in the data": ((-5, -1), (1, 4)), "in the gap": ((-1, 1),), "outside": ((-7, -5), (4, 6))}


def run(lab: Lab) -> Findings:
    """Measure band widths over seeds, without the noise of the data; the figure is that of the first seed."""
    setting = PAPER if lab.scale == "paper" else SMALL
    problem, reference = setting.problem, setting.reference
    if not lab.wants(problem.task.data, problem.label):
        return Findings()
    task = problem.task.build()
    ensemble = problem._replace(burn_in=0, draws=problem.members, thinning=setting.member_steps)
    l2e, members = lab.look(_chain_means, [lab.setup(problem, "L2E"), lab.setup(ensemble, "Adam DE")])
    exact, rhat = _exact(lab, task, setting)
    means = {name: found for name, found in (("L2E", l2e), ("DE", members), ("HMC", list(exact))) if found}
    rows = {("width of the band", name): _widths(found) for name, found in means.items()}
    heads = ("Metric", "Method")
    tables = {
        "bands": Comparison("Width of the 95 % band of the mean", heads, tuple(REGIONS), rows, compared="rows"),
        "rhat": Comparison(
            f"R-hat of {reference}, of the mean in the gap",
            heads,
            (LARGEST, "draws per chain"),
            {(RHAT_ROW, reference): {LARGEST: Value(rhat), "draws per chain": Value(exact.shape[1])}},
            digits=4,
            style="g",
        ),
    }
    remarks = [
        f"{setting.remark} DE has {problem.members} members by Adam, with {setting.member_steps} steps each; HMC is "
        f"{reference} with {CHAINS} chains, over which its standard deviation is."
    ]
    if not rhat < RHAT:
        remarks.append(f"{reference} did not reach an R-hat under {RHAT}: whether its band is wider is not testable.")
    figure = _figure(task, {name: found[0] for name, found in means.items()})
    measured = {key: row for table in tables.values() for key, row in table.rows.items()}
    return Findings(tables, {"bands": figure}, claims=claims(measured), remarks=remarks)


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds, from the rows of both tables; of HMC only if it has converged."""
    in_gap = {name: row.get("in the gap") for (_, name), row in rows.items()}
    converged = all(row[LARGEST].mean < RHAT for (metric, _), row in rows.items() if metric == RHAT_ROW)
    pairs = [("L2E", "DE"), ("HMC", "L2E")] if converged else [("L2E", "DE")]
    label = SMALL.problem.label
    return [
        above(f"In the gap, {wide} has a wider band than {narrow}", in_gap.get(wide), in_gap.get(narrow), label)
        for wide, narrow in pairs
    ]


def _exact(lab: Lab, task: Task, setting: Setting) -> tuple[np.ndarray, float]:
    """Return the means of each chain's draws of HMC on the grid, and the largest R-hat in the gap."""
    sampler = setting.sampler(task.posterior, adaptation_steps=setting.adaptation_steps)
    out = lab.runs / f"{setting.problem.label}-{setting.reference.lower()}"
    lab.count_time(out)
    means, rhat = np.zeros(0), np.inf
    config = out / "config.json"
    # A run that was continued does not go back to fewer draws.
    reached = read_config(config)["num_samples"] if config.exists() else 0
    for draws in filter(lambda draws: draws >= reached, setting.draws):
        found = sample(
            jax.random.key(0),
            sampler,
            task.init,
            task.train,
            burn_in=setting.adaptation_steps,
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
