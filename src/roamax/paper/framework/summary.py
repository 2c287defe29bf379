"""The summary of the page of results: the claims of the paper, with its numbers, ours, and a verdict."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roamax.paper.framework.comparison import Comparison, Holds, Lead, Value
from roamax.report.table import UNKNOWN, Cell, Table, markdown

WORDS: Mapping[Holds, str] = {True: "holds", False: "does not hold", "level": "cannot be told from the noise"}
HEADS = ("Experiment", "Claim of the paper", "Data", "Paper", "Here", "Verdict")
RULE = """A claim holds if the difference here has the paper's sign and exceeds one standard deviation of a difference
between seeds; one seed cannot tell. It is not testable where its section says so, and why. Numbers are those of the
method named and of the best other one, by the measure named with them."""


def summary(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the summary in Markdown, from the results.json of each section by title; empty if none tests a claim."""
    rows, verdicts = [], Counter()
    for title, results in sections.items():
        leads = [lead for stored in results["tables"].values() for lead in Comparison.from_json(stored).leads()]
        claims: dict[str, Holds] = results.get("claims", {})
        verdicts.update(said(holds) for holds in (*(lead.holds for lead in leads), *claims.values()))
        rows += [(f"[{title}](#{title})", *row) for row in (*_of_leads(leads), *_of_claims(claims))]
    if not rows:
        return ""
    counted = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())
    table = Table("", list(HEADS), "l" * len(HEADS), [[Cell(text) for text in row] for row in rows])
    return f"Verdicts on {verdicts.total()} claims of the paper: {counted}.\n\n{RULE}\n\n{markdown(table)}\n"


def _of_leads(leads: Sequence[Lead]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each data set and each method that is in front there by the paper, with all measures by which."""
    groups: dict[tuple[str, str], list[Lead]] = {}
    for lead in leads:
        groups.setdefault((lead.data, lead.name), []).append(lead)
    for (data, name), group in groups.items():
        verdicts: dict[str, list[str]] = {}
        for lead in group:
            verdicts.setdefault(said(lead.holds), []).append(lead.measure)
        shown = next((lead for lead in group if lead.measure == "NLL"), group[-1])
        each = [word if len(verdicts) == 1 else f"{', '.join(names)}: {word}" for word, names in verdicts.items()]
        yield (
            f"{name} is best in {', '.join(lead.measure for lead in group)}",
            data,
            f"{shown.measure} {_pair(shown.paper)}",
            _pair(shown.ours),
            "; ".join(each),
        )


def _of_claims(claims: Mapping[str, Holds]) -> Iterator[tuple[str, ...]]:
    """Yield a row for the claims of the paper's text or figures that have the same verdict."""
    verdicts: dict[str, list[str]] = {}
    for claim, holds in claims.items():
        verdicts.setdefault(said(holds), []).append(claim)
    for verdict, same in verdicts.items():
        yield "; ".join(same), UNKNOWN, UNKNOWN, UNKNOWN, verdict


def said(holds: Holds) -> str:
    """Return the verdict in words."""
    return WORDS.get(holds, str(holds))


def _pair(values: Sequence[Value]) -> str:
    return " vs. ".join(f"{value.mean:{',.0f' if value.mean >= 1000 else '.3g'}}" for value in values)
