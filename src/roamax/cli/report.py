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

    Runs that `roamax evaluate` has not measured yet, or with other draws than
    they have now, are measured first. Figures are also written as PNG and PDF,
    to a folder next to the page: report_figures for report.html.

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
    from roamax.report.page import check_page
    from roamax.report.runs import write_runs_page

    check_page(out)
    show = False if quiet or json else None
    records = [_record(folder, data_dir, progress=show) for folder in dirs]
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
    from roamax.sampling.draws import Draws

    path = folder / "metrics.json"
    known = read_record(path) if path.exists() else {}
    # A record without the draws is taken as it is.
    if not known or ((folder / "draws").exists() and known.get("num_samples") != Draws.load(folder).num_samples):
        run, again = open_run(folder, data_dir), {"ood": tuple(known.get("ood", ())), "corrupt": "corruptions" in known}
        files.write_json(path, evaluate(run, **again, data_dir=data_dir, progress=progress))
    return read_record(path)
