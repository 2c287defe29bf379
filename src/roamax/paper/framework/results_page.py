"""The page of results: a section for each experiment, made of its results.json alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roamax.errors import FileError, check
from roamax.host import files
from roamax.paper.framework.findings import claim_sentences
from roamax.report.tables import Table, markdown

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
    """Write the page, and copies of the figures into a folder beside it that is named after it."""
    check(len(folders) > 0, "DIR", "name at least one folder of results", "none")
    pictures = out.with_suffix("")
    files.make_folder(pictures)
    written, sections = [], [HEAD]
    for folder in folders:
        results = files.read_json(Path(folder) / "results.json")
        if not isinstance(results, dict) or "experiment" not in results:
            raise FileError(f"{Path(folder) / 'results.json'} is not of an experiment.")
        figures = {}
        for name in results["figures"]:
            figures[name] = pictures / f"{results['experiment']}-{name}.png"
            files.write_bytes(figures[name], files.read_bytes(Path(folder) / f"{name}.png"))
        written += figures.values()
        sections.append(_section(results, {name: f"{pictures.name}/{path.name}" for name, path in figures.items()}))
    files.write_bytes(out, "\n".join(sections).encode())
    return written


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
        parts += [f"**{stored['title']}**", markdown(Table.from_json(stored))]
        if key in results["orderings"]:
            parts.append(results["orderings"][key])
    claims = claim_sentences(results)
    if claims:
        parts.append("What the paper finds, on these tasks:\n\n" + "\n".join(f"- {sentence}" for sentence in claims))
    parts += results.get("remarks", [])
    parts += [f"![{name}: {figure}]({path})" for figure, path in figures.items()]
    if results["notes"]:
        parts.append("Not measured here:\n\n" + "\n".join(f"- {note}" for note in results["notes"]))
    return "\n\n".join([*parts, f"*{versions}, seed {made['seed']}.*", ""])
