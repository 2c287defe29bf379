"""The page of a run of the benchmarks and its figure, made from the JSON alone."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import growth
from roamax.data import archives
from roamax.errors import shaped
from roamax.host import files
from roamax.report.figures import image, legend, new_figure
from roamax.report.table import Column, from_records, markdown

Results = Mapping[str, Any]
SHORT = [Column("name", "contest"), Column("number", "measured"), Column("quartiles", "quartiles"),
         Column("mark", "mark"), Column("verdict", "holds")]  # fmt: skip
LONG = [Column("what", "what"), *SHORT[1:], Column("rounds", "rounds", "d"), Column("values", "medians")]
HEAD = """# Performance

{summary}

All contestants take a turn in every round, and a number is the median over rounds of the ratio within a round, unless
stated otherwise: other load on the machine affects all contestants alike. Each contest runs in its own process. This
page is made by `python -m benchmarks page` from [{data}]({data}), the output of `python -m benchmarks`; `make bench`
measures on your machine.

Measured on {machine}, with {versions}.

## Compared with the alternatives

{table}
"""
GROWTH = """## Growth

![Time and memory vs. size]({figure})

Dashed lines are the limits of the machine, as measured in the same run: {gflops:.0f} GFLOP/s in a matrix product,
{gigabytes:.1f} GB/s to and from memory. A step has to read and write the sampler's state once, and a step of L2E also
to compute a network for each parameter, {flops:,} operations.
"""
SAMPLER_COLUMNS = [Column("parameters", "parameters", ",d"), Column("sampler", "sampler"), Column("step", "step"),
                   Column("each", "per parameter"), Column("limit", "share of the limit"),
                   Column("floats", "memory / floats per parameter", ".1f")]  # fmt: skip
CHAIN_COLUMNS = [Column("chains", "chains", "d"), Column("step", "step of all chains"), Column("each", "per chain")]
DRAW_COLUMNS = [Column("draws", "draws", ",d"), Column("megabytes", "peak memory / MB", ".0f")]
INNER_COLUMNS = [Column("inner_steps", "inner steps", ",d"), Column("pair", "pair"), Column("each", "per step"),
                 Column("megabytes", "peak memory / MB", ".0f")]  # fmt: skip


RESULTS = {"entries": {"*": dict}, "versions": {"*": str}, "machine": {"cores": int, "processor": str}}
"""The fields of results that all pages show."""


def write_page(file: Path, out: Path) -> Path | None:
    """Write the page, the JSON and a folder with the figure next to it; return the figure's path."""
    results = shaped(files.read_json(file), RESULTS, file, "`python -m benchmarks` writes such files.")
    figure = out.parent / "images" / f"{out.stem}.png" if _grown(results) else None
    # Files of another version may lack numbers: nothing is written before all are there.
    with archives.reading(file, "measure anew, by `python -m benchmarks`"):
        text, picture = page_text(results, out), None if figure is None else image(draw(results), "png", dpi=110)
    files.write_json(out.with_suffix(".json"), results)
    if figure is not None and picture is not None:
        files.make_folder(figure.parent)
        files.write_bytes(figure, picture)
    files.write_bytes(out, text.encode())
    return figure


def page_text(results: Results, out: Path) -> str:
    """Return the page in Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    machine = f"{results['machine']['cores']} cores of {results['machine']['processor']}"
    rows = contest_rows(results)
    text = HEAD.format(summary=_summary(rows), machine=machine, versions=versions,
                       data=out.with_suffix(".json").name, table=markdown(from_records(LONG, rows)))  # fmt: skip
    skipped = [f"- {name}: {record['skipped']}" for name, record in results["entries"].items() if "skipped" in record]
    parts = [text, *(["Left out:\n", *skipped, ""] if skipped else [])]
    if _grown(results):
        limits = results["entries"]["limits"]
        parts.append(GROWTH.format(figure=f"images/{out.stem}.png", gflops=limits["flops"] / 1e9,
                                   gigabytes=limits["bytes"] / 1e9, flops=growth.network_flops()))  # fmt: skip
        parts += [
            f"**{title}**\n\n{markdown(from_records(columns, rows))}\n"
            for title, columns, rows in growth_tables(results)
        ]
    return "\n".join(parts)


def contest_rows(results: Results) -> list[dict[str, Any]]:
    """Return one row per contest that was held."""
    return [_row(name, record) for name, record in results["entries"].items() if "mark" in record]


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many contests are within their marks, and those that are not."""
    missed = [f"{row['what']} ({row['number']}, mark {row['mark']})" for row in rows if row["verdict"] != "yes"]
    held = f"{len(rows) - len(missed)} of {len(rows)} contests are within their marks."
    return textwrap.fill(held + (f" Not: {'; '.join(missed)}." if missed else ""), 120)


def growth_tables(results: Results) -> list[tuple[str, Sequence[Column], list[dict[str, Any]]]]:
    """Return titles, columns and rows of the tables of growth."""
    limits = results["entries"]["limits"]

    def limit(row: Mapping[str, Any]) -> float:
        return growth.least_seconds(row["sampler"], row["parameters"], limits["flops"], limits["bytes"])

    samplers = [
        {**row, "step": seconds(row["median"]), "each": seconds(row["median"] / row["parameters"]),
         "limit": f"{limit(row) / row['median']:.0%}"}
        for row in _rows(results, "by-parameters")
    ]  # fmt: skip
    chains = [
        {**row, "step": seconds(row["median"]), "each": seconds(row["median"] / row["chains"])}
        for row in _rows(results, "by-chains")
    ]
    inner = [
        {**row, "pair": seconds(row["seconds"]), "each": seconds(row["seconds"] / row["inner_steps"])}
        for row in _rows(results, "by-inner-steps")
    ]
    return [
        ("The cost of a step without that of the gradient", SAMPLER_COLUMNS, samplers),
        ("SGHMC on digits, a perceptron", CHAIN_COLUMNS, chains),
        ("Sampling to disk and predicting 10,000 images, 50,890 parameters", DRAW_COLUMNS, _rows(results, "by-draws")),
        ("An antithetic pair of meta-training, CNN of 4 channels", INNER_COLUMNS, inner),
    ]


def draw(results: Results) -> Any:
    """Draw time vs. parameters and chains, memory vs. draws, and time vs. inner steps."""
    figure, axes = new_figure(2, 2, width=4.4, height=3.1)
    parameters, chains, draws, inner = axes.flat
    limits = results["entries"]["limits"]
    for name, colour in (("SGHMC", "#3b82c4"), ("L2E", "#e07b39")):
        rows = [row for row in _rows(results, "by-parameters") if row["sampler"] == name]
        sizes = [row["parameters"] for row in rows]
        parameters.plot(sizes, [row["median"] for row in rows], marker="o", markersize=3, color=colour, label=name)
        least = [growth.least_seconds(name, size, limits["flops"], limits["bytes"]) for size in sizes]
        parameters.plot(sizes, least, linestyle="--", linewidth=1, color=colour)
    _line(chains, _rows(results, "by-chains"), "chains", "median")
    _line(draws, _rows(results, "by-draws"), "draws", "megabytes")
    _line(inner, _rows(results, "by-inner-steps"), "inner_steps", "seconds")
    labels = {"parameters": (parameters, "seconds per step"), "chains": (chains, "seconds per step of all"),
              "draws": (draws, "peak memory / MB"), "inner steps": (inner, "seconds per pair")}  # fmt: skip
    for label, (axis, value) in labels.items():
        axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel(value)
    for axis in (parameters, chains, inner):
        axis.set_yscale("log")
    draws.set_ylim(bottom=0)
    legend(parameters)
    return figure


def seconds(value: float) -> str:
    """Return a time as text, in a suitable unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _row(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    mark, is_ratio = record["mark"], record["mark"]["kind"] == "ratio"

    def shown(number: float) -> str:
        return f"{number:.2f}" if is_ratio else f"{number:.2f} {record['unit']}"

    bound = f"≤ {mark['at_most']:g}" if mark["at_most"] is not None else f"≥ {mark['at_least']:g}"
    values = {
        label: seconds(spread["median"]) if record["unit"] == "s" else f"{spread['median']:.0f} {record['unit']}"
        for label, spread in record["values"].items()
    }
    return {
        "name": name,
        "what": record["what"],
        "number": shown(record["median"]),
        "quartiles": f"{record['low']:.2f} to {record['high']:.2f}",
        "mark": bound if is_ratio else f"{bound} {record['unit']}",
        "rounds": record["rounds"],
        "verdict": "yes" if record["holds"] else "no",
        "values": ", ".join(f"{label} {value}" for label, value in values.items()),
    }


def _line(axis: Any, rows: Sequence[Mapping[str, float]], x: str, y: str) -> None:
    axis.plot([row[x] for row in rows], [row[y] for row in rows], marker="o", markersize=3, color="#3b82c4")


def _rows(results: Results, name: str) -> list[dict[str, Any]]:
    return results["entries"][name]["rows"]


def _grown(results: Results) -> bool:
    """Return whether all growth was measured."""
    entries = results["entries"]
    return "flops" in entries.get("limits", {}) and all(
        "rows" in entries.get(name, {}) for name in ("by-parameters", "by-chains", "by-draws", "by-inner-steps")
    )
