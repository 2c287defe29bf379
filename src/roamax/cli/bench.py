"""`roamax bench` and `roamax bench page`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from roamax.cli.arguments import Json, Quiet, Words

File = Annotated[Path, tyro.conf.arg(metavar="FILE")]


def bench(
    only: Annotated[Words, tyro.conf.arg(metavar="NAME ...")] = (),
    rounds: int = 7,
    out: File = Path("bench.json"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure roamax beside the alternatives, in rounds in which all contestants take turns.

    What counts is the median ratio of a round, with its quartiles, against a mark for two CPU cores; and how time and
    memory grow with size. Contests with libraries that are not installed are left out, with a line that says so.

    Examples:
        roamax bench
        roamax bench --only runner l2e-cnn --rounds 15 --out my-bench.json

    Args:
        only: Measure these alone; FILE keeps the others. Contests: runner, posteriors, blackjax, l2e-cnn, l2e-resnet,
            chains, predict, predict-memory, devices, help, import, second-start. Growth: limits, by-parameters,
            by-chains, by-draws, by-inner-steps.
        rounds: Turns of each contestant, besides one to warm up.
        out: The file to write results to.
    """
    from roamax.cli.start import start_jax

    start_jax()
    from benchmarks import page, suite

    from roamax.cli.output import print_json, print_table
    from roamax.host import files
    from roamax.host.progress import progress_bar

    measured = suite.run(only, rounds, out)
    total = len(set(only)) or len(suite.ENTRIES)
    with progress_bar("measuring", total, show=False if quiet or json else None, note="") as report:
        for done, (name, record) in enumerate(measured, start=1):
            if not (quiet or json):
                print(_line(name, record), flush=True)
            report(done, name)
    results = files.read_json(out)
    if json:
        print_json(results)
    elif not quiet:
        rows = page.contest_rows(results)
        if rows:
            print_table("", page.SHORT, rows)
        print(f"Results: {out}")


def bench_page(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    out: File = Path("performance.md"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a Markdown page of results, with a copy of them and a folder with its figure beside it.

    Example:
        roamax bench page bench.json --out docs/performance.md

    Args:
        file: What `roamax bench` wrote.
        out: The page to write.
    """
    from benchmarks.page import write_page

    from roamax.cli.output import print_json

    figure = write_page(file, out)
    if json:
        print_json({"page": str(out), "figure": str(figure) if figure else None})
    elif not quiet:
        print(f"Page: {out}")


def _line(name: str, record: Mapping[str, Any]) -> str:
    if "skipped" in record:
        return f"{name}: left out, {record['skipped']}"
    if "median" not in record:
        return f"{name}: measured"
    return f"{name}: {record['median']:.3g} ({'holds' if record['holds'] else 'misses its mark'})"
