"""Weights of learned samplers that ship with the package, each with a card that says how they were made.

A set of weights is `NAME.safetensors` with `NAME.json` beside it. The card holds the settings the weights were
trained with (`sampler`, `step_size`, `friction`, `temperature`, `output_scale`), how they were trained (data,
architectures, inner and outer steps, estimator, seed, date, version) and how they scored (`meta_loss`).
"""

import builtins
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roamax.errors import FileError, InputError, lookup
from roamax.host import files
from roamax.numerics import trees
from roamax.types import MetaParams

FOLDER = Path(__file__).parent


class Weights(NamedTuple):
    """The weights of a learned sampler, the card that came with them, and where they are from."""

    meta_params: MetaParams
    card: Mapping[str, Any] = {}
    source: str = "meta_params"

    def setting(self, given: Any, name: str, defaults: Mapping[str, Any]) -> Any:
        """A setting as given, or else from the card, or else the default."""
        return self.card.get(name, defaults[name]) if given is None else given


def list() -> builtins.list[str]:
    """The names of the sets of weights that ship with this version."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str) -> Weights:
    """A set of weights that ships with this version, with its card."""
    return read(lookup({known: FOLDER / f"{known}.safetensors" for known in list()}, name, "name"))


def read(path: str | Path) -> Weights:
    """Weights from a safetensors file, with the card beside it, `NAME.json`, if there is one."""
    path = Path(path)
    tensors = files.read_tensors(path)
    card_path = path.with_suffix(".json")
    card = _read_card(card_path) if card_path.exists() else {}
    try:
        meta_params = trees.from_named_leaves({name.replace(".", "/"): tensors[name] for name in sorted(tensors)})
    except InputError as error:
        raise FileError(f"{path} does not hold weights: {error}") from error
    return Weights(meta_params, card, str(path))


def _read_card(path: Path) -> Mapping[str, Any]:
    card = files.read_json(path)
    if not isinstance(card, dict):
        raise FileError(f"{path} is damaged: it is not a JSON object.")
    for name in ("step_size", "friction", "output_scale"):
        value = card.get(name, 1.0)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 < value < math.inf):
            raise FileError(f"{path} is damaged: its {name} must be a finite number > 0; got {value!r:.80}.")
    return card


def resolve(meta_params: MetaParams | str | Path, sampler: str, argument: str = "meta_params") -> Weights:
    """What the `meta_params` of a learned sampler stand for: "pretrained", a name, a file, or weights themselves.

    `argument` is what the caller's own caller knows them as.
    """
    if not isinstance(meta_params, str | Path):
        return Weights(meta_params, source=argument)
    # Samplers are called as Python allows, weights as files are: kinetic_l2e takes kinetic-l2e.
    name = sampler.replace("_", "-") if meta_params == "pretrained" else str(meta_params)
    if name in list():
        return load(name)
    if meta_params == "pretrained":
        raise InputError(
            f"`{argument}` must be weights or a file of them, for no weights of {sampler} ship with this version "
            "yet; got 'pretrained'."
        )
    return read(meta_params)
