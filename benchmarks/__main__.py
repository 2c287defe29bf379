"""`python -m benchmarks`: the suite, or with a subcommand one of the other benchmarks."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from roamax.cli import fail
from roamax.cli.arguments import Json, Names, Quiet
from roamax.cli.parsing import parse
from roamax.errors import FileError, InputError

OTHERS = {
    "page": "benchmarks.__main__:page",
    "answers": "benchmarks.answers:measure",
    "conv": "benchmarks.conv:compare",
    "conv-ways": "benchmarks.conv_ways:compare",
    "estimators": "benchmarks.estimators:compare",
    "meta": "benchmarks.meta:compare",
    "pytorch": "benchmarks.pytorch:compare",
}
"""Subcommands that are not part of the suite."""
File = Annotated[Path, tyro.conf.arg(metavar="FILE")]


def _entries() -> Sequence[str]:
    from benchmarks.suite import ENTRIES

    return list(ENTRIES)


Entries = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="NAME ...", help_behavior_hint=lambda default: f"Known: {', '.join(_entries())}."),
    Names(_entries),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the arguments name, by default those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prog, run = "python -m benchmarks", suite
    if words and words[0] in OTHERS:
        prog = f"{prog} {words[0]}"
        module, _, name = OTHERS[words.pop(0)].partition(":")
        run = getattr(importlib.import_module(module), name)
    try:
        parse(run, prog, words)()
    except (InputError, FileError) as error:
        fail(str(error), code=2)


def suite(
    only: Entries = (), rounds: int = 7, out: File = Path("bench.json"), quiet: Quiet = False, json: Json = False
) -> None:
    """Compare roamax with the alternatives, in rounds in which all take turns.

    Reports the median ratio within a round, with its quartiles and a mark for
    two CPU cores; and how time and memory grow with size. Libraries that are
    not installed are left out, with a note.

    Other benchmarks: python -m benchmarks page, answers, conv, conv-ways,
    estimators, meta or pytorch; each has its own --help.

    Examples:
        python -m benchmarks
        python -m benchmarks --only runner zoo --rounds 15 --out my-bench.json

    Args:
        only: Measure only these; OUT keeps the results of others.
        rounds: Turns per contestant, after one to warm up.
        out: The file to write results to.
    """
    from roamax.cli.start import start_jax

    start_jax()
    from benchmarks import page, suite
    from roamax.cli.output import print_json, print_table
    from roamax.host import files
    from roamax.host.progress import progress_bar
    from roamax.report.table import from_records

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
            print_table(from_records(page.SHORT, rows))
        print(f"Results: {out}")


def page(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    out: File = Path("performance.md"),
    quiet: Quiet = False,
) -> None:
    """Write a Markdown page about results, with a copy of them and a figure.

    Example:
        python -m benchmarks page bench.json --out docs/performance.md

    Args:
        file: The results of `python -m benchmarks`.
        out: The page to write.
    """
    from benchmarks.page import write_page

    write_page(file, out)
    if not quiet:
        print(f"Page: {out}")


def _line(name: str, record: dict[str, Any]) -> str:
    if "skipped" in record:
        return f"{name}: left out, {record['skipped']}"
    if "median" not in record:
        return f"{name}: measured"
    return f"{name}: {record['median']:.3g} ({'holds' if record['holds'] else 'misses its mark'})"


if __name__ == "__main__":
    main()
