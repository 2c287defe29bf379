"""The results of an experiment: its files, and the page of results, which is made from the files results.json."""

import importlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roamax.errors import FileError, check, named_file, shaped
from roamax.host import files
from roamax.paper.framework.claims import Claim
from roamax.paper.framework.comparison import EPSILON_SQUARED, LENGTH, Comparison
from roamax.paper.framework.registry import EXPERIMENTS
from roamax.paper.framework.summary import not_run, said, summary
from roamax.report.figures import image
from roamax.report.table import latex, markdown


@dataclass(frozen=True)
class Findings:
    """Tables and matplotlib figures by a short name, and the `data` behind them, ready for JSON.

    An experiment with `claims` has a function of that name that makes them from the rows of its tables. `remarks` are
    sentences about tables for which the paper has nothing to compare with.
    """

    tables: Mapping[str, Comparison] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    remarks: Sequence[str] = ()
    seeds: int | None = None
    """The number of seeds used; None for all."""


def write_files(folder: Path, about: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    """Write results.json, tables in Markdown and LaTeX, and figures as PNG and PDF.

    Args:
        folder: The folder to write to.
        about: Further content of results.json.
        found: The findings.

    Returns:
        The content of results.json.
    """
    results = {
        **about,
        "tables": {name: table.to_json() for name, table in found.tables.items()},
        "orderings": {name: table.orderings() for name, table in found.tables.items() if table.orderings()},
        "claims": [claim.to_json() for claim in found.claims if claim.holds is not None],
        "remarks": list(found.remarks),
        "data": dict(found.data),
        "figures": list(found.figures),
    }
    for name, table in found.tables.items():
        files.write_bytes(folder / f"{name}.md", f"{markdown(table.table())}\n".encode())
        files.write_bytes(folder / f"{name}.tex", f"{latex(table.table())}\n".encode())
    for name, figure in found.figures.items():
        for kind in ("png", "pdf"):
            files.write_bytes(folder / f"{name}.{kind}", image(figure, kind, dpi=120, facecolor="white"))
    files.write_json(folder / "results.json", results)
    return results


def claim_sentences(results: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each of the paper's claims in results.json on whether it holds; older files have none."""
    claims = map(Claim.from_json, results.get("claims", []))
    return [f"{one.statement}{f' ({one.data})' if one.data else ''}: {said(one.holds)} here." for one in claims]


HEAD = """## How it was measured

Each number was measured by the command above it, and this page is made by `roamax experiment page` from the
`results.json` of each command. Below each of our rows is the paper's, if it has one, which was measured on
accelerators, with far larger networks and longer runs than at the `cpu` scale. The best of each row or column is bold,
except for KLD, and apart from HMC, which is a reference.

DE is a deep ensemble, cSGMCMC cyclical SGHMC; both are tuned to each data set on validation data, except to digits
and in regression-1d, at the `cpu` scale: also the number of members, of cycles, and the temperature. CIFAR-100 and
Tiny-ImageNet have the settings of CIFAR-10. L2E has two sets of weights: `l2e`, for short runs, at the `cpu` scale,
and `l2e-paper`, trained as the paper says, at the other two, if the settings of a result say so. It and its variants
have one setting, that of their card, everywhere. That of `l2e` was chosen among
three, on validation data of digits, of small perceptrons, of MNIST with an MLP and of Fashion-MNIST with a CNN;
CIFAR-10 with a CNN had also been looked at before the choice. HMC on CIFAR-10 is the
published predictive distribution of a large network. ACC and NLL are those of the averaged prediction, ECE is its
calibration error, KLD the mean divergence between the predictions of draws: higher is more diverse.

Numbers are within the noise of each other if they differ by less than one standard deviation of a difference between
seeds, of which there are three: a larger difference is a hint, not a proof. Minutes are those of a run from scratch,
with one chain per core: the time of chains, predictions and barriers that another experiment had already computed is
included, divided by the number of cores. Chains of one seed drift apart, by rounding, on another machine or
number of cores: where experiments on other cores use the same chains, their numbers differ within the noise.
"""


def write_page(folders: Sequence[Path], out: Path, hours: Path | None = None) -> list[Path]:
    """Write the page of results, with its figures in a folder next to it that is named after it.

    Args:
        folders: The folders of experiments, in any order: sections have that of `EXPERIMENTS`. Figures are copied from
            there; where a folder has only results.json, the figures next to the page stay.
        out: The page's file.
        hours: A file with what `roamax experiment all --plan --json` prints, for what was not run.

    Returns:
        The files of the figures.
    """
    check(len(folders) > 0, "DIR", "name at least one folder of results", "none")
    out = named_file(out, "out")
    left = [] if hours is None else shaped(files.read_json(hours), HOURS, hours, PLANNED)
    pictures = out.with_suffix("")
    files.make_folder(pictures)
    order = list(EXPERIMENTS)
    read = [(Path(folder), _read(Path(folder))) for folder in folders]
    made = sorted(read, key=lambda one: (order.index(one[1]["experiment"]), one[0].name))
    top = (summary({folder.name: results for folder, results in made}), not_run(left))
    shown, sections = [], ["# Results\n", *filter(None, top), HEAD]
    for folder, results in made:
        figures = {name: pictures / f"{folder.name}-{name}.png" for name in results["figures"]}
        for name, path in figures.items():
            drawn = folder / f"{name}.png"
            if drawn.exists() or not path.exists():
                files.write_bytes(path, files.read_bytes(drawn))
        shown += figures.values()
        sections.append(
            _section(folder.name, results, {name: f"{pictures.name}/{path.name}" for name, path in figures.items()})
        )
    files.write_bytes(out, "\n".join(sections).encode(errors="backslashreplace"))
    return shown


_CLAIM = {"statement": str, "holds": (bool, str), "data": str, "here": [[(float, None)]]}
_ROW = {"row": [str], "values": {"*": [(float, None)]}}
RESULTS = {
    "experiment": str, "scale": str, "seeds": [int], "notes": [str], "minutes": float, "remarks?": [str],
    "figures": [str], "data?": dict, "orderings": {"*": str}, "claims?": ([_CLAIM], {"*": (bool, str)}),
    "made_by": {"versions": {"*": str}, "cores": int, "seed": int},
    "tables": {"*": {
        "title": str, "heads": [str], "columns": [str], "compared": str, "digits": int, "better": {"*": str},
        "rows": [_ROW], "paper": [_ROW],
    }},
}  # fmt: skip
"""The fields of an experiment's results.json."""
HOURS = [{"experiment": str, "chain": str, "chains": int, "hours": float}]
PLANNED = "`roamax experiment all --plan --json` prints such files."


def _read(folder: Path) -> dict[str, Any]:
    """Read results.json, with today's names for what older files name otherwise."""
    path = folder / "results.json"
    results = shaped(files.read_json(path), RESULTS, path, "`roamax experiment` writes such files.")
    if (
        results["experiment"] not in EXPERIMENTS
        or not all(map(files.is_plain_name, results["figures"]))
        or not all(map(_is_table, results["tables"].values()))
    ):
        raise FileError(f"{path} was not written by `roamax experiment`.")
    results["reproduces"] = EXPERIMENTS[results["experiment"]].reproduces
    results["remarks"] = [_today(remark) for remark in results.get("remarks", [])]
    for table in results["tables"].values():
        table["columns"] = [_today(name) for name in table["columns"]]
        for entry in (*table["rows"], *table["paper"]):
            entry["row"] = [_today(name) for name in entry["row"]]
            entry["values"] = {_today(name): value for name, value in entry["values"].items()}
    try:
        results["claims"] = [claim.to_json() for claim in _claims(results)]
    except (KeyError, ValueError):
        raise FileError(f"{path} was not written by `roamax experiment`.") from None
    return results


def _claims(results: Mapping[str, Any]) -> list[Claim]:
    """Return the claims; older files have only a verdict per statement, and what their tables say is said anew."""
    stored = results.get("claims", [])
    if isinstance(stored, list):
        return [Claim.from_json(one) for one in stored]
    module = importlib.import_module(f"roamax.paper.{results['experiment'].replace('-', '_')}")
    if not hasattr(module, "claims"):
        return [Claim(statement, holds) for statement, holds in stored.items()]
    tables = map(Comparison.from_json, results["tables"].values())
    found = module.claims({key: row for table in tables for key, row in table.rows.items()})
    return [claim for claim in found if claim.holds is not None]


def _is_table(stored: Mapping[str, Any]) -> bool:
    """Return whether every row has its names and every value its two numbers."""
    sides = (*stored["rows"], *stored["paper"])
    return all(len(entry["row"]) == len(stored["heads"]) for entry in sides) and all(
        isinstance(value, list) and len(value) == 2 for entry in sides for value in entry["values"].values()
    )


def _today(name: str) -> str:
    return name.replace("step size ", f"{EPSILON_SQUARED} ") if name != "step size" else LENGTH


def _section(title: str, results: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    made = results["made_by"]
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    name, what = results["experiment"], results["reproduces"].rstrip(".")
    count = len(results["seeds"])
    chosen = results.get("options", {}).items()
    options = "".join(f" --{key} {shlex.join(map(str, values))}" for key, values in chosen if values)
    seeds = f"{count} seed{'' if count == 1 else 's'}, " if count else ""
    parts = [
        f"## {title}",
        f"{what[:1].upper()}{what[1:]}. Scale `{results['scale']}`, {seeds}"
        f"{results['minutes']:.0f} minutes with {made['cores']} of the machine's cores.",
        f"```\nroamax experiment {name} --scale {results['scale']}{options} --out results/{title}\n```",
    ]
    for key, stored in results["tables"].items():
        parts += [f"**{stored['title']}**", markdown(Comparison.from_json(stored).table())]
        if key in results["orderings"]:
            parts.append(results["orderings"][key])
    claims = claim_sentences(results)
    if claims:
        parts.append("What the paper finds, on these tasks:\n\n" + "\n".join(f"- {sentence}" for sentence in claims))
    parts += results["remarks"]
    parts += [f"![{name}: {figure}]({path})" for figure, path in figures.items()]
    if results["notes"]:
        parts.append("Not measured here:\n\n" + "\n".join(f"- {note}" for note in results["notes"]))
    return "\n\n".join([*parts, f"*{versions}, seed {made['seed']}.*", ""])
