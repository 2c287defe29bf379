"""`roamax evaluate DIR`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from roamax.cli.arguments import DataDir, DataSets, Flag, Json, Quiet
from roamax.report.table import Column, Table, from_records


def evaluate(
    dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")],
    ood: DataSets = (),
    corruptions: Flag = False,
    reference: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    draws: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all)")] = None,
    format: Literal["table", "markdown", "latex"] = "table",
    data_dir: DataDir = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure a run, finished or still running.

    Measures predictions, calibration, convergence and the geometry of draws;
    all numbers go to metrics.json in its folder.

    Examples:
        roamax evaluate runs/fashion
        roamax evaluate runs/fashion --ood mnist notmnist --format markdown

    Args:
        dir: A folder that `roamax sample` made.
        ood: Out-of-distribution data sets, to be detected by the confidence of predictions.
        corruptions: Also measure accuracy on 15 kinds of corrupted images at 5 severities.
        reference: An npz file with other predictions, `probs`, to compare with.
        draws: Use only the first so many draws per chain.
        format: How to print the numbers.
    """
    from roamax.cli.output import FORMATS, print_json
    from roamax.cli.start import start_jax

    start_jax()
    from roamax.evaluation import evaluate
    from roamax.evaluation.run import open_run
    from roamax.host import files

    record = evaluate.evaluate(
        open_run(dir, data_dir),
        ood=ood,
        corrupt=corruptions,
        reference=reference,
        draws=draws,
        data_dir=data_dir,
        progress=False if quiet or json else None,
    )
    try:
        files.write_json(dir / "metrics.json", record)
    finally:
        # Also if they cannot be kept, as in a folder that is read-only.
        if json:
            print_json(record)
        elif not quiet:
            FORMATS[format](summary(record))


def summary(record: dict[str, Any]) -> Table:
    """Return a table of a record, one row per number."""
    numbers = dict(record["scores"])
    for space in ("parameters", "functions"):
        found = record["diagnostics"][space]
        numbers |= {
            f"{space}: {label}": found[key]
            for key, label in (("ess_mean", "ESS"), ("rhat_share", "R-hat < 1.1"), ("chain_rhat_share", "cR-hat < 1.1"))
        }
    numbers |= {f"AUROC vs. {name}": found["auroc"] for name, found in record.get("ood", {}).items()}
    numbers |= {f"accuracy, severity {s}": v for s, v in record.get("corruptions", {}).get("mean", {}).items()}
    numbers |= record.get("reference", {})
    if record["cost"]["seconds_per_step"] is not None:
        numbers["milliseconds per step"] = 1000 * record["cost"]["seconds_per_step"]
    columns = [Column("metric", "metric"), Column("value", "value", ".4g")]
    return from_records(columns, [{"metric": name, "value": value} for name, value in numbers.items()])
