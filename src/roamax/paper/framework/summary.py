"""The top of the page of results: the paper's claims, with its numbers, ours and a verdict; what was not run."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roamax.paper.framework.claims import Claim
from roamax.paper.framework.comparison import Comparison, Holds, Lead, Value
from roamax.report.table import UNKNOWN, Cell, Column, Table, cells, from_records, markdown

WORDS: Mapping[Holds, str] = {True: "holds", False: "does not hold", "level": "cannot be told from the noise"}
SHORT = {WORDS["level"]: "level"}
"""Verdicts where there is little room."""
GLANCE = ("Claim", "Tested in", "For example", "Paper", "Here", "Verdict")
HEADS = ("Claim", "Experiment", "Scale", "Data", "Paper", "Here", "Verdict")
RANKS = {"paper": 2, "long": 1}
"""The order of scales by the length of runs; others are shorter."""
RULE = """A claim holds if the difference here has the paper's sign and exceeds one standard deviation of a difference
between seeds; one seed cannot tell. It is not testable where its section says so, and why. Numbers are in the order of
the claim; that of the best method is next to that of the best other one. Of several measures, they are by the first."""


NUMBERS = """Numbers are those of the example, from the longest of the runs; a verdict with a count is of so many data
sets and runs. Level means that the difference cannot be told from the noise."""


class Line(NamedTuple):
    """What a row of the summary says about one data set."""

    data: str
    paper: Sequence[Value]
    here: Sequence[Value]
    verdict: str


class Test(NamedTuple):
    """A claim, as one experiment tests it."""

    claim: str
    link: str
    scale: str
    lines: Sequence[Line]


def summary(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the summary in Markdown, from the results.json of each section by title; empty if none tests a claim."""
    tests, verdicts = [], Counter()
    for title, results in sections.items():
        leads = [lead for stored in results["tables"].values() for lead in Comparison.from_json(stored).leads()]
        claims = [Claim.from_json(stored) for stored in results.get("claims", [])]
        verdicts.update(said(one.holds) for one in (*leads, *claims))
        for claim, lines in (_of_leads(leads) | _of_claims(claims)).items():
            tests.append(Test(claim, f"[{title}](#{title})", results["scale"], lines))
    if not tests:
        return ""
    short = _table(GLANCE, _at_a_glance(tests))
    whole = _table(HEADS, [(test.claim, test.link, test.scale, *_stacked(test.lines)) for test in tests])
    return (
        f"Verdicts on {verdicts.total()} claims of the paper: {_counted(verdicts)}.\n\n{short}\n\n{NUMBERS}\n\n"
        f"## Every claim by data set\n\n{RULE}\n\n{whole}\n"
    )


def not_run(planned: Sequence[Mapping[str, Any]]) -> str:
    """Return a section on chains that were not run, from what `roamax experiment all --plan --json` prints."""
    if not planned:
        return ""
    columns = [Column("experiment", "Experiment"), Column("chain", "Chain"), Column("chains", "Chains", "d"),
               Column("hours", "Hours", ",.0f")]  # fmt: skip
    total = sum(record["hours"] for record in planned)
    text = f"""Two cores cannot pay for these chains of the paper, which take {total:,.0f} hours on one core, as
`roamax experiment all --plan` estimates them. A chain that several experiments share counts in the first."""
    return f"## What was not run\n\n{text}\n\n{markdown(from_records(columns, planned))}\n"


def _at_a_glance(tests: Sequence[Test]) -> list[tuple[str, ...]]:
    """Return a row for each claim, with all its verdicts and the numbers of one data set, of the longest run."""
    claims: dict[str, list[Test]] = {}
    for test in tests:
        claims.setdefault(test.claim, []).append(test)
    rows = []
    for claim, tested in claims.items():
        longest = max(tested, key=lambda test: RANKS.get(test.scale, 0))
        line, *_ = longest.lines
        verdicts = Counter(SHORT.get(line.verdict, line.verdict) for test in tested for line in test.lines)
        links = ", ".join(test.link for test in tested)
        rows.append((claim, links, line.data or UNKNOWN, _pair(line.paper), _pair(line.here), _counted(verdicts)))
    return rows


def _counted(verdicts: Counter[str]) -> str:
    """Return each verdict with its count, the most frequent first; one that is alone and counts once is without."""
    if verdicts.total() == 1:
        return next(iter(verdicts))
    return ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(Table("", list(heads), "l" * len(heads), [[Cell(text) for text in row] for row in rows]))


def _of_leads(leads: Sequence[Lead]) -> dict[str, list[Line]]:
    """Return a claim for each method that the paper has in front."""
    methods: dict[str, dict[tuple[str, str], list[Lead]]] = {}
    for lead in leads:
        methods.setdefault(lead.name, {}).setdefault((lead.data, said(lead.holds)), []).append(lead)
    return dict(_best(name, list(places.values())) for name, places in methods.items())


def _best(name: str, groups: Sequence[Sequence[Lead]]) -> tuple[str, list[Line]]:
    """Return the claim that a method is best, with a line for each group of leads, which share data and verdict."""
    # The numbers shown are the first: NLL or, without it, the last, such as an average.
    ordered = [sorted(group, key=lambda lead: (lead.measure != "NLL", lead is not group[-1])) for group in groups]
    measures = [tuple(lead.measure for lead in group) for group in ordered]
    alike = len(set(measures)) == 1
    lines = [
        Line(lead.data if alike else f"{lead.data}: {_few(names)}", lead.paper, lead.ours, said(lead.holds))
        for (lead, *_), names in zip(ordered, measures, strict=True)
    ]
    return f"{name} is best in {', '.join(dict.fromkeys(itertools.chain(*measures)))}", lines


def _of_claims(claims: Sequence[Claim]) -> dict[str, list[Line]]:
    """Return the statements of the paper's text and figures, with a line for each data set."""
    lines: dict[str, list[Line]] = {}
    for claim in claims:
        lines.setdefault(claim.statement, []).append(Line(claim.data, (), claim.here, said(claim.holds)))
    return lines


def said(holds: Holds) -> str:
    """Return the verdict in words."""
    return WORDS.get(holds, str(holds))


def _stacked(lines: Sequence[Line]) -> list[str]:
    """Return a cell for each column, in which the lines are one below the other; what all share is said once."""
    texts = [(line.data or UNKNOWN, _pair(line.paper), _pair(line.here), line.verdict) for line in lines]
    columns = [column if len(set(column)) > 1 else column[:1] for column in zip(*texts, strict=True)]
    # A line that wraps would no longer be level with its own in other columns.
    return ["<br>".join(column).replace(" ", "\u00a0" if len(column) > 1 else " ") for column in columns]


def _pair(values: Sequence[Value]) -> str:
    texts = [cells([value.mean], ",.0f" if value.mean >= 1000 else ".3g")[0].text for value in values]
    return " vs. ".join(texts) or UNKNOWN


def _few(names: Sequence[str]) -> str:
    whole = ", ".join(names)
    return whole if len(whole) < 20 else f"{names[0]}, {len(names) - 1} more"
