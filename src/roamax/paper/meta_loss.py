"""The stability of meta-training: its loss over outer steps, for several values of epsilon squared."""

import dataclasses
import math
from typing import Any

import numpy as np

from roamax import meta
from roamax.meta import PRESETS, Stage, TrainConfig, log
from roamax.paper.framework.claims import Claim
from roamax.paper.framework.comparison import EPSILON_SQUARED, Comparison, Rows, Value
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.results import Findings
from roamax.report.figures import legend, new_figure

OUTER_STEPS = 80
"""The number of outer steps at cpu scale."""


def configs(scale: str) -> dict[str, dict[float, TrainConfig]]:
    """Return one config per learned sampler and epsilon squared."""
    if scale == "paper":
        families = {
            "L2E": (PRESETS["paper"], (1e-6, 1e-5, 1e-4)),
            "Meta-SGMCMC": (PRESETS["meta-sgmcmc"], (1e-7, 1e-6, 1e-5)),
        }
    else:
        smoke = PRESETS["smoke"]
        l2e = dataclasses.replace(smoke, stages=(dataclasses.replace(smoke.stages[0], outer_steps=OUTER_STEPS),))
        baseline = dataclasses.replace(
            smoke,
            sampler="meta_sgmcmc",
            objective="kl",
            chains=2,
            init_scale=1.0,
            stages=(Stage("tbptt", OUTER_STEPS, 400, 5, 10, truncation=50, learning_rate=0.003, only="hidden=16"),),
        )
        families = {"L2E": (l2e, (2e-5, 8e-5, 3.2e-4)), "Meta-SGMCMC": (baseline, (1e-5, 1e-4, 1e-3))}
    return {
        name: {size: dataclasses.replace(base, step_size=math.sqrt(size)) for size in sizes}
        for name, (base, sizes) in families.items()
    }


def run(lab: Lab) -> Findings:
    """Train each and read its log; at cpu scale, on the tiny tasks of the smoke preset."""
    curves: dict[str, dict[str, list[float]]] = {}
    rows = {}
    seed = lab.seeds[0]
    for name, by_size in configs(lab.scale).items():
        for size, config in by_size.items():
            config = dataclasses.replace(config, seed=seed)
            out = lab.runs / f"meta-{lab.scale}-{name.lower()}-{size:g}-seed{seed}"
            lab.count_time(out)
            trained = meta.train(config, out, engine=meta.LocalEngine, show=lab.progress)
            losses = [float(row.loss) for row in log.read_rows(trained.out / "log.csv") if row.loss]
            label = f"{EPSILON_SQUARED} {size:g}"
            curves.setdefault(name, {})[label] = losses
            tenth = max(1, len(losses) // 10)
            # A run that diverges from its first step has no loss at all.
            early, late = (np.asarray(part or [math.nan]) for part in (losses[:tenth], losses[-tenth:]))
            rows[name, label] = {
                "first": Value(float(early.mean())),
                "last": Value(float(late.mean()), float(late.std())),
                "best validation": Value(trained.loss),
            }
    columns = ("first", "last", "best validation")
    table = Comparison("Meta-loss", ("Sampler", "Run"), columns, rows)
    return Findings({"meta-loss": table}, {"meta-loss": _figure(curves)}, {"losses": curves}, claims(rows), seeds=1)


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds, from the rows of the table."""
    falls = all(row["last"].mean < row["first"].mean for (name, _), row in rows.items() if name == "L2E")
    l2e, other = (_spread(rows, name) for name in ("L2E", "Meta-SGMCMC"))
    return [
        Claim("The loss of L2E falls with every step size", falls),
        Claim(
            "The final loss depends less on the step size with L2E than with Meta-SGMCMC",
            l2e < other,
            here=(Value(l2e), Value(other)),
        ),
    ]


def _spread(rows: Rows, sampler: str) -> float:
    """Compute the range of a sampler's validation losses, which both samplers have in common."""
    return float(np.ptp([row["best validation"].mean for (name, _), row in rows.items() if name == sampler]))


def _figure(curves: dict[str, dict[str, list[float]]]) -> Any:
    figure, axes = new_figure(len(curves), width=4.0)
    for axis, (name, runs) in zip(axes.flat, curves.items(), strict=True):
        for label, losses in runs.items():
            axis.plot(range(1, len(losses) + 1), losses, linewidth=1, label=label)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("outer step")
        axis.set_ylabel("meta-loss")
        legend(axis)
    return figure
