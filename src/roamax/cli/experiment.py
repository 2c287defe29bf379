"""`roamax experiment` with the name of one, `all`, `list` or `page`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from roamax.cli.arguments import Address, Engine, Json, Names, Quiet, RunFolder, Seed, Words


def _experiments() -> Iterable[str]:
    from roamax.paper.framework.registry import EXPERIMENTS

    return EXPERIMENTS


Experiment = Annotated[str, tyro.conf.arg(metavar="NAME"), Names(_experiments)]
Scale = Literal["cpu", "long", "paper"]
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the problem's)")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


def experiment(
    name: tyro.conf.Positional[Experiment],
    out: RunFolder,
    scale: Scale = "cpu",
    chains: Annotated[Folder, tyro.conf.arg(help_behavior_hint="(default: OUT/chains)")] = None,
    seeds: int = 3,
    weights: Annotated[Words, tyro.conf.arg(metavar="METHOD=FILE ...")] = (),
    problems: Annotated[Words, tyro.conf.arg(metavar="NAME ...")] = (),
    methods: Annotated[Words, tyro.conf.arg(metavar="NAME ...")] = (),
    steps: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N ...")] = (),
    draws: Count = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: one per core)")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run an experiment of the paper.

    Writes results.json, tables in Markdown and LaTeX, and figures as PNG and
    PDF to OUT. Running the same command again resumes where it stopped. Data
    sets that are not installed are left out, with a note.

    Examples:
        roamax experiment image-classification --out results/image-classification
        roamax experiment ood --out results/ood --chains results/chains
        roamax experiment transfer --out results/mine \\
            --weights L2E=runs/meta/weights.safetensors
        roamax experiment transfer --problems mnist_mlp --steps 2000 10000 \\
            --out results/transfer

    Args:
        name: A name that `roamax experiment list` shows.
        out: The folder for results.
        scale: cpu takes minutes on two cores; long takes hours; paper uses the paper's settings,
            for accelerators.
        chains: The folder for chains; experiments that share it share chains.
        seeds: Number of seeds, starting from --seed.
        weights: Weights for learned methods, instead of the pretrained ones.
        problems: Run only these problems, such as cifar10.
        methods: Run only these methods, such as L2E.
        steps: Lengths of runs in steps, for tune and transfer, which tune methods to each.
        draws: Draws per chain, such as 10 where the paper's 100 take too long.
        engine: Where chains run: in processes of this machine, or as tasks of a Ray cluster.
        workers: Local processes that run chains, each on its own core; 1 runs them in this process.
    """
    from roamax.cli.start import start_jax
    from roamax.errors import check

    files: dict[str, Path] = {}
    for pair in weights:
        method, _, file = pair.partition("=")
        check(bool(method and file), "weights", "be METHOD=FILE", repr(pair))
        files[method] = Path(file)
    start_jax()
    from roamax.cli.output import print_json
    from roamax.paper.framework.registry import run_experiment

    results = run_experiment(
        name,
        out,
        scale=scale,
        chains=chains,
        seeds=seeds,
        seed=seed,
        weights=files,
        problems=problems,
        methods=methods,
        steps=steps,
        draws=draws,
        engine=engine,
        address=address,
        workers=workers,
        progress=False if quiet or json else None,
    )
    if json:
        print_json(results)
    elif not quiet:
        _show(results, out)


def run_all(
    out: RunFolder,
    names: Annotated[Words, tyro.conf.arg(metavar="NAME ...")] = (),
    scale: Scale = "cpu",
    seeds: int = 3,
    problems: Annotated[Words, tyro.conf.arg(metavar="NAME ...")] = (),
    methods: Annotated[Words, tyro.conf.arg(metavar="NAME ...")] = (),
    draws: Count = None,
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: one per core)")] = None,
    seed: Seed = 0,
    plan: bool = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run many experiments one after the other, with the hours left.

    Results go to a folder per experiment in OUT, and all share OUT/chains. After
    a stop or a kill, the same command resumes; what is there is not run again.
    An experiment that fails does not stop the others.

    Examples:
        roamax experiment all --out results
        roamax experiment all --scale paper --problems fashion_mnist \\
            --names ablation kinetic --draws 10 --out long
        roamax experiment all --scale paper --names text --out long --plan

    Args:
        out: The folder for everything.
        names: Run only these experiments.
        scale: cpu takes minutes on two cores; long takes hours; paper uses the paper's settings,
            for accelerators.
        seeds: Number of seeds, starting from --seed.
        problems: Run only these problems, and the experiments that have them.
        methods: Run only these methods, such as L2E.
        draws: Draws per chain, such as 10 where the paper's 100 take too long.
        workers: Local processes that run chains, each on its own core; 1 runs them in this process.
        plan: Run nothing: show the chains that are left, and the hours they take on one core.
    """
    from roamax.cli.start import start_jax

    start_jax()
    from roamax.cli.output import print_json, print_table
    from roamax.paper.framework.queue import plan_queue, run_queue
    from roamax.report.table import Column, from_records

    silent = quiet or json
    options = {
        "names": names,
        "scale": scale,
        "seeds": seeds,
        "seed": seed,
        "problems": problems,
        "methods": methods,
        "draws": draws,
    }
    if plan:
        rows = plan_queue(out, **options)
        if json:
            print_json(rows)
        elif not quiet:
            columns = [Column("experiment", "experiment"), Column("chain", "chain"), Column("chains", "left", "d"),
                       Column("hours", "hours", ".1f")]  # fmt: skip
            total = sum(row["hours"] for row in rows)
            print_table(from_records(columns, rows, f"Chains left, {total:.1f} hours on one core"))
        return
    results = run_queue(
        out,
        report=(lambda line: None) if silent else lambda line: print(line, flush=True),
        workers=workers,
        progress=False if silent else None,
        **options,
    )
    if json:
        print_json(results)
    elif not quiet:
        print(f"Results: {out}")


def list_experiments(quiet: Quiet = False, json: Json = False) -> None:
    """List the experiments: what each reproduces, its data sets and its run time.

    Example:
        roamax experiment list
    """
    from roamax.cli.output import print_json, print_table
    from roamax.paper.framework.registry import EXPERIMENTS
    from roamax.report.table import Column, from_records

    rows = [{"name": name, **entry._asdict(), "data": ", ".join(entry.data)} for name, entry in EXPERIMENTS.items()]
    if json:
        print_json(rows)
    if json or quiet:
        return
    for row in rows:
        row["reproduces"] += f" ({row['data']})" if row["data"] else ""
    columns = [Column("name", "name"), Column("minutes", "min", "d"), Column("reproduces", "reproduces (data)")]
    print_table(from_records(columns, rows, "Experiments, with minutes at cpu scale on two cores"))


def page(
    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR ...", help_behavior_hint="")],
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("results.md"),
    hours: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a Markdown page about experiments, with a folder of figures next to it.

    Example:
        roamax experiment page results/ood results/kinetic --out docs/results.md

    Args:
        dirs: Folders that `roamax experiment` made.
        out: The page to write.
        hours: What `roamax experiment all --plan --json` printed, to show what was not run.
    """
    from roamax.cli.output import print_json
    from roamax.paper.framework.results import write_page

    written = write_page(dirs, out, hours)
    if json:
        print_json({"page": str(out), "figures": [str(path) for path in written]})
    elif not quiet:
        print(f"Results: {out}")


def _show(results: dict[str, Any], out: Path) -> None:
    from rich.console import Console

    from roamax.cli.output import print_table
    from roamax.paper.framework.comparison import Comparison
    from roamax.paper.framework.results import claim_sentences

    console = Console()
    for stored in results["tables"].values():
        console.print()
        print_table(Comparison.from_json(stored).table())
    said = (*results["orderings"].values(), *claim_sentences(results), *results["remarks"], *results["notes"])
    for sentence in said:
        console.print(f"\n{sentence}", markup=False, highlight=False)
    console.print(f"\nResults: {out}", markup=False, highlight=False)
