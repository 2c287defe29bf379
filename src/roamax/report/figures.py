"""Figures of runs side by side. Each returns a matplotlib figure that reads on a light and on a dark page."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roamax.evaluation.metrics import Reliability

INK = "#7a8190"
"""A grey with enough contrast on white and on near-black."""


def new_figure(columns: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Any, Any]:
    """A figure without a background of its own, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.patch.set_alpha(0)
        axis.tick_params(which="both", colors=INK, labelsize=8)
        axis.xaxis.label.set_color(INK)
        axis.yaxis.label.set_color(INK)
        axis.title.set_color(INK)
        for side, spine in axis.spines.items():
            spine.set_color(INK)
            spine.set_visible(side in ("left", "bottom"))
    return figure, axes


def image(figure: Any, kind: str, dpi: int = 150, **options: Any) -> bytes:
    """Return a figure as the content of a file of a kind such as "png"."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, **options)
    return buffer.getvalue()


def nll_against_draws(curves: Mapping[str, Sequence[float]]) -> Any:
    """NLL of the Bayesian model average over the first 1, 2, ... draws, one line a method."""
    figure, axes = new_figure(width=6.4, height=3.6)
    axis = axes[0, 0]
    for name, values in curves.items():
        axis.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3, label=name)
    axis.set_xlabel("number of draws")
    axis.set_ylabel("test NLL of the average")
    axis.set_yscale("log")
    axis.legend(fontsize=7, frameon=False, labelcolor=INK, ncols=2)
    return figure


def reliability_diagrams(tables: Mapping[str, Reliability]) -> Any:
    """Accuracy against confidence, one panel a method; the share of examples in a bin is its bar's opacity."""
    columns = min(4, len(tables))
    rows = -(-len(tables) // columns)
    figure, axes = new_figure(columns, rows, width=2.4, height=2.4)
    for axis in list(axes.flat)[len(tables) :]:
        axis.set_visible(False)
    for axis, (name, table) in zip(axes.flat, tables.items(), strict=False):
        filled = table.count > 0
        share = table.count[filled] / table.count.sum()
        width = (table.upper - table.lower)[filled]
        bars = axis.bar(table.lower[filled], table.accuracy[filled], width, align="edge", color="#3b82c4")
        for bar, opacity in zip(bars, 0.25 + 0.75 * np.sqrt(share / share.max()), strict=True):
            bar.set_alpha(float(opacity))
        axis.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--")
        axis.plot(table.confidence[filled], table.accuracy[filled], color="#e07b39", marker=".", linewidth=1)
        axis.set_title(name, fontsize=8)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_xlabel("confidence", fontsize=8)
        axis.set_ylabel("accuracy", fontsize=8)
    return figure


def scores_against_draws(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Any:
    """Accuracy, NLL and ECE of the average against the number of draws, one line a run."""
    figure, axes = new_figure(3, width=3.0, height=2.8)
    for axis, (key, label) in zip(axes.flat, (("acc", "accuracy"), ("nll", "NLL"), ("ece", "ECE")), strict=True):
        for name, curve in curves.items():
            axis.plot(curve["draws"], curve[key], marker="o", markersize=3, linewidth=1.2, label=name)
        axis.set_xlabel("number of draws", fontsize=8)
        axis.set_ylabel(f"test {label}", fontsize=8)
    axes[0, 0].legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


def confidence_histograms(runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    """How confident each run is on its own test data and on foreign data, one row a run, one column a data set."""
    names = list(dict.fromkeys(name for found in runs.values() for name in found))
    figure, axes = new_figure(len(names), len(runs), width=3.2, height=2.2)
    for row, (run, found) in zip(axes, runs.items(), strict=True):
        for axis, name in zip(row, names, strict=True):
            if name not in found:
                axis.set_visible(False)
                continue
            for kind, colour in (("known", "#3b82c4"), ("foreign", "#e07b39")):
                density = np.asarray(found[name]["confidence"][kind])
                edges = np.linspace(0, 1, len(density) + 1)
                axis.stairs(density, edges, fill=True, alpha=0.5, color=colour, label=kind)
            axis.set_title(f"{run} against {name}: AUROC {found[name]['auroc']:.3f}", fontsize=8)
            axis.set_xlabel("confidence", fontsize=8)
    axes[0, 0].legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure
