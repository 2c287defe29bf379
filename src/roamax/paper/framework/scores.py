"""The four columns that most of the paper's tables have, and what is better in them."""

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.lab import Record
from roamax.report.tables import Value

COLUMNS = ("ACC", "NLL", "ECE", "KLD")
BETTER = {"ACC": "max", "NLL": "min", "ECE": "min", "KLD": "max"}


def scores(chain: Chain) -> Record:
    """Accuracy, NLL and calibration error of the averaged prediction, and the diversity of its draws."""
    return {column: chain.scores[column.lower()] for column in COLUMNS}


def printed(*numbers: float | tuple[float, float]) -> dict[str, Value]:
    """A row of the paper's under `COLUMNS`: numbers, or pairs of a number and its standard deviation."""
    values = [Value(*number) if isinstance(number, tuple) else Value(number) for number in numbers]
    return dict(zip(COLUMNS, values, strict=False))
