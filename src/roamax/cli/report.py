"""`roamax report DIR...`."""

from pathlib import Path
from typing import Annotated, Any

import tyro


def report(
    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    out: Path = Path("report.html"),
    data_dir: Path | None = None,
    quiet: bool = False,
) -> None:
    """Write one self-contained HTML page about one run, or several side by side.

    Runs that `roamax evaluate` has not measured yet are measured first. Figures are also written as PNG and PDF beside
    the page.

    Example: roamax report runs/sghmc runs/l2e --out comparison/report.html

    Args:
        dirs: Folders that `roamax sample` made.
        out: The page to write.
        data_dir: Where data sets are kept: by default $ROAMAX_DATA, or the user's cache folder.
        quiet: Print nothing.
    """
    from roamax.cli.start import start_jax
    from roamax.errors import check

    check(len(dirs) > 0, "DIRS", "name at least one run", "none")
    start_jax()
    from roamax import evaluation, runs
    from roamax.experiments.compare import provenance
    from roamax.report.runs import write_runs_page

    records = [_record(folder, data_dir) for folder in dirs]
    runs.make_folder(out.parent)
    seed = records[0].get("seed", 0)
    write_runs_page(out, dict(zip(evaluation.names_of(records), records, strict=True)), provenance(seed))
    if not quiet:
        print(out)


def _record(folder: Path, data_dir: Path | None) -> dict[str, Any]:
    from roamax import evaluation, storage
    from roamax.experiments.compare import write_results

    path = folder / "metrics.json"
    if not path.exists():
        write_results(path, evaluation.evaluate(evaluation.open_run(folder, data_dir)))
    return storage.read_json(path)
