"""A sine with a gap: the mean and the 95 % band of L2E, a deep ensemble and HMC, and how wide the band is where."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import DivergenceError, InputError
from roamax.experiments import methods
from roamax.experiments.findings import Findings
from roamax.experiments.lab import Lab
from roamax.experiments.problems import Problem
from roamax.experiments.tables import Table, Value
from roamax.report.figures import INK, new_figure
from roamax.samplers.hmc import hmc
from roamax.sampling import sample
from roamax.tasks import Task, TaskSpec

PROBLEM = Problem(
    "sine with a gap",
    TaskSpec("regression_1d_gap", "mlp_regression", {"hidden": [100, 100], "noise_scale": 0.1}, batch_size=128),
    burn_in=1000,
    draws=50,
    thinning=50,
    members=50,
    hyper={"DE": {"step_size": 1e-4, "momentum_decay": 0.1}},
)
MEMBER_STEPS = 300
HMC: dict[str, Any] = {"num_integration_steps": 100, "step_size": 1e-3, "adaptation_steps": 100}
HMC_DRAWS: dict[str, Any] = {"burn_in": 100, "num_samples": 50, "thinning": 2}
GRID = np.linspace(-7.0, 6.0, 261)
REGIONS = {"in the data": ((-5, -1), (1, 4)), "in the gap": ((-1, 1),), "outside": ((-7, -5), (4, 6))}


def run(lab: Lab) -> Findings:
    """Band widths over seeds; the figure is of the first. The noise of the data is known and not part of the band."""
    task = lab.task(PROBLEM.task)
    rows, bands = {}, {}
    for name, means_of in {"L2E": _method, "DE": _method, "HMC": _hmc}.items():
        try:
            found = [means_of(lab, task, name, seed) for seed in lab.seeds]
        except (InputError, DivergenceError) as error:
            lab.note(f"{name}: {error}")
            continue
        widths = [2 * 1.96 * means.std(axis=0) for means in found]
        bands[name] = found[0]
        rows["width of the band", name] = {
            region: Value.over([float(width[_within(intervals)].mean()) for width in widths])
            for region, intervals in REGIONS.items()
        }
    table = Table("Width of the 95 % band of the mean", ("Metric", "Method"), tuple(REGIONS), rows, compared="rows")
    return Findings({"bands": table}, {"bands": _figure(task, bands)})


def _method(lab: Lab, task: Task, name: str, seed: int) -> np.ndarray:
    """Each draw's mean on the grid."""
    problem = PROBLEM._replace(burn_in=0, thinning=MEMBER_STEPS) if name == "DE" else PROBLEM
    method = methods.method(name, problem, task, lab.hyper(problem, name))
    draws = sample(
        jax.random.key(seed),
        method.sampler,
        task.init,
        task.train,
        batch_size=method.batch_size,
        burn_in=method.burn_in,
        num_samples=method.num_samples,
        thinning=method.thinning,
        progress=lab.progress,
    )
    return _means(task, draws)


def _hmc(lab: Lab, task: Task, name: str, seed: int) -> np.ndarray:
    key, sampler = jax.random.key(seed), hmc(task.posterior, **HMC)
    return _means(task, sample(key, sampler, task.init, task.train, progress=lab.progress, **HMC_DRAWS))


def _means(task: Task, draws: Any) -> np.ndarray:
    x = jnp.asarray(GRID[:, None], task.test[0].dtype)
    return np.stack([np.asarray(task.apply(position, x)[0]) for position in draws])


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
