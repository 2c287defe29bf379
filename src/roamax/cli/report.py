"""`roamax report DIR...`."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from roamax.cli.arguments import DataDir, Json, Quiet


def report(
    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR ...", help_behavior_hint="")],
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("report.html"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page that compares runs.

    Runs that `roamax evaluate` has not measured yet are measured first. Figures
    are also written as PNG and PDF, next to the page.

    Example:
        roamax report runs/sghmc runs/cyclical --out comparison/report.html

    Args:
        dirs: Folders that `roamax sample` made.
        out: The page to write.
    """
    from roamax.cli.output import print_json
    from roamax.cli.start import start_jax
    from roamax.errors import check

    check(len(dirs) > 0, "DIR", "name at least one run", "none")
    start_jax()
    from roamax import runs
    from roamax.evaluation.run import names_of
    from roamax.host import files
    from roamax.report.runs import write_runs_page

    show = False if quiet or json else None
    records = [_record(folder, data_dir, progress=show) for folder in dirs]
    files.make_folder(out.parent)
    seed = records[0].get("seed", 0)
    named = dict(zip(names_of(records), records, strict=True))
    write_runs_page(out, named, runs.provenance(seed), show)
    if json:
        print_json({"page": str(out), "runs": named})
    elif not quiet:
        print(f"Report: {out}")


def _record(folder: Path, data_dir: Path | None, progress: bool | None) -> dict[str, Any]:
    from roamax.evaluation.evaluate import evaluate
    from roamax.evaluation.run import open_run, read_record
    from roamax.host import files

    path = folder / "metrics.json"
    if not path.exists():
        files.write_json(path, evaluate(open_run(folder, data_dir), progress=progress))
    return read_record(path)
