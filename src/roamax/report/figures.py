"""Figures that compare runs, made by matplotlib to suit both light and dark pages."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roamax.evaluation.metrics import Reliability

INK = "#7a8190"
"""A grey with enough contrast on white and on near-black."""
BLUE, ORANGE, GREEN = "#3b82c4", "#e07b39", "#3d9a5f"


def new_figure(columns: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Any, Any]:
    """Return a figure without a background, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.patch.set_alpha(0)
        axis.tick_params(which="both", colors=INK, labelsize=9)
        axis.title.set_color(INK)
        for label in (axis.xaxis.label, axis.yaxis.label):
            label.set(color=INK, fontsize=9)
        for side, spine in axis.spines.items():
            spine.set_color(INK)
            spine.set_visible(side in ("left", "bottom"))
    return figure, axes


def new_panels(count: int, width: float, height: float, most: int = 4) -> tuple[Any, list[Any]]:
    """Return a figure with `count` panels, at most `most` in a row, and these."""
    columns = min(most, count)
    figure, axes = new_figure(columns, -(-count // columns), width, height)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def set_title(axis: Any, text: str, width: int = 32) -> None:
    """Set the title of a panel, in lines of at most `width` letters."""
    axis.set_title("\n".join(textwrap.wrap(text, width)), fontsize=9)


def whole_ticks(axis: Any) -> None:
    """Put the ticks of a matplotlib axis (`panel.xaxis`) at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True))


def log_ticks(axis: Any) -> None:
    """Label the ticks of a logarithmic axis (`panel.yaxis`) with plain numbers such as 0.2, also between powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    # Within one power of ten, more of its multiples have room for a label.
    shown = (1, 1.5, 2, 3, 4, 5, 7) if high < 10 * low else (1, 2, 5) if high < 300 * low else (1,)
    axis.set_major_locator(LogLocator(subs=shown))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend(axis: Any, *entries: Any) -> None:
    """Add a legend below the panels, where it covers nothing, of two or more things on `axis`, or of `entries`."""
    handles, labels = entries or axis.get_legend_handles_labels()
    if len(labels) < 2:
        return
    # In inches, about: a letter, and the line and the gap beside a label.
    width = 0.07 * max(len(label) for label in labels) + 0.5
    columns = max(1, min(4, len(labels), int(axis.figure.get_figwidth() / width)))
    axis.figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, labelcolor=INK
    )


def colorbar(figure: Any, axis: Any, drawn: Any, label: str = "") -> None:
    """Add a colour bar for what was drawn on an axis."""
    bar = figure.colorbar(drawn, ax=axis, shrink=0.8)
    bar.ax.tick_params(colors=INK, labelsize=8)
    bar.set_label(label, color=INK, fontsize=9)


def image(figure: Any, kind: str, dpi: int = 150, **options: Any) -> bytes:
    """Return the content of an image file of a kind such as "png"."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, **options)
    return buffer.getvalue()


def reliability_diagrams(tables: Mapping[str, Reliability]) -> Any:
    """Draw accuracy vs. confidence with 95 % intervals and counts, one panel per method."""
    figure, axes = new_panels(len(tables), width=2.7, height=2.7)
    for axis, (name, table) in zip(axes, tables.items(), strict=True):
        filled = table.count > 0
        count, accuracy = table.count[filled], table.accuracy[filled]
        low, high = wilson_interval(accuracy, count)
        whiskers = np.clip([accuracy - low, high - accuracy], 0, None)
        # Below the points, the counts on a scale of their own: the fullest bin is a quarter of the panel high.
        heights = 0.25 * count / count.max()
        axis.bar(table.lower[filled], heights, (table.upper - table.lower)[filled], align="edge", color=INK, alpha=0.3)
        axis.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--")
        axis.errorbar(table.confidence[filled], accuracy, whiskers, color=BLUE, fmt="o", markersize=3.5, linewidth=1.2)
        fullest = int(np.argmax(count))
        axis.annotate(f"n = {count[fullest]:,.0f}", (table.upper[filled][fullest], heights[fullest]), ha="right",
                      va="bottom", fontsize=7, color=INK)  # fmt: skip
        set_title(axis, name, 24)
        axis.set(xlim=(0, 1.02), ylim=(0, 1.05), xlabel="confidence", ylabel="accuracy")
    return figure


def wilson_interval(share: np.ndarray, count: np.ndarray, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson's interval for shares of `count` examples, which is within [0, 1] and not empty at either end."""
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def scores_against_draws(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Any:
    """Draw those of accuracy, NLL and ECE that curves have vs. the number of draws, one line per run."""
    labels = {"acc": "accuracy", "nll": "NLL", "ece": "ECE"}
    known = [key for key in labels if all(key in curve for curve in curves.values())]
    figure, axes = new_panels(len(known), width=3.1, height=3.0)
    for axis, key in zip(axes, known, strict=True):
        for name, curve in curves.items():
            axis.plot(curve["draws"], _numbers(curve[key]), marker="o", markersize=3, linewidth=1.2, label=name)
        _in_log(axis, key == "nll" and [value for curve in curves.values() for value in curve[key]])
        axis.set(xlabel="number of draws", ylabel=f"test {labels[key]}")
        whole_ticks(axis.xaxis)
    legend(axes[0])
    return figure


def rejection_curves(curves: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw the accuracy on what is left when the least confident inputs are rejected, one line per run.

    A curve may have an `error`, which is drawn as a band.
    """
    figure, axes = new_figure(width=6.4, height=3.6)
    axis = axes[0, 0]
    for name, curve in curves.items():
        share, accuracy = 100 * np.asarray(curve["rejected"]), 100 * np.asarray(curve["acc"])
        (line,) = axis.plot(share, accuracy, linewidth=1.6, label=name)
        if "error" in curve:
            error = 100 * np.asarray(curve["error"])
            axis.fill_between(
                share, accuracy - error, accuracy + error, color=line.get_color(), alpha=0.15, linewidth=0
            )
    axis.set(xlabel="least confident inputs rejected / %", ylabel="accuracy on the rest / %")
    legend(axis)
    return figure


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Return values as numbers, where None is not a number."""
    return np.array(values, float)


def _in_log(axis: Any, values: Any) -> None:
    """Use a logarithmic scale if values are positive and far apart."""
    known = [] if values is False else [value for value in values if value is not None and np.isfinite(value)]
    if known and min(known) > 0 and max(known) > 5 * min(known):
        axis.set_yscale("log")
        log_ticks(axis.yaxis)


def confidence_histograms(runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    """Draw confidence on test data and on out-of-distribution data, one panel per run and data set."""
    labels = {"known": "in distribution", "foreign": "out of distribution"}
    panels = [(run, name, one) for run, found in runs.items() for name, one in found.items()]
    figure, axes = new_panels(len(panels), width=3.1, height=2.5, most=3)
    for axis, (run, name, one) in zip(axes, panels, strict=True):
        for (kind, label), colour in zip(labels.items(), (BLUE, ORANGE), strict=True):
            density = np.asarray(one["confidence"][kind])
            edges = np.linspace(0, 1, len(density) + 1)
            axis.stairs(density, edges, fill=True, alpha=0.5, color=colour, label=label)
        set_title(axis, f"{run} vs. {name}: AUROC {one['auroc']:.3f}", 36)
        axis.set(xlabel="confidence", ylabel="density")
    legend(axes[0])
    return figure
