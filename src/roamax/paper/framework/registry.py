"""The experiments by name: what each reproduces, the data it needs, and its time on two cores."""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamax.errors import check, lookup


class Experiment(NamedTuple):
    """An experiment, whose `run(lab)`, in the module of `roamax.paper` with its name, returns `Findings`."""

    reproduces: str
    data: tuple[str, ...]
    minutes: int
    """The time at cpu scale on two cores, without any existing chains."""
    takes_steps: bool = False
    """Whether the length of runs can be chosen: methods are then tuned to it."""
    has_chains: bool = True
    """Whether it compares chains; otherwise it only meta-trains, and `problems` and `methods` do not concern it."""


_IMAGES = ("fashion_mnist", "cifar10", "cifar100", "tiny_imagenet")
_OUTSIDE = ("mnist", "notmnist", "svhn", "tiny_imagenet_32")
EXPERIMENTS = {
    "image-classification": Experiment("accuracy and NLL vs. the number of draws", _IMAGES, 9),
    "hmc-fidelity": Experiment("agreement and total variation to HMC", ("cifar10", "digits"), 8),
    "multimodality": Experiment("cosine similarity, error surface and segments", _IMAGES[:2], 9),
    "ood": Experiment("AUROC on out-of-distribution data", (*_OUTSIDE, *_IMAGES[:3]), 8),
    "corruption": Experiment("accuracy by severity on CIFAR-10-C", ("cifar10",), 8),
    "convergence": Experiment("ESS/s and cR-hat, whole and by layer", _IMAGES, 7),
    "update-analysis": Experiment("step lengths and training NLL over a run; contours of the network", ("cifar10",), 6),
    "meta-loss": Experiment(
        "meta-loss over outer steps for several values of epsilon²", ("digits",), 6, has_chains=False
    ),
    "objective": Experiment("BMA vs. CE meta-loss: barriers between draws", (*_IMAGES[:2], "mnist"), 8),
    "ablation": Experiment("small, precond and full L2E", (*_IMAGES, "mnist"), 18),
    "kinetic": Experiment("Kinetic L2E vs. L2E", _IMAGES, 9),
    "text": Experiment("IMDB with a CNN-LSTM", ("imdb",), 9),
    "meta-sgmcmc": Experiment("generalisation tables of Gong et al.", ("mnist", "cifar10"), 6),
    "regression-1d": Experiment("predictive band on a sine with a gap", (), 4),
    "augmentation": Experiment("random crop and flip, temperature tuned", ("cifar10", "cifar100"), 9),
    "cost": Experiment("seconds per epoch of each method", ("fashion_mnist", "cifar10"), 2),
    # Estimates from the time of a trial: neither has been run whole.
    "tune": Experiment("settings of every tuned method, by validation data", ("mnist", "fashion_mnist"), 35, True),
    "transfer": Experiment(
        "L2E and roam as shipped vs. tuned methods", ("mnist", *_IMAGES[:2], "imdb"), 180, takes_steps=True
    ),
}


def run_experiment(
    name: str,
    out: str | Path,
    *,
    scale: str = "cpu",
    chains: str | Path | None = None,
    seeds: int = 3,
    seed: int = 0,
    weights: Mapping[str, Path] | None = None,
    problems: Sequence[str] = (),
    methods: Sequence[str] = (),
    steps: Sequence[int] = (),
    draws: int | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run an experiment, or resume it where it stopped.

    What it measures of each chain is kept in `out/records.json`, and not measured again, with or without the chain.

    A script that calls this must do so under `if __name__ == "__main__":`, as with `multiprocessing`, unless there is
    one worker.

    Args:
        name: One of `EXPERIMENTS`.
        out: The folder for results.
        scale: "cpu", "long" or "paper".
        chains: The folder for chains, `out/chains` by default; experiments that share it share chains.
        seeds: The number of seeds, starting from `seed`.
        seed: The first seed.
        weights: Files that replace the weights that ship, by learned method.
        problems: The only problems to run; all if empty.
        methods: The only methods to run; all if empty.
        steps: The lengths of runs, for experiments that tune methods to each; the problems' own if empty.
        draws: The number of draws per chain; the problems' own if None.
        engine: "local" for processes of this machine, or "ray".
        address: The address of the Ray cluster.
        workers: The number of processes that run chains, by default one per core; 1 is this process.
        progress: Whether to show progress bars; None shows them on a terminal only.

    Returns:
        The content of its results.json.
    """
    experiment = lookup(EXPERIMENTS, name, "NAME")
    takers = ", ".join(key for key, entry in EXPERIMENTS.items() if entry.takes_steps)
    check(not steps or experiment.takes_steps, "steps", f"be given for {takers} only", f"{steps} for {name}")
    from roamax import runs
    from roamax.host import files
    from roamax.paper.framework.lab import Lab, make_lab
    from roamax.paper.framework.records import records_in
    from roamax.paper.framework.results import Findings, write_files
    from roamax.parallel.workers import hired

    folder = Path(out)
    lab = make_lab(
        chains or folder / "chains",
        scale=scale,
        seeds=seeds,
        seed=seed,
        weights=weights,
        problems=problems,
        methods=methods,
        steps=steps,
        draws=draws,
        progress=progress,
    )
    files.make_folder(folder)
    lab.records = records_in(folder)
    run: Callable[[Lab], Findings] = importlib.import_module(f"roamax.paper.{name.replace('-', '_')}").run
    begun = time.monotonic()
    with hired(engine, address, workers, progress) as at_work:
        lab.workers = at_work
        found = run(lab)
    seconds = time.monotonic() - begun + sum(lab.spared.values()) / at_work.count
    about = {
        "experiment": name,
        "reproduces": experiment.reproduces,
        "scale": scale,
        "seeds": list(lab.seeds[: found.seeds]),
        "notes": lab.notes,
        "settings": lab.settings,
        "options": {
            "problems": list(problems),
            "methods": list(methods),
            "steps": list(steps),
            "draws": [draws] if draws else [],
        },
        "minutes": round(seconds / 60, 1),
        "made_by": runs.provenance(seed),
    }
    return write_files(folder, about, found)
