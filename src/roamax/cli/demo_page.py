"""The page of `roamax demo`: scores over seeds, what they say in words, and pictures of doubt."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from roamax.cli import demo_methods
from roamax.cli.demo_methods import CONTROL, TRAINED, Problem
from roamax.evaluation import metrics
from roamax.evaluation.compare import Outcome
from roamax.evaluation.evaluate import out_of_distribution
from roamax.evaluation.score import by_draws
from roamax.evaluation.showcase import describe_input
from roamax.report import figures, predictions
from roamax.report.conclusions import SPACE, Conclusion
from roamax.report.page import Figure, Page
from roamax.report.table import Column, Table, from_records

SURE = 0.9
"""The confidence above which a mistake is a confident one."""
SURE_TEXT = f"{100 * SURE:.0f}{SPACE}%"
EXAMPLES = 5
COLUMNS = [
    Column("method", "method"),
    Column("valid_nll", "validation NLL", ".3f", "min"),
    Column("acc", "accuracy", ".3f", "max"),
    Column("nll", "NLL", ".3f", "min"),
    Column("ece", "ECE", ".3f", "min"),
    Column("mistakes", "confident mistakes / %", ".1f", "min"),
    Column("unseen", "sure of unseen / %", ".1f", "min"),
    Column("auroc", "AUROC of unseen", ".3f", "max"),
    Column("seconds", "time / s", ".1f"),
]
BRIEF = {"valid_nll": "valid. NLL", "acc": "accuracy", "mistakes": "mistakes / %", "unseen": "unseen / %"}
"""The scores that fit a terminal, and their headings there."""
SCORES = [column.key for column in COLUMNS if column.better]


class Entry(NamedTuple):
    """A method with its outcomes and its scores, one per seed."""

    name: str
    outcomes: Sequence[Outcome]
    scores: Sequence[Mapping[str, float]]

    def mean(self, key: str) -> float:
        """Return the mean of a score over seeds."""
        return float(np.mean([one[key] for one in self.scores]))

    def error(self, key: str) -> float:
        """Return the standard error of that mean; 0 for a single seed."""
        values = [one[key] for one in self.scores]
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0

    def record(self) -> dict[str, Any]:
        """Return the scores and the cost, ready for JSON."""
        first = self.outcomes[0]
        return {
            "method": self.name,
            **{key: self.mean(key) for key in SCORES},
            "errors": {key: self.error(key) for key in SCORES},
            "seeds": list(self.scores),
            "draws": len(first.log_probs["test"]),
            "gradient_evaluations": first.gradient_evaluations,
            "seconds": round(float(np.mean([one.seconds for one in self.outcomes])), 2),
        }


def entry(outcomes: Sequence[Outcome], problems: Sequence[Problem]) -> Entry:
    """Score the outcomes of a method, one per problem."""
    return Entry(outcomes[0].name, outcomes, [_scores(*pair) for pair in zip(outcomes, problems, strict=True)])


def _scores(outcome: Outcome, problem: Problem) -> dict[str, float]:
    average = {name: metrics.average(log_probs) for name, log_probs in outcome.log_probs.items()}
    nll = {name: metrics.nll(average[name], problem.labels[name]) for name in average if name != "unseen"}
    test, moved = average["test"], np.asarray(average["test, off-centre"])
    confident = np.exp(moved.max(axis=1)) > SURE
    return {
        "valid_nll": (nll["valid"] + nll["valid, off-centre"]) / 2,
        "acc": metrics.accuracy(test, problem.labels["test"]),
        "nll": nll["test"],
        "ece": metrics.ece(test, problem.labels["test"]),
        "mistakes": 100 * float(np.mean(confident & (moved.argmax(axis=1) != problem.labels["test"]))),
        "unseen": 100 * float(np.mean(np.exp(np.asarray(average["unseen"]).max(axis=1)) > SURE)),
        "auroc": metrics.ood_auroc(test, average["unseen"]),
    }


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Return the recommended sampler, the best of the samplers on validation data, and then all others by that."""
    by_validation = sorted(entries, key=lambda one: one.mean("valid_nll"))
    best = next(one for one in by_validation if one.name not in TRAINED)
    return [best, *(one for one in by_validation if one is not best)]


def table(entries: Sequence[Entry]) -> Table:
    """Return the table of ranked methods: means and standard errors over seeds."""
    records = [{**one.record(), **{key: (one.mean(key), one.error(key)) for key in SCORES}} for one in entries]
    return from_records(COLUMNS, records, "Scores")


def brief_table(entries: Sequence[Entry]) -> Table:
    """Return a table of ranked methods for a terminal: means of a few scores."""
    columns = [
        column._replace(heading=BRIEF.get(column.key, column.heading))
        for column in COLUMNS
        if column.key in ("method", *BRIEF, "seconds")
    ]
    return from_records(columns, [one.record() for one in entries])


def conclusions(entries: Sequence[Entry]) -> list[Conclusion]:
    """Say in words what the scores of ranked methods are."""
    best, control = entries[0], next(one for one in entries if one.name == CONTROL)
    winner = min(entries, key=lambda one: one.mean("valid_nll"))

    def shown(one: Entry, key: str, form: str, unit: str = "") -> str:
        return f"{one.mean(key):{form}} ± {one.error(key):{form}}{unit}"

    chosen = (
        f"Of the samplers, {best.name} has the lowest NLL on validation digits: {shown(best, 'valid_nll', '.3f')}; "
    )
    if winner is best:
        others = [f"{one.name} has {shown(one, 'valid_nll', '.3f')}" for one in entries if one.name in TRAINED]
        found = [Conclusion(f"Use {best.name}.", f"{chosen}{'; '.join(others)}.")]
    else:
        because = f"{chosen}{winner.name} has {shown(winner, 'valid_nll', '.3f')}."
        found = [Conclusion(f"No sampler beats {winner.name} here.", because)]
    for key, claims, subject in (
        ("mistakes", ("Fewer confident mistakes.", "No fewer confident mistakes."),
         f"Of digits that are off-centre, one network misreads {{}} with more than {SURE_TEXT} confidence"),
        ("unseen", ("More doubt where it is due.", "No more doubt where it is due."),
         f"Of digits never seen, one network takes {{}} for another with more than {SURE_TEXT} confidence"),
    ):  # fmt: skip
        sentence = subject.format(shown(control, key, ".1f", f"{SPACE}%"))
        because = f"{sentence}, {best.name} {shown(best, key, '.1f', f'{SPACE}%')}."
        found.append(Conclusion(claims[best.mean(key) >= control.mean(key)], because))
    lost = []
    for column in COLUMNS:
        if column.better is None:
            continue
        pick = max if column.better == "max" else min
        top = pick(entries, key=lambda one, key=column.key: one.mean(key))
        if top is not best and f"{top.mean(column.key):{column.format}}" != f"{best.mean(column.key):{column.format}}":
            numbers = f"{top.mean(column.key):{column.format}} vs. {best.mean(column.key):{column.format}}"
            lost.append(f"{column.heading}: {top.name} ({numbers})")
    if lost:
        found.append(Conclusion("It is not the best at everything.", f"{'; '.join(lost)}."))
    return found


def page(entries: Sequence[Entry], problems: Sequence[Problem], made_by: Mapping[str, Any]) -> Page:
    """Return the page of ranked methods.

    Args:
        entries: The methods, the recommended sampler first.
        problems: The problems, one per seed.
        made_by: The result of `runs.provenance`.
    """
    best, control = entries[0], next(one for one in entries if one.name == CONTROL)
    few = {one.name: one for one in entries if one is best or one.name in TRAINED}
    lead = (
        f"A network with two hidden layers learns {demo_methods.TRAIN} handwritten digits from 0 to "
        f"{demo_methods.CLASSES - 1}. In use it meets others: some are off-centre by one pixel, some are 8 and 9, "
        f"which it has never seen. Each method has {demo_methods.STEPS:,} minibatch gradients, or as many examples in "
        f"full-batch gradients. Means and standard errors over {len(problems)} seeds, each with its own training "
        "examples. The validation NLL, half on off-centre digits, ranks the methods; the other columns are measured on "
        "test digits. Time is per seed, without compilation."
    )
    return Page("roamax demo", lead, {"": conclusions(entries)}, _pictures(best, control, problems[0]), table(entries),
                _figures(few, entries, problems), made_by)  # fmt: skip


def _pictures(best: Entry, control: Entry, problem: Problem) -> list[Figure]:
    both = {control.name: control.outcomes[0], f"{best.name}, average": best.outcomes[0]}

    def rows(name: str, chosen: Sequence[int]) -> Any:
        images, labels = problem.inputs[name], problem.labels[name]
        return predictions.side_by_side([
            {label: describe_input(images, one.log_probs[name], labels, row) for label, one in both.items()}
            for row in chosen
        ])  # fmt: skip

    def sure(name: str) -> list[int]:
        """Return the first inputs that one network takes for something else, and is sure of it."""
        alone = np.asarray(metrics.average(control.outcomes[0].log_probs[name]))
        wrong = (alone.argmax(axis=1) != problem.labels[name]) & (np.exp(alone.max(axis=1)) > SURE)
        return np.flatnonzero(wrong)[:EXAMPLES].tolist()

    shown = []
    for figure, name, heading, subject in (
        ("mistakes", "test, off-centre", "Confident mistakes of one network", "off-centre digits"),
        ("unseen", "unseen", "Digits that the network has never seen", "8s and 9s"),
    ):
        chosen = sure(name)
        if chosen:
            caption = (
                f"The first {len(chosen)} of the {subject} that one network takes for another digit with more than "
                f"{SURE_TEXT} confidence, and what the average over draws says. The right class is green; whiskers are "
                "the standard deviation over draws. How often each method is so sure is in the table."
            )
            shown.append(Figure(figure, rows(name, chosen), heading, caption))
    return shown


def _figures(few: Mapping[str, Entry], entries: Sequence[Entry], problems: Sequence[Problem]) -> list[Figure]:
    pooled, rejected, outside = {}, {}, {}
    for name, one in few.items():
        found = [_in_use(*pair) for pair in zip(one.outcomes, problems, strict=True)]
        curves = [metrics.rejection_curve(*pair) for pair in found]
        accuracy = np.array([curve["acc"] for curve in curves])
        error = accuracy.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros(accuracy.shape[1])
        rejected[name] = {"rejected": curves[0]["rejected"], "acc": accuracy.mean(axis=0), "error": error}
        log_probs, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
        pooled[name] = metrics.reliability(log_probs, labels)
        test, unseen = (metrics.average(one.outcomes[0].log_probs[part]) for part in ("test", "unseen"))
        outside[name] = {"unseen digits": out_of_distribution(test, np.exp(np.asarray(unseen)))}
    labels = problems[0].labels["test"]
    averaged = {one.name: by_draws(one.outcomes[0].log_probs["test"], labels) for one in entries if one.name != CONTROL}
    return [
        Figure("rejection", figures.rejection_curves(rejected), "Rejecting what a method doubts",
               "Accuracy on what is left of the test digits, as they are and off-centre, when the least confident are "
               "rejected. Bands are standard errors over seeds."),
        Figure("ood", figures.confidence_histograms(outside), "Confidence in digits never seen",
               "Confidence on test digits, as they are, and on unseen ones; first seed."),
        Figure("reliability", figures.reliability_diagrams(pooled), "Reliability",
               "Accuracy by confidence on test digits, as they are and off-centre, of all seeds, with 95 % intervals; "
               "calibrated predictions lie on the diagonal. Grey bars are the number of digits per bin."),
        Figure("draws", figures.scores_against_draws(averaged), "Performance vs. the number of draws",
               "Scores on test digits, as they are, of the average over the first draws; first seed."),
    ]  # fmt: skip


def _in_use(outcome: Outcome, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the averaged log-probabilities on test digits, as they are and off-centre, and their labels."""
    parts = [np.asarray(metrics.average(outcome.log_probs[name])) for name in ("test", "test, off-centre")]
    return np.concatenate(parts), np.concatenate([problem.labels["test"]] * 2)
