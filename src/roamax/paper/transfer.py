"""L2E and roam as they ship vs. methods that are tuned to each task, at equal numbers of gradients, with CPU time."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roamax import pretrained
from roamax.errors import InputError
from roamax.host.machine import processor
from roamax.paper.framework.chain import Chain, Setup
from roamax.paper.framework.comparison import BETTER, Comparison, Holds, Rows, Value, exceeds, finite
from roamax.paper.framework.geometry import geometry
from roamax.paper.framework.lab import Lab, Record, averaged
from roamax.paper.framework.methods import L2E_TUNED, ROAM_TUNED
from roamax.paper.framework.problems import Problem
from roamax.paper.framework.results import Findings
from roamax.paper.framework.search import AXES, is_tuned, search
from roamax.report.figures import legend, log_ticks, new_figure

PROBLEMS = (
    "cifar10", "cifar10_cnn", "fashion_mnist", "fashion_few", "mnist_mlp", "cifar10_wide", "imdb", "regression",
)  # fmt: skip
SHIPPED = ("L2E", "roam")
OURS = (*SHIPPED, L2E_TUNED, ROAM_TUNED)
METHODS = (*OURS, *(name for name in AXES if name not in OURS))
COLUMNS = ("NLL", "ACC", "KLD", "CPU s")
PROCESSOR = "processor"
"""The entry of a record that names the machine of its CPU seconds."""
DIVERSE = (*OURS, "cSGMCMC")
DIVERSITY = ("error barrier", "NLL barrier")
SLOW = ("imdb",)
"""Data sets for which barriers are not computed: hundreds of evaluations of the network take minutes per chain."""
REMARKS = (
    "L2E and roam have no settings but those that ship; the others have those that were best on validation data of the "
    "task, at this length, with the first seed. All take the same number of minibatch gradients. CPU s is the process "
    "time of a chain on one core, without compilation and prediction.",
    "Adam and Muon are one network each, with cosine decay. Adam DE and DE are deep ensembles by Adam and by SGD with"
    " momentum, whose members (2, 4, 10; for DE also 1) share the gradients. snapshots are positions along one run of"
    " Adam: the ends of 2, 5 or 10 cosine cycles, or ten positions in the last 30 % of one. SWAG takes 20 positions "
    "from the last 30 % of a run of Adam, where the rate stays at a fifth of the first, and averages either over ten "
    "draws from the Gaussian with their mean and a diagonal and a low-rank covariance, or takes the mean of the "
    "weights alone. SGHMC and cSGMCMC are tuned with T in 0, .01, .1 and 1. The prior, as weight "
    "decay, is tuned for all of them; roam, tuned, also has its prior tuned, its number of starts (1, 2, 4, 10), and "
    "whether it averages positions; L2E, tuned, its step, friction and prior.",
    "The NLL of regression is that of the mixture over draws.",
)


def run(lab: Lab) -> Findings:
    """Compare the NLL of the averaged prediction at equal cost, and the diversity of draws."""
    problems = lab.problems(*PROBLEMS)
    names = lab.methods_of(METHODS)
    trials: dict[str, Any] = {}
    setups = {key: setup for problem in problems for key, setup in _setups(lab, problem, names, trials)}
    found = dict(zip(setups, lab.look(_scores, list(setups.values())), strict=True))
    scored = {key: records for key, records in found.items() if records}
    rows = averaged({key: [_numbers(record) for record in records] for key, records in scored.items()})
    first = dataclasses.replace(lab, seeds=lab.seeds[:1])
    compared = {key: setup for key, setup in setups.items() if key[1] in DIVERSE and key in scored}
    measured = dict(zip(compared, first.look(_barriers, list(compared.values())), strict=True))
    barriers = averaged({key: records for key, records in measured.items() if records and records[0]})
    heads, better = ("Task", "Method"), {**BETTER, "CPU s": "min"}
    tables = {
        "nll": Comparison("The averaged prediction", heads, COLUMNS, rows, compared="rows", better=better, style="g"),
        "diversity": Comparison("Barriers between draws, one seed", heads, DIVERSITY, barriers, {}, "rows", BETTER),
    }
    remarks = [*REMARKS, *machines(scored), *seen(lab, problems), *standing(rows)]
    figures = {"nll": _figure(rows)} if rows else {}
    lengths = {name: group for name, group in by_task(problems).items() if len(group) > 1}
    if rows and lengths:
        figures["gradients"] = curves(lengths, rows)
    return Findings(tables, figures, {"trials": trials}, remarks=remarks)


def _setups(
    lab: Lab, problem: Problem, names: Sequence[str], trials: dict[str, Any]
) -> Iterator[tuple[tuple[str, str], Setup]]:
    """Yield the samplers as they ship and the tuned methods, by the problem's label and the method.

    What is missing in the results of earlier searches is searched for now, which adds to `trials`.
    """
    unknown = [name for name in names if name in AXES and not is_tuned(problem, name)]
    found = search(lab, problem, unknown) if unknown else {}
    trials |= {f"{problem.label}, {name}": [trial._asdict() for trial in tried] for name, tried in found.items()}
    for name in names:
        yield (problem.label, name), lab.setup(problem, name, **(found[name][0].hyper if name in found else {}))


def _scores(chain: Chain) -> Record:
    columns = [column for column in COLUMNS if column.lower() in chain.scores]
    numbers = {column: chain.scores[column.lower()] for column in columns} | {"CPU s": chain.cpu_seconds}
    return numbers | {PROCESSOR: processor()}


def _numbers(record: Record) -> Record:
    return {column: record[column] for column in COLUMNS if column in record}


def machines(found: Mapping[tuple[str, str], Sequence[Record]]) -> Iterator[str]:
    """Yield a sentence if CPU seconds were measured on several kinds of machines, as records of several days may be."""
    names: dict[str, dict[str, None]] = {}
    for (label, name), records in found.items():
        for record in records:
            names.setdefault(record.get(PROCESSOR, "an earlier one, not named"), {})[f"{label}, {name}"] = None
    if len(names) > 1:
        kinds = "; ".join(f"{kind}: {' | '.join(rows)}" for kind, rows in names.items())
        yield f"CPU s are of {len(names)} kinds of machines: compare them only within one of these. {kinds}."


def _barriers(chain: Chain) -> Record:
    if chain.task.is_regression or chain.problem.task.data in SLOW or len(chain.draws) < 2:
        return {}
    numbers = geometry(chain)
    return {key: numbers[key] for key in DIVERSITY}


def seen(lab: Lab, problems: Sequence[Problem]) -> Iterator[str]:
    """Yield sentences on the data sets of these problems that meta-training saw, by the word of the cards."""
    for name in SHIPPED:
        groups: dict[str, list[Problem]] = {}
        for problem in problems:
            groups.setdefault(lab.weights_of(problem, name), []).append(problem)
        for weights, group in groups.items():
            yield from _seen(name, weights, group)
    yield "The constants of roam were chosen by hand on validation data of MNIST and Fashion-MNIST."


def _seen(name: str, weights: str, problems: Sequence[Problem]) -> Iterator[str]:
    try:
        card = pretrained.resolve(weights, name.lower()).card
    except InputError:
        return
    kinds = {data.partition("-")[0]: data for data in card.get("data", ())}
    # Data with a gap are drawn from the same function.
    labels = {problem.label: kinds.get(problem.task.data.removesuffix("_gap")) for problem in problems}
    inside = [f"{label} (as {kind})" for label, kind in labels.items() if kind]
    outside = [label for label, kind in labels.items() if not kind]
    if inside:
        networks = card.get("architectures", ())
        which = networks[0] if len(networks) == 1 else f"{len(networks)} networks"
        yield f"Data that {name} saw in its meta-training, with {which}: {'; '.join(inside)}."
    if outside:
        yield f"Data that {name} had not seen: {'; '.join(outside)}."


def standing(rows: Rows) -> Iterator[str]:
    """Yield sentences on the tasks where our samplers are better than the best tuned method, level, or worse."""
    for name in OURS:
        better: dict[str, Holds] = {}
        for label in dict.fromkeys(label for label, _ in rows):
            nll = finite({other: row["NLL"] for (task, other), row in rows.items() if task == label})
            tuned = {other: value for other, value in nll.items() if other not in OURS}
            if tuned and (label, name) in rows:
                best = min(tuned, key=lambda other: tuned[other].mean)
                better[f"{label} ({best})"] = name in nll and exceeds(tuned[best], nll[name])
        yield from _grouped(f"NLL of {name}, {{}} the best tuned method", ("below", "level with", "above"), better)


def _grouped(sentence: str, words: tuple[str, str, str], tasks: Mapping[str, Holds]) -> Iterator[str]:
    """Yield a sentence each for the tasks where something holds, where it cannot be told, and where it does not."""
    for holds, word in zip((True, "level", False), words, strict=True):
        found = [task for task, here in tasks.items() if here == holds]
        if found:
            yield f"{sentence.format(word)}: {'; '.join(found)}."


def by_task(problems: Sequence[Problem]) -> dict[str, list[Problem]]:
    """Return the lengths of each problem, the shortest first, by the problem's label without its length."""
    found: dict[str, list[Problem]] = {}
    for problem in sorted(problems, key=lambda problem: problem.steps):
        found.setdefault(problem.label.removesuffix(f", {problem.steps:,} steps"), []).append(problem)
    return found


def curves(lengths: Mapping[str, Sequence[Problem]], rows: Rows) -> Any:
    """Draw NLL against gradients, and below against CPU time, one column per task; in black, our samplers."""
    figure, axes = new_figure(len(lengths), 2, width=4.6, height=3.0)
    for (above, below), (task, group) in zip(axes.T, lengths.items(), strict=True):
        for place, name in enumerate(METHODS):
            found = [(problem.steps, rows[key]) for problem in group if (key := (problem.label, name)) in rows]
            if not found:
                continue
            color, width = ("black", 2) if name in OURS else (f"C{place % 10}", 1)
            line = {"L2E": "--", L2E_TUNED: "-.", ROAM_TUNED: ":"}.get(name, "-")
            style = {"color": color, "linewidth": width, "linestyle": line, "marker": "os^vDP"[place % 6]}
            nll = [row["NLL"].mean for _, row in found]
            above.errorbar(
                [steps for steps, _ in found], nll, [row["NLL"].sd or 0.0 for _, row in found], label=name, **style
            )
            below.plot([row["CPU s"].mean for _, row in found], nll, **style)
        above.set_title(task, fontsize=9)
        for axis, label in ((above, "minibatch gradients"), (below, "CPU seconds")):
            axis.set(xscale="log", xlabel=label, ylabel="test NLL")
            log_ticks(axis.xaxis)
    legend(axes[0, 0])
    return figure


def _figure(rows: Rows) -> Any:
    """Draw one panel per task, with the NLL of each method; in black, those that ship."""
    labels = list(dict.fromkeys(label for label, _ in rows))
    figure, axes = new_figure(min(3, len(labels)), math.ceil(len(labels) / 3), width=3.0, height=2.2)
    for axis in axes.flat[len(labels) :]:
        axis.set_visible(False)
    for axis, label in zip(axes.flat, labels, strict=False):
        for place, name in enumerate(METHODS):
            value: Value = rows.get((label, name), {}).get("NLL", Value(math.nan))
            color = "black" if name in SHIPPED else "C0"
            axis.errorbar(value.mean, -place, xerr=value.sd or 0.0, fmt="o", markersize=4, capsize=2, color=color)
        axis.set_ylim(0.5 - len(METHODS), 0.5)
        axis.set_yticks([-place for place in range(len(METHODS))], METHODS, fontsize=7)
        axis.set_title(label, fontsize=9)
        axis.set_xlabel("test NLL")
    return figure
