"""What an experiment found, and its files: results.json, tables in Markdown and LaTeX, figures as PNG and PDF."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roamax.host import files
from roamax.report import tables
from roamax.report.tables import Holds, Table


@dataclass(frozen=True)
class Findings:
    """Tables and matplotlib figures by a short name, and `data` behind them as JSON holds it.

    `claims` are what the paper shows in a figure or says, and whether it holds here.
    `remarks` are sentences about what is in the tables, where the paper has nothing to compare with.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    claims: Mapping[str, Holds] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    seeds: int | None = None
    """How many of the seeds were used; None for all."""


def write(folder: Path, about: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    """The files of an experiment in its folder, and what results.json holds."""
    results = {
        **about,
        "tables": {name: table.to_json() for name, table in found.tables.items()},
        "orderings": {name: table.orderings() for name, table in found.tables.items() if table.orderings()},
        "claims": {claim: holds for claim, holds in found.claims.items() if holds is not None},
        "remarks": list(found.remarks),
        "data": dict(found.data),
        "figures": list(found.figures),
    }
    for name, table in found.tables.items():
        files.write_bytes(folder / f"{name}.md", f"{tables.markdown(table)}\n".encode())
        files.write_bytes(folder / f"{name}.tex", f"{tables.latex(table)}\n".encode())
    for name, figure in found.figures.items():
        for kind in ("png", "pdf"):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=120, facecolor="white")
            files.write_bytes(folder / f"{name}.{kind}", buffer.getvalue())
    files.write_json(folder / "results.json", results)
    return results


def claim_sentences(results: Mapping[str, Any]) -> list[str]:
    """The paper's claims in what results.json holds, and whether each holds here; files of before had none."""
    words = {True: "holds", False: "does not hold", "level": "cannot be told from the noise"}
    return [f"{claim}: {words[holds]} here." for claim, holds in results.get("claims", {}).items()]
