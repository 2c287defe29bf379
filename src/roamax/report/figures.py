"""Figures that compare runs, made by matplotlib to suit both light and dark pages."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roamax.evaluation.metrics import Reliability

INK = "#7a8190"
"""A grey with enough contrast on white and on near-black."""


def new_figure(columns: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Any, Any]:
    """Return a figure without a background, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.patch.set_alpha(0)
        axis.tick_params(which="both", colors=INK, labelsize=8)
        axis.title.set_color(INK)
        for label in (axis.xaxis.label, axis.yaxis.label):
            label.set(color=INK, fontsize=8)
        for side, spine in axis.spines.items():
            spine.set_color(INK)
            spine.set_visible(side in ("left", "bottom"))
    return figure, axes


def legend(axis: Any, *entries: Any, **options: Any) -> None:
    """Add a small legend without a frame."""
    axis.legend(*entries, fontsize=7, frameon=False, labelcolor=INK, **options)


def colorbar(figure: Any, axis: Any, drawn: Any, label: str = "") -> None:
    """Add a colour bar for what was drawn on an axis."""
    bar = figure.colorbar(drawn, ax=axis, shrink=0.8)
    bar.ax.tick_params(colors=INK, labelsize=7)
    bar.set_label(label, color=INK, fontsize=8)


def image(figure: Any, kind: str, dpi: int = 150, **options: Any) -> bytes:
    """Return the content of an image file of a kind such as "png"."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, **options)
    return buffer.getvalue()


def nll_against_draws(curves: Mapping[str, Sequence[float]]) -> Any:
    """Draw the NLL of the Bayesian model average over the first 1, 2, ... draws, one line per method."""
    figure, axes = new_figure(width=6.4, height=3.6)
    axis = axes[0, 0]
    for name, values in curves.items():
        axis.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=3, label=name)
    axis.set_xlabel("number of draws")
    axis.set_ylabel("test NLL of the average")
    axis.set_yscale("log")
    legend(axis, ncols=2)
    return figure


def reliability_diagrams(tables: Mapping[str, Reliability]) -> Any:
    """Draw accuracy vs. confidence, one panel per method; the share of examples in a bin is its bar's opacity."""
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
        axis.set_xlabel("confidence")
        axis.set_ylabel("accuracy")
    return figure


def scores_against_draws(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Any:
    """Draw accuracy, NLL and ECE of the average vs. the number of draws, one line per run."""
    figure, axes = new_figure(3, width=3.0, height=2.8)
    for axis, (key, label) in zip(axes.flat, (("acc", "accuracy"), ("nll", "NLL"), ("ece", "ECE")), strict=True):
        for name, curve in curves.items():
            axis.plot(curve["draws"], curve[key], marker="o", markersize=3, linewidth=1.2, label=name)
        axis.set_xlabel("number of draws")
        axis.set_ylabel(f"test {label}")
    legend(axes[0, 0])
    return figure


def confidence_histograms(runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    """Draw confidence on test data and on out-of-distribution data, one row per run and one column per data set."""
    labels = {"known": "in distribution", "foreign": "out of distribution"}
    names = list(dict.fromkeys(name for found in runs.values() for name in found))
    figure, axes = new_figure(len(names), len(runs), width=3.2, height=2.2)
    for row, (run, found) in zip(axes, runs.items(), strict=True):
        for axis, name in zip(row, names, strict=True):
            if name not in found:
                axis.set_visible(False)
                continue
            for (kind, label), colour in zip(labels.items(), ("#3b82c4", "#e07b39"), strict=True):
                density = np.asarray(found[name]["confidence"][kind])
                edges = np.linspace(0, 1, len(density) + 1)
                axis.stairs(density, edges, fill=True, alpha=0.5, color=colour, label=label)
            axis.set_title(f"{run} vs. {name}: AUROC {found[name]['auroc']:.3f}", fontsize=8)
            axis.set_xlabel("confidence")
    legend(axes[0, 0])
    return figure
