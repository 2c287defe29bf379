"""Figures of the geometry of draws and of traces, one panel per run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from roamax.report.figures import colorbar, legend, new_figure

Runs = Mapping[str, Mapping[str, Any]]


def cosine_matrices(runs: Runs) -> Any:
    """Draw the cosine similarity between the draws of each run."""
    figure, axes = new_figure(len(runs), width=2.8, height=2.6)
    for axis, (name, run) in zip(axes.flat, runs.items(), strict=True):
        image = axis.imshow(np.asarray(run["space"]["cosine"]), vmin=0, vmax=1, cmap="viridis")
        axis.set_title(name, fontsize=8)
        axis.set_xlabel("draw")
        colorbar(figure, axis, image)
    return figure


def error_surfaces(runs: Runs) -> Any:
    """Draw the test error on the plane through three draws of each run, with the draws marked."""
    shown = {name: run for name, run in runs.items() if "surface" in run["space"]}
    figure, axes = new_figure(len(shown), width=3.2, height=2.8)
    for axis, (name, run) in zip(axes.flat, shown.items(), strict=True):
        surface = {key: np.asarray(values) for key, values in run["space"]["surface"].items()}
        filled = axis.contourf(surface["a"], surface["b"], 100 * surface["error"], levels=12, cmap="magma_r")
        axis.plot(*surface["points"].T, "o", color="white", markeredgecolor="black", markersize=5, linestyle="")
        axis.set_title(name, fontsize=8)
        colorbar(figure, axis, filled, "test error / %")
    return figure


def error_paths(runs: Runs) -> Any:
    """Draw the test error along the straight line between successive draws of each run."""
    shown = {name: run for name, run in runs.items() if "segments" in run["space"]}
    figure, axes = new_figure(len(shown), width=2.8, height=2.6)
    for axis, (name, run) in zip(axes.flat, shown.items(), strict=True):
        segments = run["space"]["segments"]
        for path in segments["error"]:
            axis.plot(segments["t"], 100 * np.asarray(path), linewidth=1, alpha=0.8)
        barrier = 100 * float(np.mean(segments["error_barrier"]))
        axis.set_title(f"{name}: mean barrier {barrier:.1f} %", fontsize=8)
        axis.set_xlabel("from one draw to the next")
        axis.set_ylabel("test error / %")
    return figure


def traces(runs: Runs) -> Any:
    """Draw the NLL of single draws and the norm of the position over the run, one line per chain."""
    figure, axes = new_figure(2, width=4.2, height=2.8)
    for number, (name, run) in enumerate(runs.items()):
        for axis, key in zip(axes.flat, ("nll", "norm"), strict=True):
            for chain, values in enumerate(run["traces"][key]):
                label = name if chain == 0 else None
                axis.plot(run["traces"]["step"], values, color=f"C{number}", linewidth=1, label=label)
    for axis, label in zip(axes.flat, ("test NLL of single draws", "norm of the parameters"), strict=True):
        axis.set_xlabel("step")
        axis.set_ylabel(label)
    legend(axes[0, 0])
    return figure


def rhat_by_layer(runs: Runs) -> Any:
    """Draw the share of each layer's parameters whose cR-hat is below 1.1."""
    figure, axes = new_figure(width=6.4, height=3.2)
    axis = axes[0, 0]
    labels: list[str] = []
    for number, (name, run) in enumerate(runs.items()):
        shares = run["diagnostics"]["parameters"]["chain_rhat_share_by_layer"]
        flat = {
            f"{layer.split('/')[-1]} {kind}": share for layer, kinds in shares.items() for kind, share in kinds.items()
        }
        labels = labels or list(flat)
        values = [np.nan if flat.get(label) is None else flat[label] for label in labels]
        axis.plot(range(len(labels)), values, marker="o", markersize=3, color=f"C{number}", label=name)
    axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axis.set_ylim(-0.03, 1.03)
    axis.set_ylabel("share with cR-hat < 1.1")
    legend(axis)
    return figure
