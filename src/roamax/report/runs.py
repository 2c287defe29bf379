"""The page that compares runs, from their `metrics.json` records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roamax.evaluation.metrics import Reliability
from roamax.report import figures, geometry
from roamax.report.page import Figure, write_page
from roamax.report.table import Column, from_records

CLASSIFICATION = [
    Column("name", "run"),
    Column("acc", "accuracy", ".4f", "max"),
    Column("nll", "NLL", ".4f", "min"),
    Column("ece", "ECE", ".4f", "min"),
    Column("brier", "Brier", ".4f", "min"),
    Column("kld", "KLD", ".4f", "max"),
    Column("draws", "draws", "d"),
    Column("chain_rhat", "cR-hat < 1.1", ".3f", "max"),
    Column("milliseconds", "ms / step", ".2f", "min"),
]
REGRESSION = [
    Column("name", "run"),
    Column("rmse", "RMSE", ".4f", "min"),
    Column("nll", "NLL", ".4f", "min"),
    Column("gaussian_nll", "NLL of one Gaussian", ".4f", "min"),
    Column("coverage", "95 % coverage", ".3f"),
    Column("draws", "draws", "d"),
    Column("chain_rhat", "cR-hat < 1.1", ".3f", "max"),
    Column("milliseconds", "ms / step", ".2f", "min"),
]


def write_runs_page(
    path: Path,
    records: Mapping[str, Mapping[str, Any]],
    made_by: Mapping[str, Any],
    progress: bool | None = None,
) -> None:
    """Write the page that compares runs.

    Args:
        path: The page's file.
        records: The content of each run's `metrics.json`, by a name for the run.
        made_by: The result of `runs.provenance`.
        progress: Whether to show a progress bar; None shows it on a terminal only.
    """
    classifies = all("by_draws" in record for record in records.values())
    columns = CLASSIFICATION if classifies else REGRESSION
    rows = [_row(name, record) for name, record in records.items()]
    tasks = ", ".join(dict.fromkeys(str(record["task"]) for record in records.values()))
    lead = f"{tasks}. The best value of each column is marked."
    shown = _figures(records) if classifies else []
    write_page(path, "roamax report", lead, from_records(columns, rows), shown, made_by, progress)


def _row(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    seconds = record["cost"]["seconds_per_step"]
    scores = dict(record["scores"])
    if "rmse" in scores and "gaussian_nll" not in scores:
        # Records of before have the Gaussian's NLL under the mixture's name.
        scores |= {"gaussian_nll": scores["nll"], "nll": None}
    unknown = dict.fromkeys((column.key for column in (*CLASSIFICATION, *REGRESSION)), None)
    return {
        **unknown,
        **{name: value for name, value in scores.items() if name in unknown},
        "name": name,
        "draws": record["num_chains"] * record["num_samples"],
        "chain_rhat": record["diagnostics"]["parameters"]["chain_rhat_share"],
        "milliseconds": None if seconds is None else 1000 * seconds,
    }


def _figures(records: Mapping[str, Mapping[str, Any]]) -> Sequence[Figure]:
    # Between two dollar signs, matplotlib reads formulas.
    records = {name.replace("$", r"\$"): record for name, record in records.items()}
    curves = {name: record["by_draws"] for name, record in records.items()}
    tables = {name: _reliability(record["reliability"]) for name, record in records.items()}
    shown = [
        Figure("draws", figures.scores_against_draws(curves), "Performance vs. the number of draws",
               "Scores of the averaged prediction over the first draws."),
        Figure("reliability", figures.reliability_diagrams(tables), "Reliability",
               "Accuracy of predictions by confidence; more opaque bars hold more of the examples."),
    ]  # fmt: skip
    outside = {name: record["ood"] for name, record in records.items() if record.get("ood")}
    if outside:
        shown.append(Figure("ood", figures.confidence_histograms(outside), "Out-of-distribution inputs",
                            "Confidence on the run's test data and on out-of-distribution data."))  # fmt: skip
    several = {name: record for name, record in records.items() if record["num_samples"] >= 2}
    if several:
        shown.append(Figure("cosine", geometry.cosine_matrices(several), "Similarity of draws",
                            "Cosine similarity between draws of one chain; dark cells off the diagonal are draws far "
                            "apart."))  # fmt: skip
    if any("segments" in record["space"] for record in several.values()):
        shown.append(Figure("paths", geometry.error_paths(several), "Barriers",
                            "Test error along the line from one draw to the next; a barrier suggests another "
                            "mode."))  # fmt: skip
    if any("surface" in record["space"] for record in several.values()):
        shown.append(Figure("surface", geometry.error_surfaces(several), "Error surface",
                            "Test error on the plane through three draws of a chain."))  # fmt: skip
    shown += [
        Figure("traces", geometry.traces(records), "Traces", "One line per chain."),
        Figure("rhat", geometry.rhat_by_layer(records), "Mixing by layer",
               "Share of parameters with cR-hat below 1.1. Permuting the units of a network does not change its "
               "function, so this can look worse than mixing in function space."),
    ]  # fmt: skip
    return shown


def _reliability(table: Mapping[str, Sequence[float | None]]) -> Reliability:
    return Reliability(*(np.asarray(table[field], float) for field in Reliability._fields))
