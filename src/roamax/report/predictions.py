"""Pictures of predictions: inputs with the classes a run hesitates between, and the bands of regressions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roamax.report.figures import BLUE, GREEN, INK, ORANGE, legend, new_figure, new_panels, set_title

COLUMNS = 4


def inputs(examples: Sequence[Mapping[str, Any]]) -> Any:
    """Draw inputs next to their most probable classes, with the standard deviation over draws as whiskers.

    Args:
        examples: Descriptions as `evaluation.showcase.uncertain_inputs` returns them.
    """
    rows = -(-len(examples) // COLUMNS)
    has_images = all("image" in one for one in examples)
    parts = 2 if has_images else 1
    figure, axes = new_figure(parts * COLUMNS, rows, width=2.3 / parts, height=1.25)
    for axis in axes.flat:
        axis.set_axis_off()
    for place, one in enumerate(examples):
        row, column = divmod(place, COLUMNS)
        *left, right = axes[row, parts * column : parts * (column + 1)]
        for axis in left:
            _image(axis, one)
        _bars(right, one)
    return figure


def side_by_side(examples: Sequence[Mapping[str, Mapping[str, Any]]]) -> Any:
    """Draw inputs in rows, each next to the most probable classes of every method, whose names head the columns.

    Args:
        examples: For each input its descriptions by method.
    """
    methods = list(examples[0])
    figure, axes = new_figure(1 + len(methods), len(examples), width=1.3, height=0.95)
    for row, found in zip(axes, examples, strict=True):
        for axis in row:
            axis.set_axis_off()
        _image(row[0], found[methods[0]])
        for axis, name in zip(row[1:], methods, strict=True):
            _bars(axis, found[name])
    for axis, name in zip(axes[0, 1:], methods, strict=True):
        set_title(axis, name, 15)
    return figure


def _image(axis: Any, one: Mapping[str, Any]) -> None:
    """Draw an image, dark on light if it is grey, and its label."""
    axis.imshow(np.clip(np.array(one["image"], float) / 255, 0, 1), cmap="gray_r", vmin=0, vmax=1)
    axis.annotate(f"is {one['label']}", (0, 0.5), xycoords="axes fraction", xytext=(-4, 0), textcoords="offset points",
                  ha="right", va="center", fontsize=8, color=INK)  # fmt: skip


def _bars(axis: Any, one: Mapping[str, Any]) -> None:
    """Draw the most probable classes; the right one is green."""
    places = np.arange(len(one["classes"]))
    mean, spread = np.array(one["mean"]), np.array(one["sd"])
    colours = [GREEN if label == one["label"] else ORANGE for label in one["classes"]]
    axis.set_axis_on()
    axis.barh(places, mean, color=colours, height=0.7)
    whiskers = [np.minimum(spread, mean), np.minimum(spread, 1 - np.minimum(mean, 1))]
    axis.errorbar(mean, places, xerr=whiskers, fmt="none", ecolor=INK, elinewidth=1.2)
    for place, value in zip(places, mean, strict=True):
        axis.annotate(f"{100 * value:.0f} %", (1.04, place), va="center", fontsize=8, color=INK, annotation_clip=False)
    axis.set_yticks(places, [str(label) for label in one["classes"]])
    axis.set(xlim=(0, 1.3), ylim=(2.6, -0.6), xticks=[])
    axis.spines["bottom"].set_visible(False)


def bands(runs: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw the predictions of regressions with 95 % bands, one panel per run: of the mean, and of new observations."""
    figure, axes = new_panels(len(runs), width=6.4 if len(runs) == 1 else 4.6, height=3.4, most=2)
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        found = {key: np.array(run["bands"][key], float) for key in ("x", "mean", "epistemic", "total")}
        x, mean = found["x"], found["mean"]
        for key, alpha, label in (("total", 0.2, "95 % of observations"), ("epistemic", 0.4, "95 % of the mean")):
            reach = 1.96 * found[key]
            axis.fill_between(x, mean - reach, mean + reach, color=BLUE, alpha=alpha, linewidth=0, label=label)
        axis.plot(x, mean, color=BLUE, linewidth=1.6, label="mean")
        points = run["bands"]["points"]
        axis.plot(points["x"], points["y"], ".", color=ORANGE, markersize=4, label="data")
        set_title(axis, name)
        axis.set(xlabel=run["bands"]["axis"], ylabel="prediction")
    legend(axes[0])
    return figure
