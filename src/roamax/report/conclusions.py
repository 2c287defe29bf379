"""What the numbers of a run say, in words: each conclusion comes with the number that it is drawn from."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SPACE = "\N{NO-BREAK SPACE}"
LITTLE = 0.01
"""The change of the NLL, relative to its size and at least a tenth of this in nats, up to which draws change little."""
AGREE = 0.9
"""The share of outputs with R-hat below 1.1 from which chains agree."""
REJECTED = 0.1
"""The share of inputs that a conclusion about rejection rejects."""


class Conclusion(NamedTuple):
    """A claim in a few words, and the number that says so."""

    claim: str
    because: str


def conclude(record: Mapping[str, Any]) -> list[Conclusion]:
    """Return the conclusions from the content of a run's `metrics.json`; what was not measured has none."""
    return [
        *_draws(record.get("by_draws") or record.get("nll_by_draws")),
        *_averaging(record),
        *_chains(record),
        *_energy(record.get("energy")),
        *_calibration(record.get("reliability")),
        *_coverage(record["scores"].get("coverage")),
        *_rejection(record.get("rejection")),
        *_outside(record.get("ood") or {}),
    ]


def _draws(curve: Mapping[str, Sequence[Any]] | None) -> Iterator[Conclusion]:
    known = (
        []
        if curve is None
        else [(int(count), nll) for count, nll in zip(curve["draws"], curve["nll"], strict=True) if nll is not None]
    )
    halves = [point for point in known if 2 * point[0] <= known[-1][0]]
    if not halves or known[-1][0] < 4:
        return
    (half, before), (count, now) = halves[-1], known[-1]
    because = f"From {half} to {count} draws, the NLL of the average went from {before:.4f} to {now:.4f}."
    little = max(LITTLE * abs(now), LITTLE / 10)
    if before - now > little:
        yield Conclusion("More draws would still help.", because)
    elif now - before > little:
        yield Conclusion("Later draws did harm.", because)
    else:
        yield Conclusion("More draws of this kind would change little.", because)


def _averaging(record: Mapping[str, Any]) -> Iterator[Conclusion]:
    single = [value for chain in record.get("traces", {}).get("nll", ()) for value in chain if value is not None]
    average = record["scores"].get("nll")
    if len(single) < 2 or average is None:
        return
    mean = float(np.mean(single))
    because = f"The NLL of the average is {average:.4f}, that of a single draw {mean:.4f} on average."
    yield Conclusion("Averaging pays." if average < 0.95 * mean else "Averaging changes little.", because)


def _chains(record: Mapping[str, Any]) -> Iterator[Conclusion]:
    outputs = record["diagnostics"].get("functions", {})
    several = record["num_chains"] > 1
    share = outputs.get("rhat_share" if several else "chain_rhat_share")
    if share is None:
        return
    name = "R-hat" if several else "cR-hat"
    because = f"{name} is below 1.1 for {_percent(share)} of the network's outputs on test inputs."
    if several:
        yield Conclusion("Chains agree." if share >= AGREE else "Chains disagree.", because)
    elif share >= AGREE:
        yield Conclusion("The chain looks stationary.", f"{because} Only several chains can tell whether it is.")
    else:
        yield Conclusion("The chain has not settled.", f"{because} A longer burn-in or several chains would tell more.")


def _energy(trace: Mapping[str, Any] | None) -> Iterator[Conclusion]:
    if trace is None:
        return
    if trace["divergent"]:
        count = trace["divergent"]
        yield Conclusion(
            "Some steps diverged.", f"The integrator failed before {count} of the draws: shorten its steps."
        )
    drawn = [step >= trace["first_draw"] for step in trace["step"]]
    values = np.array(trace["energy"], float).reshape(len(trace["energy"]), -1)[:, drawn]
    length = values.shape[1] // 2
    if length < 4 or not np.isfinite(values).all():
        return
    first, last = values[:, :length], values[:, -length:]
    noise = math.sqrt((first.var() + last.var()) / first.size)
    fall = float(first.mean() - last.mean())
    if abs(fall) > 3 * noise:
        verb = "falls" if fall > 0 else "rises"
        because = f"Its mean is {first.mean():.5g} in the first half of the draws and {last.mean():.5g} in the second."
        yield Conclusion(f"The energy still {verb}: burn-in was too short.", because)


def _calibration(table: Mapping[str, Sequence[Any]] | None) -> Iterator[Conclusion]:
    if table is None:
        return
    count = np.array(table["count"], float)
    total = count.sum()
    if not total > 0:
        return
    confidence, accuracy = (
        float(np.nansum(count * np.array(table[key], float)) / total) for key in ("confidence", "accuracy")
    )
    error = 2 * math.sqrt(max(accuracy * (1 - accuracy), 0.25 / total) / total)
    because = f"Mean confidence is {_percent(confidence)}; {_percent(accuracy)} ± {_percent(error)} are right."
    if abs(confidence - accuracy) <= error:
        yield Conclusion("Confidence can be taken at its word.", because)
    else:
        word = "overconfident" if confidence > accuracy else "underconfident"
        yield Conclusion(f"Predictions are {word}.", because)


def _coverage(coverage: float | None) -> Iterator[Conclusion]:
    if coverage is None:
        return
    because = f"{_percent(coverage)} of the test targets lie in the 95{SPACE}% intervals."
    size = "about right" if 0.92 <= coverage <= 0.98 else "too narrow" if coverage < 0.92 else "too wide"
    yield Conclusion(f"Intervals are {size}.", because)


def _rejection(curve: Mapping[str, Sequence[float]] | None) -> Iterator[Conclusion]:
    if curve is None or not curve["acc"]:
        return
    place = int(np.argmin(np.abs(np.array(curve["rejected"]) - REJECTED)))
    share, before, after = curve["rejected"][place], curve["acc"][0], curve["acc"][place]
    because = (
        f"Without the {_percent(share, 0)} of inputs with the least confidence, accuracy goes from {_percent(before)} "
        f"to {_percent(after)}."
    )
    yield Conclusion("Doubt finds mistakes." if after > before else "Doubt does not find mistakes.", because)


def _outside(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Conclusion]:
    for name, one in found.items():
        auroc = one["auroc"]
        word = "well" if auroc >= 0.9 else "partly" if auroc >= 0.6 else "hardly"
        yield Conclusion(f"Confidence tells {name} from test data {word}.", f"AUROC {auroc:.3f}; chance is .5.")


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{SPACE}%"
