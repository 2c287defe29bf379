"""What an experiment found: its files, and the page of results, which is made of the files results.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roamax.errors import FileError, check
from roamax.host import files
from roamax.paper.framework.comparison import EPSILON_SQUARED, LENGTH, Comparison, Holds
from roamax.paper.framework.registry import EXPERIMENTS
from roamax.report.figures import image
from roamax.report.table import latex, markdown


@dataclass(frozen=True)
class Findings:
    """Tables and matplotlib figures by a short name, and `data` behind them as JSON holds it.

    `claims` are what the paper shows in a figure or says, and whether it holds here.
    `remarks` are sentences about what is in the tables, where the paper has nothing to compare with.
    """

    tables: Mapping[str, Comparison] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    claims: Mapping[str, Holds] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    seeds: int | None = None
    """How many of the seeds were used; None for all."""


def write_files(folder: Path, about: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    """Write results.json, tables in Markdown and LaTeX, and figures as PNG and PDF.

    Args:
        folder: Where they go.
        about: What results.json says besides the findings.
        found: The findings.

    Returns:
        What results.json holds.
    """
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
        files.write_bytes(folder / f"{name}.md", f"{markdown(table.table())}\n".encode())
        files.write_bytes(folder / f"{name}.tex", f"{latex(table.table())}\n".encode())
    for name, figure in found.figures.items():
        for kind in ("png", "pdf"):
            files.write_bytes(folder / f"{name}.{kind}", image(figure, kind, dpi=120, facecolor="white"))
    files.write_json(folder / "results.json", results)
    return results


def claim_sentences(results: Mapping[str, Any]) -> list[str]:
    """Say of each of the paper's claims in what results.json holds whether it holds here; old files have none."""
    words = {True: "holds", False: "does not hold", "level": "cannot be told from the noise"}
    return [f"{claim}: {words[holds]} here." for claim, holds in results.get("claims", {}).items()]


HEAD = """# Results

Every number here was measured by the command named above it, and the page itself is made by `roamax experiment page`
from the `results.json` that each command wrote. Below each row of ours stands the paper's, where it has one: it was
measured on accelerators, with far larger networks and longer runs than the `cpu` scale has. Bold is the best of its
row or column.

DE is a deep ensemble, cSGMCMC cyclical SGHMC; both are tuned to each data set on validation data, but at `cpu` scale
not to digits. L2E and its variants take one setting, that of their card, everywhere. That of L2E was chosen among
three, on validation data of digits, of small perceptrons, of MNIST with an MLP and of Fashion-MNIST with a CNN;
CIFAR-10 with a CNN had been looked at, too, before the choice. HMC on CIFAR-10 is the published predictive of a large
network. ACC and NLL are of the averaged prediction, ECE is its calibration error, KLD the mean divergence between the
predictions of draws: higher is more diverse.

What is within the noise differs by less than one standard deviation of a difference between seeds, of which there are
three: beyond it is a hint, not a proof. Minutes are those that a run from nothing takes, with a chain on each core:
what chains, predictions and barriers took that another experiment had made before counts, shared among the cores.
Chains of one seed part ways, by rounding, on another machine or number of cores: where experiments with other cores
look at the same chains, their numbers differ within the noise.
"""


def write_page(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write the page of results, with its figures in a folder next to it that is named after it.

    Args:
        folders: A figure is copied from the folder of its experiment; where that has results.json alone, the one next
            to the page stays.
        out: The page's file.

    Returns:
        The files of the figures.
    """
    check(len(folders) > 0, "DIR", "name at least one folder of results", "none")
    pictures = out.with_suffix("")
    files.make_folder(pictures)
    shown, sections = [], [HEAD]
    for folder in folders:
        results = _read(Path(folder))
        figures = {name: pictures / f"{results['experiment']}-{name}.png" for name in results["figures"]}
        for name, path in figures.items():
            made = Path(folder) / f"{name}.png"
            if made.exists() or not path.exists():
                files.write_bytes(path, files.read_bytes(made))
        shown += figures.values()
        sections.append(_section(results, {name: f"{pictures.name}/{path.name}" for name, path in figures.items()}))
    files.write_bytes(out, "\n".join(sections).encode())
    return shown


def _read(folder: Path) -> dict[str, Any]:
    """Read results.json, with names of today for what old files name otherwise."""
    path = folder / "results.json"
    results = files.read_json(path)
    if not isinstance(results, dict) or results.get("experiment") not in EXPERIMENTS:
        raise FileError(f"{path} is not of an experiment.")
    results["reproduces"] = EXPERIMENTS[results["experiment"]].reproduces
    results["remarks"] = [_today(remark) for remark in results.get("remarks", [])]
    for table in results["tables"].values():
        table["columns"] = [_today(name) for name in table["columns"]]
        for entry in (*table["rows"], *table["paper"]):
            entry["row"] = [_today(name) for name in entry["row"]]
            entry["values"] = {_today(name): value for name, value in entry["values"].items()}
    return results


def _today(name: str) -> str:
    return name.replace("step size ", f"{EPSILON_SQUARED} ") if name != "step size" else LENGTH


def _section(results: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    made = results["made_by"]
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    name, what = results["experiment"], results["reproduces"].rstrip(".")
    count = len(results["seeds"])
    seeds = f"{count} seed{'' if count == 1 else 's'}, " if count else ""
    parts = [
        f"## {name}",
        f"{what[:1].upper()}{what[1:]}. Scale `{results['scale']}`, {seeds}"
        f"{results['minutes']:.0f} minutes with {made['cores']} of the machine's cores.",
        f"```\nroamax experiment {name} --scale {results['scale']} --out results/{name}\n```",
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
