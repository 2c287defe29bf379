"""The page that compares runs, from their `metrics.json` records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roamax.evaluation.metrics import Reliability
from roamax.report import figures, geometry, predictions
from roamax.report.conclusions import conclude
from roamax.report.page import Figure, Page, figure_folder, write_page
from roamax.report.table import Column, from_records

CLASSIFICATION = [
    Column("name", "run"),
    Column("acc", "accuracy", ".4f", "max"),
    Column("nll", "NLL", ".4f", "min"),
    Column("ece", "ECE", ".4f", "min"),
    Column("brier", "Brier", ".4f", "min"),
    Column("kld", "KLD", ".4f"),
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


Records = Mapping[str, Mapping[str, Any]]


def write_runs_page(
    path: Path,
    records: Records,
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
    tasks = list(dict.fromkeys(str(record["task"]) for record in records.values()))
    lead = f"{', '.join(tasks)}. Figures are also in the folder {figure_folder(path).name}, as PNG and PDF."
    if len(tasks) > 1:
        # Runs on other data or of another network are no contest.
        columns = [column._replace(better=None) for column in columns]
    elif len(records) > 1:
        lead += " The best value of a column is marked."
    conclusions = {name if len(records) > 1 else "": conclude(record) for name, record in records.items()}
    # Between two dollar signs, matplotlib reads formulas.
    shown = {name.replace("$", r"\$"): record for name, record in records.items()}
    table = from_records(columns, rows, "Scores on test data")
    page = Page("roamax report", lead, conclusions, _pictures(shown), table, _figures(shown, classifies), made_by)
    write_page(path, page, progress)


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


def _pictures(records: Records) -> list[Figure]:
    shown = []
    for number, (name, record) in enumerate(records.items()):
        if record.get("uncertain"):
            heading = "The most uncertain test inputs" + (f" of {name}" if len(records) > 1 else "")
            caption = ("The averaged probability of the most probable classes; the right class is green. Whiskers are "
                       "the standard deviation over draws.")  # fmt: skip
            figure = predictions.inputs(record["uncertain"])
            shown.append(Figure(f"uncertain{number or ''}", figure, heading, caption))
    banded = {name: record for name, record in records.items() if "bands" in record}
    if banded:
        caption = "The inner band is the doubt about the mean, which draws disagree on; the outer adds the noise."
        shown.append(Figure("bands", predictions.bands(banded), "Predictions and their uncertainty", caption))
    return shown


def _figures(records: Records, classifies: bool) -> list[Figure]:
    key = "by_draws" if classifies else "nll_by_draws"
    curves = {name: record[key] for name, record in records.items() if key in record}
    told = {name: record for name, record in records.items() if "energy" in record}
    shown = []
    if curves:
        shown.append(Figure("draws", figures.scores_against_draws(curves), "Performance vs. the number of draws",
                            "Scores of the averaged prediction over the first draws."))  # fmt: skip
    if classifies:
        shown += _of_classes(records)
    if told:
        shown.append(Figure("energy", geometry.energies(told), "Energy",
                            "The negative log-posterior as each step saw it. After a burn-in that was long enough it "
                            "neither falls nor rises; chains should reach the same level."))  # fmt: skip
    if classifies:
        shown += _of_space(records)
    return shown


def _of_classes(records: Records) -> list[Figure]:
    tables = {name: _reliability(record["reliability"]) for name, record in records.items()}
    shown = [
        Figure("reliability", figures.reliability_diagrams(tables), "Reliability",
               "Accuracy of predictions by confidence, with 95 % intervals; calibrated predictions lie on the "
               "diagonal. Grey bars are the number of test inputs per bin."),
    ]  # fmt: skip
    rejected = {name: record["rejection"] for name, record in records.items() if "rejection" in record}
    if rejected:
        shown.append(Figure("rejection", figures.rejection_curves(rejected), "Rejecting what the run doubts",
                            "Accuracy on the inputs that are left when the least confident are rejected; the steeper, "
                            "the better doubt finds mistakes."))  # fmt: skip
    outside = {name: record["ood"] for name, record in records.items() if record.get("ood")}
    if outside:
        shown.append(Figure("ood", figures.confidence_histograms(outside), "Out-of-distribution inputs",
                            "Confidence on the run's test data and on out-of-distribution data."))  # fmt: skip
    return shown


def _of_space(records: Records) -> list[Figure]:
    shown = []
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
                            "Test error on the plane through three draws of a chain, the dots."))  # fmt: skip
    shown += [
        Figure("traces", geometry.traces(records), "Traces", "One line per chain."),
        Figure("rhat", geometry.rhat_by_layer(records), "Mixing by layer",
               "Share of parameters with cR-hat below 1.1. Permuting the units of a network does not change its "
               "function, so this can look worse than mixing in function space."),
    ]  # fmt: skip
    return shown


def _reliability(table: Mapping[str, Sequence[float | None]]) -> Reliability:
    return Reliability(*(np.asarray(table[field], float) for field in Reliability._fields))
