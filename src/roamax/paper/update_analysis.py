"""Step lengths and training NLL over a run, and contours of the learned network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from roamax.evaluation import landscape
from roamax.evaluation.compare import Method
from roamax.host import files
from roamax.paper.framework.claims import Claim, above, below
from roamax.paper.framework.comparison import Comparison, Rows, Value
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.problems import Problem
from roamax.paper.framework.results import Findings
from roamax.report.figures import colorbar, legend, new_figure
from roamax.tasks import Task

METHODS = ("DE", "cSGMCMC", "L2E")
EPOCHS = 200
"""The most epochs of a run, as in the paper."""


def run(lab: Lab) -> Findings:
    """Measure |theta_{t+1} - theta_t|^2 and training NLL on the installed CIFARs; draw the contours of L2E."""
    records: dict[tuple[str, str], landscape.StepNorms] = {}
    rows: dict[tuple[str, str], dict[str, Value]] = {}
    weights: str | None = None
    for problem in lab.problems("cifar10", "cifar100"):
        # One member, so that training goes from beginning to end, like the run of a sampler.
        problem = problem.in_parts(members=1)
        for method, task, folder in lab.methods(problem, METHODS):
            record = _steps_of(lab, problem, method, task, folder.with_name(f"{folder.name}-steps.safetensors"))
            records[problem.label, method.name] = record
            cycle = method.sampler.settings.get("cycle_length", 1)
            rows[problem.label, method.name] = _early_and_late(np.asarray(record.squared_norm), cycle)
            if method.name == "L2E":
                weights = lab.weights_of(problem, "L2E")
    figures = {"steps": _steps(records)} if records else {}
    if weights is not None:
        figures["contours"] = _contours(landscape.network_contours(weights))
    columns = ("early", "late", "late / early")
    table = Comparison("Squared length of a step", ("Data set", "Method"), columns, rows, digits=5)
    return Findings({"steps": table}, figures, claims=claims(rows), seeds=1)


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds, from the rows of the table."""
    longer = "Late steps of L2E are longer than early ones"
    shorter = "Late steps of DE and cSGMCMC are shorter than early ones"
    return [
        above(longer, row["late"], row["early"], data)
        if name == "L2E"
        else below(shorter, row["late"], row["early"], f"{data}, {name}")
        for (data, name), row in rows.items()
    ]


def _steps_of(lab: Lab, problem: Problem, method: Method, task: Task, path: Path) -> landscape.StepNorms:
    """Measure the steps of a run with the first seed, or read them from a file."""
    if path.exists():
        return landscape.StepNorms(**files.read_tensors(path))
    key = jax.random.key(lab.seeds[0])
    record = landscape.step_norms(
        key,
        method.sampler,
        task.posterior,
        task.init(jax.random.fold_in(key, 0)),
        task.train,
        num_steps=min(problem.steps, EPOCHS * task.posterior.num_data // task.batch_size),
        batch_size=task.batch_size,
    )
    files.make_folder(path.parent)
    arrays = {name: np.asarray(values) for name, values in record._asdict().items()}
    files.write_bytes(path, files.pack_tensors(arrays))
    return record


def _early_and_late(squares: np.ndarray, cycle: int) -> dict[str, Value]:
    """Compute means over the second twentieth and the last quarter: after the initial descent, and at the minimum.

    Both are whole cycles, so that they differ in the place of the chain and not in the schedule. The spread is that
    over cycles or, without cycles, over fifths.
    """
    twentieth, quarter = (max(1, round(len(squares) / parts / cycle)) * cycle for parts in (20, 4))
    windows = squares[twentieth : 2 * twentieth], squares[-quarter:]
    pieces = [np.array_split(window, len(window) // cycle if cycle > 1 else min(5, len(window))) for window in windows]
    early, late = (Value.over([float(piece.mean()) for piece in found]) for found in pieces)
    return {"early": early, "late": late, "late / early": Value(late.mean / early.mean)}


def _steps(records: Mapping[tuple[str, str], landscape.StepNorms]) -> Any:
    labels = list(dict.fromkeys(label for label, _ in records))
    figure, axes = new_figure(2, len(labels), width=4.0, height=2.8)
    for row, label in zip(axes, labels, strict=True):
        for (where, name), record in records.items():
            if where != label:
                continue
            for axis, values in zip(row, (record.squared_norm, record.nll), strict=True):
                axis.plot(_smoothed(np.asarray(values)), linewidth=1, label=name)
        for axis, text in zip(row, (r"$\|\Delta\theta\|^2$", "training NLL"), strict=True):
            axis.set_yscale("log")
            axis.set_xlabel("step")
            axis.set_ylabel(f"{label}: {text}")
    legend(axes[0, 0])
    return figure


def _smoothed(values: np.ndarray, width: int = 20) -> np.ndarray:
    return np.convolve(values, np.ones(width) / width, mode="valid") if len(values) > width else values


def _contours(found: landscape.NetworkContours) -> Any:
    figure, axes = new_figure(3, 2, width=2.8, height=2.4)
    rows = (
        (found.gradient_momentum.beta, found.parameters, r"$|\beta|$", r"$\theta$", ("momentum", "gradient")),
        (found.parameter_gradient.alpha, found.momenta, r"$|\alpha|$", "r", ("gradient", "parameter")),
    )
    for row, (grids, fixed, symbol, letter, (across, up)) in zip(axes, rows, strict=True):
        for axis, grid, value in zip(row, grids, fixed, strict=True):
            filled = axis.contourf(found.axis, found.axis, grid, levels=12, cmap="viridis")
            axis.set_title(f"{symbol} at {letter} = {value:g}", fontsize=8)
            axis.set_xlabel(across)
            axis.set_ylabel(up)
            colorbar(figure, axis, filled)
    return figure
