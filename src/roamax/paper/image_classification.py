"""Accuracy and NLL of the model average vs. the number of draws: the paper's main figure."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from roamax.evaluation.metrics import accuracy, nll
from roamax.evaluation.score import by_draws
from roamax.paper.framework.chain import Chain
from roamax.paper.framework.claims import Claim, above
from roamax.paper.framework.comparison import Comparison, Rows, Value
from roamax.paper.framework.lab import Lab, Record, averaged, methods_as_columns, published_hmc
from roamax.paper.framework.problems import IMAGES
from roamax.paper.framework.results import Findings
from roamax.report.figures import INK, legend, new_figure

METHODS = ("DE", "cSGMCMC", "Meta-SGMCMC", "L2E")


def run(lab: Lab) -> Findings:
    """Compare every method on every installed data set."""
    problems = lab.problems(*IMAGES)
    found = lab.measure(problems, METHODS, _record)
    curves = {key: [record["curve"] for record in records] for key, records in found.items()}
    rows = methods_as_columns(averaged(found, ("ACC", "NLL")))
    if any(problem.label == "CIFAR-10" for problem in problems):
        published = lab.attempt(published_hmc)
        if published is not None:
            for name, metric in (("ACC", accuracy), ("NLL", nll)):
                rows[name, "CIFAR-10"]["HMC"] = Value(metric(*published))
    table = Comparison(
        "Averaged prediction",
        ("Metric", "Data set"),
        (*METHODS, "HMC"),
        dict(sorted(rows.items(), key=lambda item: item[0][0])),
        better={"ACC": "max", "NLL": "min"},
    )
    packed = [{"data": label, "method": name, "curves": lines} for (label, name), lines in curves.items()]
    figures = {"by-draws": _figure(curves, rows)} if curves else {}
    return Findings({"scores": table}, figures, {"by_draws": packed}, claims(rows))


def claims(rows: Rows) -> list[Claim]:
    """Return what the paper finds, from the rows of the table."""
    return [
        above(f"L2E is more accurate than {rival}", row.get("L2E"), row.get(rival), data)
        for (metric, data), row in rows.items()
        for rival in METHODS
        if metric == "ACC" and rival != "L2E"
    ]


def _record(chain: Chain) -> Record:
    scores = chain.scores
    return {"ACC": scores["acc"], "NLL": scores["nll"], "curve": by_draws(chain.log_probs, chain.labels)}


def _figure(curves: Mapping[tuple[str, str], Any], rows: Mapping[tuple[str, str], Mapping[str, Value]]) -> Any:
    labels = list(dict.fromkeys(label for label, _ in curves))
    figure, axes = new_figure(len(labels), 2, width=3.4, height=2.6)
    lines: dict[str, Any] = {}
    for column, label in enumerate(labels):
        for row, key in enumerate(("acc", "nll")):
            axis = axes[row, column]
            for number, name in enumerate(METHODS):
                if (label, name) not in curves:
                    continue
                found = curves[label, name]
                values = np.array([curve[key] for curve in found])
                mean, spread = values.mean(axis=0), values.std(axis=0)
                color = f"C{number}"
                (lines[name],) = axis.plot(found[0]["draws"], mean, marker="o", markersize=3, color=color)
                axis.fill_between(found[0]["draws"], mean - spread, mean + spread, alpha=0.2, color=color)
            if "HMC" in rows.get((key.upper(), label), {}):
                lines["HMC"] = axis.axhline(rows[key.upper(), label]["HMC"].mean, color=INK, linestyle="--")
            axis.set_xlabel("number of draws")
            axis.set_ylabel(f"test {key.upper()}")
        axes[0, column].set_title(label, fontsize=9)
    legend(axes[0, 0], list(lines.values()), list(lines))
    return figure
