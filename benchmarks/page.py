"""The page of a run of the benchmarks and its figure, made from the JSON alone."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import growth, zoo
from benchmarks.work import network_flops
from roamax.data import archives
from roamax.errors import shaped
from roamax.host import files
from roamax.report.figures import BLUE, GREEN, INK, ORANGE, image, legend, log_ticks, new_figure
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

Measured on {facts}.{elsewhere}

## Compared with the alternatives

{table}
"""
ZOO = """## Networks

![Steps and first steps by network]({figure})

{about}

{steps}

**From a network to its first step**, in a process that has loaded JAX: without compiled programs on disk, and with
those of an earlier process. In parentheses, CPU seconds. The mark is for the ratio of CPU seconds, {first}.

{firsts}
"""
ABOUT_STEPS = """The time of a step relative to SGHMC's in the same round, in the program that `roamax.sample` runs,
on one core and on all; in parentheses, the same of CPU seconds. Bold numbers are beyond their mark: {marks}."""
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


STEP_COLUMNS = [Column("network", "network"), Column("parameters", "parameters", ",d"), Column("batch", "batch", "d"),
                Column("cores", "cores", "d"), Column("step", "SGHMC")]  # fmt: skip
COLOURS = {"SGHMC": INK, "pSGLD": GREEN, "Adam": "#9467bd", "roam": BLUE, "L2E": ORANGE,
           "L2E, one pass": "#bcbd22"}  # fmt: skip


RESULTS = {"entries": {"*": dict}, "versions": {"*": str}, "machine": {"cores": int, "processor": str}}
"""The fields of results that all pages show."""


def write_page(file: Path, out: Path) -> list[Path]:
    """Write the page, the JSON and a folder with the figures next to it; return the figures' paths."""
    results = shaped(files.read_json(file), RESULTS, file, "`python -m benchmarks` writes such files.")
    drawn = {"": draw} if _grown(results) else {}
    if _zoo(results):
        drawn["-networks"] = draw_zoo
    # Files of another version may lack numbers: nothing is written before all are there.
    with archives.reading(file, "measure anew, by `python -m benchmarks`"):
        text = page_text(results, out)
        pictures = {_figure(out, part): image(make(results), "png", dpi=110) for part, make in drawn.items()}
    files.write_json(out.with_suffix(".json"), results)
    for path, picture in pictures.items():
        files.make_folder((out.parent / path).parent)
        files.write_bytes(out.parent / path, picture)
    files.write_bytes(out, text.encode())
    return [out.parent / path for path in pictures]


def page_text(results: Results, out: Path) -> str:
    """Return the page in Markdown."""
    elsewhere: dict[str, list[str]] = {}
    for name, record in results["entries"].items():
        if "elsewhere" in record:
            elsewhere.setdefault(_facts(record["elsewhere"]), []).append(f"`{name}`")
    others = "".join(f" Not so {', '.join(names)}: on {facts}." for facts, names in elsewhere.items())
    rows = contest_rows(results)
    text = HEAD.format(summary=_summary([*rows, *_zoo_verdicts(results)]), facts=_facts(results), elsewhere=others,
                       data=out.with_suffix(".json").name, table=markdown(from_records(LONG, rows)))  # fmt: skip
    skipped = [f"- {name}: {record['skipped']}" for name, record in results["entries"].items() if "skipped" in record]
    if _zoo(results):
        text += "\n" + _zoo_text(results, out)
    parts = [text, *(["Left out:\n", *skipped, ""] if skipped else [])]
    if _grown(results):
        limits = results["entries"]["limits"]
        parts.append(GROWTH.format(figure=_figure(out), gflops=limits["flops"] / 1e9,
                                   gigabytes=limits["bytes"] / 1e9, flops=network_flops()))  # fmt: skip
        parts += [
            f"**{title}**\n\n{markdown(from_records(columns, rows))}\n"
            for title, columns, rows in growth_tables(results)
        ]
    return "\n".join(parts)


def _facts(about: Mapping[str, Any]) -> str:
    """Return the machine and the versions that numbers hold for."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"{about['machine']['cores']} cores of {about['machine']['processor']}, with {versions}"


def contest_rows(results: Results) -> list[dict[str, Any]]:
    """Return one row per contest that was held."""
    return [_row(name, record) for name, record in results["entries"].items() if "mark" in record]


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many contests are within their marks, and those that are not."""
    missed = [f"{row['what']} ({row['number']}, mark {row['mark']})" for row in rows if row["verdict"] != "yes"]
    held = f"{len(rows) - len(missed)} of {len(rows)} contests are within their marks."
    return textwrap.fill(held + (f" Not: {'; '.join(missed)}." if missed else ""), 120)


def _zoo_verdicts(results: Results) -> list[dict[str, Any]]:
    return [
        {"what": one["what"], "number": f"{one['number']:.2f}", "mark": f"≤ {one['at_most']:g}",
         "verdict": "yes" if one["holds"] else "no"}
        for one in zoo.verdicts(_zoo(results))
    ]  # fmt: skip


def _zoo_text(results: Results, out: Path) -> str:
    rows = _zoo(results)
    missed = [(one["row"], one["what"].startswith("first")) for one in zoo.verdicts(rows) if not one["holds"]]

    def bold(text: str, row: Mapping[str, Any], is_first: bool) -> str:
        return f"**{text}**" if (row, is_first) in missed else text

    steps, firsts = [], []
    for base in (row for row in rows if row["sampler"] == zoo.REFERENCE):
        others = [row for row in rows if zoo.reference(rows, row) is base and row is not base]
        cells = {
            row["sampler"]: bold(f"{row['ratio']['median']:.2f}", row, False)
            + f" ({row['cpu_seconds'] / base['cpu_seconds']:.2f})"
            for row in others
        }
        steps.append({**base, **cells, "step": f"{seconds(base['seconds'])} ({seconds(base['cpu_seconds'])})"})
        for row in (row for row in (base, *others) if "cold_seconds" in row):
            texts = {
                kind: f"{row[f'{kind}_seconds']:.1f} s ({row[f'{kind}_cpu_seconds']:.1f} s)"
                for kind in ("cold", "warm")
            }
            ratio = bold(f"{row['cold_cpu_seconds'] / base['cold_cpu_seconds']:.2f}", row, True)
            firsts.append({**row, **texts, "ratio": ratio})
    measured = dict.fromkeys(row["sampler"] for row in rows)
    samplers = [Column(name, name) for name in measured if name != zoo.REFERENCE]
    first_columns = [Column("network", "network"), Column("sampler", "sampler"), Column("cold", "without programs"),
                     Column("ratio", "vs. SGHMC"), Column("warm", "with programs")]  # fmt: skip
    marks = [f"{name} on {network} ≤ {bound:g}" for network, one in zoo.NETWORKS.items()
             for name, bound in one.marks.items() if name != "roam"]  # fmt: skip
    about = textwrap.fill(ABOUT_STEPS.format(marks="; ".join([f"roam ≤ {zoo.ROAM_AT_MOST:g}", *marks])), 120)
    first = "; ".join(f"{name} ≤ {bound:g}" for name, bound in zoo.FIRST_AT_MOST.items())
    return ZOO.format(figure=_figure(out, "-networks"), about=about, first=first,
                      steps=markdown(from_records([*STEP_COLUMNS, *samplers], steps)),
                      firsts=markdown(from_records(first_columns, firsts)))  # fmt: skip


def draw_zoo(results: Results) -> Any:
    """Draw the time of steps relative to SGHMC, for each number of cores, and of first steps, by network."""
    rows = _zoo(results)
    names = list(dict.fromkeys(row["network"] for row in rows))
    cores = sorted({row["cores"] for row in rows})
    figure, axes = new_figure(len(cores) + 1, 1, width=3.6, height=3.6)
    for axis, count in zip(axes.flat, cores, strict=False):
        for sampler in zoo.SAMPLERS:
            own = [row for row in rows if (row["sampler"], row["cores"]) == (sampler, count)]
            axis.plot([row["ratio"]["median"] for row in own], [names.index(row["network"]) for row in own], "o",
                      markersize=5, color=COLOURS[sampler], label=sampler)  # fmt: skip
        axis.axvline(zoo.ROAM_AT_MOST, linestyle="--", linewidth=1, color=INK)
        axis.set_xlabel(f"step vs. SGHMC, {count} core{'s' if count > 1 else ''}")
    last = axes.flat[-1]
    for sampler in zoo.SAMPLERS:
        own = [row for row in rows if row["sampler"] == sampler and "cold_seconds" in row]
        places = [names.index(row["network"]) for row in own]
        for kind, fill in (("cold", "full"), ("warm", "none")):
            last.plot([row[f"{kind}_cpu_seconds"] for row in own], places, "o", markersize=5, fillstyle=fill,
                      color=COLOURS[sampler])  # fmt: skip
    last.set_xlabel("CPU seconds to the first step\n(hollow: with compiled programs)")
    for axis in axes.flat:
        axis.set_xscale("log")
        log_ticks(axis.xaxis)
        axis.set_yticks(range(len(names)), names if axis is axes.flat[0] else [""] * len(names))
        axis.invert_yaxis()
    legend(axes.flat[0])
    return figure


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
    for name, colour in (("SGHMC", BLUE), ("L2E", ORANGE)):
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
    axis.plot([row[x] for row in rows], [row[y] for row in rows], marker="o", markersize=3, color=BLUE)


def _rows(results: Results, name: str) -> list[dict[str, Any]]:
    return results["entries"][name]["rows"]


def _zoo(results: Results) -> list[dict[str, Any]]:
    return results["entries"].get("zoo", {}).get("rows", [])


def _figure(out: Path, part: str = "") -> str:
    return f"images/{out.stem}{part}.png"


def _grown(results: Results) -> bool:
    """Return whether all growth was measured."""
    entries = results["entries"]
    return "flops" in entries.get("limits", {}) and all(
        "rows" in entries.get(name, {}) for name in ("by-parameters", "by-chains", "by-draws", "by-inner-steps")
    )
