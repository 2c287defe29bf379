"""The bias of learned weights on standard targets, as a table.

    python benchmarks/bias.py                                 # the weights that ship -> docs/bias.md
    python benchmarks/bias.py my/weights.safetensors          # these, and your own

SGHMC with the same step size and friction is in the table too: its bias comes from the step size alone.
"""

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from roamax import pretrained, runs
from roamax.evaluation.stationarity import SamplerOf, bias
from roamax.evaluation.targets import TARGETS
from roamax.report.table import Column, from_records, markdown
from roamax.samplers.registry import RECORDS
from roamax.samplers.sghmc import sghmc

COLUMNS = [
    Column("target", "target"),
    Column("sampler", "sampler"),
    Column("mean", "error of the mean", ".3f"),
    Column("deviation", "ratio of deviations", ".3f"),
    Column("distance", "distance", ".3f"),
    Column("floor", "noise floor", ".3f"),
]
TEXT = """# The bias of the learned weights

{finding}

A learned sampler need not have the posterior as its stationary distribution: its bias has to be measured. Chains start
from reference draws of a target (exact ones; for the network, eight chains of NUTS), momenta from their stationary
law, and run for {steps:,} steps on all data. Errors are in standard deviations of the target, over its coordinates or,
for the network, over predictions at 25 inputs: the root mean square error of the mean, the mean ratio of standard
deviations (1 means no bias), and the mean Wasserstein distance, with its noise floor in the last column. SGHMC has the
step size and friction of the weights that its row names: its bias comes from the step size alone. A dash means that a
chain diverged.

{table}

Made by `{command}`, seed {seed}, JAX {jax}; the numbers are in [bias.json](bias.json).
"""
KEPT = (0.8, 1.25)
"""Ratios of deviations between these count as those of the target."""


def finding(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on which samplers keep the spread of which targets."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    groups: dict[str, list[str]] = {}
    for sampler in dict.fromkeys(row["sampler"] for row in rows):
        own = [row for row in rows if row["sampler"] == sampler]
        kept = [row["target"] for row in own if KEPT[0] <= row["deviation"] <= KEPT[1]]
        where = {0: "no target", len(targets): "every target"}.get(len(kept), ", ".join(kept))
        groups.setdefault(where, []).append(f"`{sampler}`")
    said = "; ".join(f"on {where}, {', '.join(samplers)}" for where, samplers in groups.items())
    return textwrap.fill(f"The ratio of standard deviations to those of the target is in {KEPT}: {said}.", 120)


def contestants(sources: list[str]) -> dict[str, SamplerOf]:
    """Return each set of weights as a sampler, and SGHMC with its settings."""
    found: dict[str, SamplerOf] = {}
    for source in sources:
        weights = pretrained.load(source) if source in pretrained.names() else pretrained.read(source)
        name = str(weights.card.get("sampler", "l2e"))
        label = source if source in pretrained.names() else f"{name} ({Path(source).parent.name})"
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
    chosen = contestants([*pretrained.names(), *arguments.weights])
    if not chosen:
        print("No weights ship with this version: name a file of weights.")
        return
    for number, (target_name, make) in enumerate(TARGETS.items()):
        target = make(jax.random.fold_in(key, number))
        for name, sampler in chosen.items():
            found = bias(sampler, target, jax.random.fold_in(key, 100 + number), num_steps=arguments.steps)
            rows.append({"target": target_name, "sampler": name, **found._asdict()})
            print(json.dumps(rows[-1]), flush=True)
    made_by = runs.provenance(arguments.seed)
    made_by["command"] = " ".join(["python benchmarks/bias.py", *arguments.weights])
    (arguments.out / "bias.json").write_text(json.dumps({**made_by, "steps": arguments.steps, "rows": rows}, indent=1))
    table = markdown(from_records(COLUMNS, rows))
    facts = {"command": made_by["command"], "seed": arguments.seed, "jax": made_by["versions"]["jax"]}
    said = TEXT.format(finding=finding(rows), table=table, steps=arguments.steps, **facts)
    (arguments.out / "bias.md").write_text(said)


if __name__ == "__main__":
    main()
