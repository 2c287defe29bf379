"""Figures of the geometry of draws and of traces, one panel per run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from roamax.report.figures import INK, colorbar, legend, new_figure, new_panels, set_title, whole_ticks

Runs = Mapping[str, Mapping[str, Any]]


def cosine_matrices(runs: Runs) -> Any:
    """Draw the cosine similarity between the draws of each run."""
    figure, axes = new_panels(len(runs), width=2.9, height=2.6, most=3)
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        cosines = np.asarray(run["space"]["cosine"])
        ends = (0.5, len(cosines) + 0.5)
        image = axis.imshow(cosines, vmin=0, vmax=1, cmap="viridis", extent=(*ends, *ends[::-1]))
        set_title(axis, name)
        axis.set(xlabel="draw", ylabel="draw")
        whole_ticks(axis.xaxis)
        whole_ticks(axis.yaxis)
        colorbar(figure, axis, image, "cosine")
    return figure


def error_surfaces(runs: Runs) -> Any:
    """Draw the test error on the plane through three draws of each run, with the draws marked."""
    shown = {name: run for name, run in runs.items() if "surface" in run["space"]}
    figure, axes = new_panels(len(shown), width=3.4, height=2.9, most=3)
    for axis, (name, run) in zip(axes, shown.items(), strict=True):
        surface = {key: np.asarray(values) for key, values in run["space"]["surface"].items()}
        filled = axis.contourf(surface["a"], surface["b"], 100 * surface["error"], levels=12, cmap="magma_r")
        axis.plot(*surface["points"].T, "o", color="white", markeredgecolor="black", markersize=5, linestyle="")
        set_title(axis, name)
        axis.set(xlabel="distance in parameters", ylabel="distance in parameters")
        colorbar(figure, axis, filled, "test error / %")
    return figure


def error_paths(runs: Runs) -> Any:
    """Draw the test error along the straight line between successive draws of each run."""
    shown = {name: run for name, run in runs.items() if "segments" in run["space"]}
    figure, axes = new_panels(len(shown), width=3.0, height=2.7)
    for axis, (name, run) in zip(axes, shown.items(), strict=True):
        segments = run["space"]["segments"]
        for path in segments["error"]:
            axis.plot(segments["t"], 100 * np.asarray(path), linewidth=1, alpha=0.8)
        barrier = 100 * float(np.mean(segments["error_barrier"]))
        set_title(axis, f"{name}: mean barrier {barrier:.1f} %")
        axis.set_xlabel("from one draw to the next")
        axis.set_ylabel("test error / %")
    return figure


def energies(runs: Runs) -> Any:
    """Draw the energy of each run over burn-in, on grey, and draws, one panel per run and one line per chain."""
    figure, axes = new_panels(len(runs), width=3.4, height=2.6, most=3)
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        trace = run["energy"]
        for chain in trace["energy"]:
            axis.plot(trace["step"], np.array(chain, float), linewidth=1)
        if min(trace["step"], default=0) < trace["first_draw"]:
            axis.axvspan(0, trace["first_draw"], color=INK, alpha=0.15, linewidth=0)
            axis.annotate("burn-in", (0, 0.98), xycoords=("data", "axes fraction"), xytext=(3, 0), va="top",
                          textcoords="offset points", fontsize=8, color=INK)  # fmt: skip
        set_title(axis, name)
        axis.set(xlabel="step", ylabel="energy of the minibatch")
        axis.xaxis.get_major_locator().set_params(nbins=5)
    return figure


def traces(runs: Runs) -> Any:
    """Draw the NLL of single draws and the norm of the position over the run, one line per chain."""
    figure, axes = new_figure(2, width=4.2, height=2.9)
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
    axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=8)
    axis.set_ylim(-0.03, 1.03)
    axis.set_ylabel("share with cR-hat < 1.1")
    legend(axis)
    return figure
