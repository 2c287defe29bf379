"""How `roam` stands, as tables from kept results: `roamax experiment transfer`, and `benchmarks/bias.py`."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roamax.paper.framework.comparison import Comparison, Rows, Value, exceeds
from roamax.paper.framework.problems import CPU, Problem
from roamax.paper.transfer import METHODS, OURS, by_task
from roamax.report.table import Column, from_records, markdown

ROOT = Path(__file__).parents[1]
ROAM = "roam"
WORDS = {True: "below", "level": "level", False: "above"}


def kept(table: str) -> Rows:
    """Return the rows of one table of all kept results of `transfer`, by task and method."""
    found = {}
    for results in _results():
        found |= Comparison.from_json(results["tables"][table]).rows
    return found


def problems() -> list[Problem]:
    """Return the problems of these results, each at all of its lengths."""
    found = []
    for results in _results():
        options = results["options"]
        for name in options["problems"]:
            found += [CPU[name].lasting(steps) for steps in options["steps"] or [CPU[name].steps]]
    return found


def nll_table() -> str:
    """Return the NLL and CPU time of what ships and of the best three tuned methods, by task and length."""
    rows, records = kept("nll"), []
    columns = [Column("task", "task"), Column("steps", "gradients", ",d"), *(Column(name, name) for name in OURS[1:]),
               Column("rival0", "best tuned method"), Column("rival1", "second"), Column("rival2", "third"),
               Column("L2E", "L2E"), Column("stands", "roam vs. the best")]  # fmt: skip
    for problem in (problem for group in by_task(problems()).values() for problem in group):
        here = {method: row for (task, method), row in rows.items() if task == problem.label}
        if ROAM not in here:
            continue
        tuned = sorted((name for name in here if name not in OURS), key=lambda name: here[name]["NLL"].mean)
        task = problem.label.removesuffix(f", {problem.steps:,} steps")
        record: dict[str, Any] = {column.key: "–" for column in columns} | {"task": task, "steps": problem.steps}
        record |= {name: _cell(here[name]) for name in OURS if name in here}
        record |= {f"rival{n}": f"{name} {_cell(here[name])}" for n, name in enumerate(tuned[:3])}
        if tuned:
            record["stands"] = WORDS[exceeds(here[tuned[0]]["NLL"], here[ROAM]["NLL"]) or False]
        records.append(record)
    return markdown(from_records(columns, records))


def equal_time_table() -> str:
    """Return the NLL of `roam`, and that which tuned methods have after as many CPU seconds.

    That of a method between two of its lengths is on the straight line between them, over the logarithm of the seconds.
    """
    rows, records = kept("nll"), []
    columns = [Column("task", "task"), Column("steps", "gradients of roam", ",d"), Column("seconds", "CPU s", ".2g"),
               Column(ROAM, ROAM), Column("rival0", "best tuned method"), Column("rival1", "second"),
               Column("rival2", "third")]  # fmt: skip
    for task, group in by_task(problems()).items():
        for problem in group:
            if (problem.label, ROAM) not in rows:
                continue
            here = rows[problem.label, ROAM]
            seconds = here["CPU s"].mean
            found = {name: nll for name in METHODS if (nll := _nll_after(seconds, name, group, rows)) is not None}
            tuned = sorted((name for name in found if name not in OURS), key=lambda name: found[name])
            if tuned:
                record: dict[str, Any] = {column.key: "–" for column in columns}
                record |= {"task": task, "steps": problem.steps, "seconds": seconds, ROAM: _number(here["NLL"])}
                record |= {f"rival{n}": f"{name} {found[name]:.4f}" for n, name in enumerate(tuned[:3])}
                records.append(record)
    return markdown(from_records(columns, records))


def _nll_after(seconds: float, name: str, group: Sequence[Problem], rows: Rows) -> float | None:
    """Return the NLL of a method after that time; None if it is outside of the method's lengths."""
    found = [rows[problem.label, name] for problem in group if (problem.label, name) in rows]
    times, nlls = ([row[column].mean for row in found] for column in ("CPU s", "NLL"))
    if len(found) < 2 or not times[0] <= seconds <= times[-1]:
        return None
    return float(np.interp(math.log(seconds), [math.log(time) for time in times], nlls))


def barrier_table() -> str:
    """Return the barriers between draws of one chain, by task, length and method."""
    rows = kept("diversity")
    records = [
        {"task": task, "method": method, **{name: _number(value) for name, value in row.items()}}
        for (task, method), row in rows.items()
    ]
    columns = [Column("task", "task"), Column("method", "method"), Column("error barrier", "error barrier"),
               Column("NLL barrier", "NLL barrier")]  # fmt: skip
    return markdown(from_records(columns, records))


def deviation_table() -> str:
    """Return the ratio of deviations to those of known targets."""
    rows = json.loads((ROOT / "docs" / "bias.json").read_text())["rows"]
    targets = list(dict.fromkeys(row["target"] for row in rows))
    ratios = {(row["sampler"], row["target"]): row["deviation"] for row in rows}
    wanted = [name for name, target in ratios if target == targets[0] and name.partition(",")[0] in ("l2e", ROAM)]
    records = [{"sampler": name, **{target: ratios[name, target] for target in targets}} for name in wanted]
    return markdown(from_records([Column("sampler", "sampler"), *(Column(t, t, ".3f") for t in targets)], records))


def _results() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(ROOT.glob("results/transfer*/results.json"))]


def _cell(row: dict[str, Value]) -> str:
    nll = row["NLL"]
    spread = "" if nll.sd is None else f" ± {_number(Value(nll.sd))}"
    return f"{_number(nll)}{spread} ({row['CPU s'].mean:.2g} s)"


def _number(value: Value) -> str:
    return f"{value.mean:.4f}"
