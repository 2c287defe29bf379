"""Cards of weights: what a card says, as a file, as a page, and as a warning where a problem is far from it.

A card holds the settings for the weights (`sampler`, `step_size`, `friction`, `temperature`, `output_scale`), how they
were trained (data, architectures, inner and outer steps, estimator, seed, date, version), on which problems
(`num_data`, the least and the most training examples, and `kinds`), how they scored (`meta_loss`), and `spread`: the
ratio of their predictions' standard deviations to those of NUTS for a small network, once `benchmarks/bias.py` has
measured it.
"""

import textwrap
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roamax.errors import CardWarning, FileError, shaped
from roamax.host import files
from roamax.types import Weights

KEPT = (0.8, 1.25)
"""Ratios of standard deviations between these count as those of the target."""
NARROW = 0.5
"""Weights with a smaller ratio act as an optimiser: their draws are nearly one network."""
FAR = 10
"""A problem is far from the card with this many times fewer, or more, examples than in training."""
SCALARS = ("step_size", "friction", "output_scale")
FIELDS = {**{f"{name}?": float for name in SCALARS}, "num_data?": [int], "kinds?": [str], "spread?": (float, None)}


def read(path: Path) -> Mapping[str, Any]:
    """Return the card in a JSON file.

    Args:
        path: The file.

    Returns:
        The card.
    """
    card = shaped(files.read_json(path), FIELDS, path)
    for name in SCALARS:
        if card.get(name, 1.0) <= 0:
            raise FileError(f"{path} is damaged: its {name} must be a finite number > 0; got {card[name]!r:.80}.")
    return card


def write(path: Path, card: Mapping[str, Any]) -> None:
    """Write a card as JSON, and beside it as a page of Markdown.

    Args:
        path: The JSON file.
        card: The card.
    """
    files.write_json(path, card)
    files.write_bytes(path.with_suffix(".md"), page(path.stem, card).encode())


def page(name: str, card: Mapping[str, Any]) -> str:
    """Return a card as a page of Markdown: what it warns of, then every field.

    Args:
        name: The name of the weights.
        card: The card.

    Returns:
        The page.
    """
    rows = "\n".join(f"| {field.replace('_', ' ')} | {_cell(value)} |" for field, value in card.items())
    return f"# {name}\n\n{textwrap.fill(_verdict(card), 120)}\n\n| field | value |\n| --- | --- |\n{rows}\n"


def keeps_spread(card: Mapping[str, Any]) -> bool:
    """Return whether the card says that predictions are spread as those of NUTS."""
    spread = card.get("spread")
    return spread is not None and KEPT[0] <= spread <= KEPT[1]


def warn_if_far(weights: Weights, num_data: int, kind: str | None) -> None:
    """Warn of a problem far from the card of weights, unless these are known to keep the spread of NUTS.

    Args:
        weights: The weights; without a card, or with one that does not tell their problems, nothing is known.
        num_data: The number of training examples.
        kind: "classification", "regression", or None if unknown.
    """
    card = weights.card
    sizes, kinds = card.get("num_data"), card.get("kinds")
    far = []
    if sizes and (num_data * FAR < min(sizes) or num_data > FAR * max(sizes)):
        far.append(f"{num_data:,} {'example' if num_data == 1 else 'examples'}")
    if kinds and kind and kind not in kinds:
        far.append(kind)
    if far and not keeps_spread(card):
        message = (
            f"{' and '.join(far).capitalize()}: far from the card of the weights {Path(weights.source).stem!r} "
            f"({_problems(card)}). {_verdict(card)} To go on regardless, ignore roamax.errors.CardWarning."
        )
        warnings.warn(message, CardWarning, stacklevel=3)


def _verdict(card: Mapping[str, Any]) -> str:
    """Return what is known of the spread of predictions, and what to do."""
    spread = card.get("spread")
    if spread is None:
        return (
            "Whether draws are spread as those of NUTS has not been measured: for uncertainty, use roamax.sghmc or "
            "roamax.nuts."
        )
    measured = f"predictions are spread {spread:.2f} times as wide as those of NUTS"
    if keeps_spread(card):
        return f"On a small problem {measured}."
    if spread > NARROW:
        return f"On a small problem {measured}: use roamax.sghmc or roamax.nuts there."
    return (
        f"These weights act as an optimiser on small problems, where {measured}, however good R-hat and ESS "
        "look: use roamax.sghmc or roamax.nuts there."
    )


def _problems(card: Mapping[str, Any]) -> str:
    kinds = " or ".join(card.get("kinds", ())) or "problems"
    sizes = " to ".join(f"{size:,}" for size in sorted(set(card.get("num_data", ()))))
    return f"{kinds} with {sizes} examples" if sizes else kinds


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if isinstance(value, dict):
        return "; ".join(f"{key} {_cell(entry)}" for key, entry in value.items())
    return f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value).replace("|", r"\|")
