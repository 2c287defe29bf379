"""The bias of learned weights on standard targets, as a table.

    python benchmarks/bias.py                                 # the weights that ship -> docs/bias.md
    python benchmarks/bias.py my/weights.safetensors          # these, and your own

SGHMC with the same step size and friction is in the table too: its bias comes from the step size alone. The `spread` on
the card of the weights is written, too.
"""

import argparse
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from roamax import pretrained, runs
from roamax.evaluation.stationarity import SamplerOf, bias
from roamax.evaluation.targets import TARGETS
from roamax.pretrained import cards
from roamax.report.table import Column, from_records, markdown
from roamax.samplers.learned.roam import roam
from roamax.samplers.registry import RECORDS
from roamax.samplers.sghmc import sghmc
from roamax.types import Weights

NETWORK = "network"
"""The target whose reference draws are from NUTS."""
CYCLES = 200, 2000
"""Lengths of roam's cycles."""
COLUMNS = [
    Column("target", "target"),
    Column("sampler", "sampler"),
    Column("mean", "error of the mean", ".3f"),
    Column("deviation", "ratio of deviations", ".3f"),
    Column("distance", "distance", ".3f"),
    Column("floor", "noise floor", ".3f"),
]
TEXT = """# The bias of the learned weights

{verdict}

{finding}

A learned sampler need not have the posterior as its stationary distribution: its bias has to be measured. Chains start
from reference draws of a target (exact ones; for the network, eight chains of NUTS), momenta from their stationary
law, and run for {steps:,} steps on all data. Errors are in standard deviations of the target, over its coordinates or,
for the network, over predictions at 25 inputs: the root mean square error of the mean, the mean ratio of standard
deviations (1 means no bias), and the mean Wasserstein distance, with its noise floor in the last column. SGHMC has the
step size and friction of the weights that its row names: its bias comes from the step size alone. `roam` has no
step size; its chains are looked at where draws are taken, at the ends of cycles, and its weights do not act on targets
that its cycles can settle on, such as these. A dash means that a chain diverged.

{table}

Made by `{command}`, seed {seed}, JAX {jax}; the numbers are in [bias.json](bias.json).
"""


def finding(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on which samplers keep the spread of which targets."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    groups: dict[str, list[str]] = {}
    for sampler in dict.fromkeys(row["sampler"] for row in rows):
        own = [row for row in rows if row["sampler"] == sampler]
        kept = [row["target"] for row in own if cards.KEPT[0] <= row["deviation"] <= cards.KEPT[1]]
        where = {0: "no target", len(targets): "every target"}.get(len(kept), ", ".join(kept))
        groups.setdefault(where, []).append(f"`{sampler}`")
    said = "; ".join(f"on {where}, {', '.join(samplers)}" for where, samplers in groups.items())
    return textwrap.fill(f"The ratio of standard deviations to those of the target is in {cards.KEPT}: {said}.", 120)


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the weights that act as an optimiser, and on what to use instead."""
    network = {row["sampler"]: row["deviation"] for row in rows if row["target"] == NETWORK}
    narrow = ", ".join(f"`{name}`" for name, ratio in network.items() if ratio < cards.NARROW)
    said = (
        f"The weights {narrow} act as an optimiser on small problems: their draws are nearly one network, however good "
        "R-hat and ESS look. Use `sghmc` or `nuts` there. roamax warns (`roamax.errors.CardWarning`) where a problem "
        "is far from the card of such weights: ten times fewer or more examples, or another kind of task."
    )
    return textwrap.fill(said if narrow else "No weights act as an optimiser on a small network.", 120)


def page(record: Mapping[str, Any]) -> str:
    """Return the page of a record, the content of bias.json."""
    rows = record["rows"]
    facts = {"command": record["command"], "seed": record["seed"], "jax": record["versions"]["jax"]}
    table = markdown(from_records(COLUMNS, rows))
    return TEXT.format(finding=finding(rows), verdict=verdict(rows), table=table, steps=record["steps"], **facts)


def write_spreads(rows: Sequence[Mapping[str, Any]], sources: Mapping[str, Weights]) -> None:
    """Write to the card of each set of weights how its predictions for the network are spread, next to NUTS."""
    for row in rows:
        source = label_of(row["sampler"])
        if row["target"] == NETWORK and source in sources:
            weights = sources[source]
            spread = row["deviation"] if math.isfinite(row["deviation"]) else None
            cards.write(Path(weights.source).with_suffix(".json"), {**weights.card, "spread": spread})


def label_of(sampler: str) -> str:
    """Return the label of the weights whose `spread` a row has: that of roam is of its longest cycles."""
    return sampler.removesuffix(f", cycles of {max(CYCLES):,}")


def labelled(sources: list[str]) -> dict[str, Weights]:
    """Return the weights by their labels in the table."""
    found = {}
    for source in sources:
        weights = pretrained.resolve(source, "l2e", "weights")
        own = f"{weights.card.get('sampler', 'l2e')} ({Path(source).parent.name})"
        found[source if source in pretrained.names() else own] = weights
    return found


def contestants(sources: Mapping[str, Weights]) -> dict[str, SamplerOf]:
    """Return each set of weights as a sampler, and SGHMC with its settings; roam in cycles of two lengths."""
    found: dict[str, SamplerOf] = {}
    for label, weights in sources.items():
        name = str(weights.card.get("sampler", "l2e"))
        if name == "roam":
            lengths = {f"{label}, cycles of {length:,}": length for length in CYCLES}
            found |= {row: partial(roam, meta_params=weights, cycle_length=n) for row, n in lengths.items()}
            continue
        found[label] = partial(RECORDS[name].load(), meta_params=weights)
        if {"step_size", "friction"} <= weights.card.keys():
            settings = {key: weights.card[key] for key in ("step_size", "friction")}
            same = [name for name, other in found.items() if isinstance(other, partial) and other.keywords == settings]
            if not same:
                found[f"SGHMC as {label}"] = partial(sghmc, **settings)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="*", help="files of weights, with their cards")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs", help="where bias.md goes")
    parser.add_argument("--steps", type=int, default=20_000, help="steps per chain")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    key, rows = jax.random.key(arguments.seed), []
    sources = labelled([*pretrained.names(), *arguments.weights])
    chosen = contestants(sources)
    for number, (target_name, make) in enumerate(TARGETS.items()):
        target = make(jax.random.fold_in(key, number))
        for name, sampler in chosen.items():
            found = bias(sampler, target, jax.random.fold_in(key, 100 + number), num_steps=arguments.steps)
            rows.append({"target": target_name, "sampler": name, **found._asdict()})
            print(json.dumps(rows[-1]), flush=True)
    made_by = runs.provenance(arguments.seed)
    made_by["command"] = " ".join(["python benchmarks/bias.py", *arguments.weights])
    record = {**made_by, "steps": arguments.steps, "rows": rows}
    (arguments.out / "bias.json").write_text(json.dumps(record, indent=1))
    (arguments.out / "bias.md").write_text(page(record))
    write_spreads(rows, sources)


if __name__ == "__main__":
    main()
