"""A sine with a gap: the mean and the 95 % band of L2E, a deep ensemble and HMC, and the band's width by region."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.comparison import Comparison, Value, exceeds
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import CPU
from roamax.paper.framework.results import Findings
from roamax.report.figures import INK, new_figure
from roamax.samplers.hmc import hmc
from roamax.sampling.draws import Draws
from roamax.sampling.runner import sample
from roamax.tasks import Task

PROBLEM = CPU["regression"]._replace(burn_in=1000, draws=50, thinning=50)
MEMBERS, MEMBER_STEPS = 20, 2000
"""Fewer members than draws, and more steps in total than the others: longer steps diverge on these data, and with fewer
steps no member fits. With these most do; those that do not make the ensemble's band wide in the data."""
HMC: dict[str, Any] = {"num_integration_steps": 100, "step_size": 1e-3, "adaptation_steps": 100}
HMC_DRAWS: dict[str, Any] = {"burn_in": 300, "num_samples": 50, "thinning": 5}
GRID = np.linspace(-7.0, 6.0, 261)
REGIONS = {"in the data": ((-5, -1), (1, 4)), "in the gap": ((-1, 1),), "outside": ((-7, -5), (4, 6))}


def run(lab: Lab) -> Findings:
    """Measure band widths over seeds, without the noise of the data; the figure is that of the first seed."""
    task = PROBLEM.task.build()
    members = PROBLEM._replace(burn_in=0, draws=MEMBERS, thinning=MEMBER_STEPS, members=MEMBERS)
    l2e, ensemble = lab.look(_chain_means, [lab.setup(PROBLEM, "L2E"), lab.setup(members, "DE")])
    exact = [_means(task, _hmc(lab, task, seed)) for seed in lab.seeds]
    means = {name: found for name, found in (("L2E", l2e), ("DE", ensemble), ("HMC", exact)) if found}
    rows = {("width of the band", name): _widths(found) for name, found in means.items()}
    table = Comparison(
        "Width of the 95 % band of the mean", ("Metric", "Method"), tuple(REGIONS), rows, compared="rows"
    )
    in_gap = {name: row["in the gap"] for (_, name), row in rows.items()}
    claims = {
        "In the gap, the band of L2E is wider than that of DE": exceeds(in_gap.get("L2E"), in_gap.get("DE")),
        "In the gap, the band of HMC is wider than that of L2E": exceeds(in_gap.get("HMC"), in_gap.get("L2E")),
    }
    figure = _figure(task, {name: found[0] for name, found in means.items()})
    return Findings({"bands": table}, {"bands": figure}, claims=claims)


def _hmc(lab: Lab, task: Task, seed: int) -> Draws:
    key, sampler, out = jax.random.key(seed), hmc(task.posterior, **HMC), lab.runs / f"sine-hmc-seed{seed}"
    lab.count_time(out)
    return sample(key, sampler, task.init, task.train, out=out, progress=lab.progress, **HMC_DRAWS)


def _widths(means: list[np.ndarray]) -> dict[str, Value]:
    """Compute the mean width of each seed's band in each region."""
    widths = [2 * 1.96 * one.std(axis=0) for one in means]
    return {
        region: Value.over([float(width[_within(intervals)].mean()) for width in widths])
        for region, intervals in REGIONS.items()
    }


def _means(task: Task, draws: Draws) -> np.ndarray:
    """Compute each draw's mean on the grid."""
    x = jnp.asarray(GRID[:, None], task.test[0].dtype)
    return np.stack([np.asarray(task.apply(position, x)[0]) for position in draws])


def _chain_means(chain: Chain) -> np.ndarray:
    return _means(chain.task, chain.draws)


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
