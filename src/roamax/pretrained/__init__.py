"""Weights of learned samplers that ship with the package, each with a card that says how they were made.

A set of weights is `NAME.safetensors` with `NAME.json` next to it. The card holds the settings the weights were
trained with (`sampler`, `step_size`, `friction`, `temperature`, `output_scale`), how they were trained (data,
architectures, inner and outer steps, estimator, seed, date, version) and how they scored (`meta_loss`).
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec

from roamax.errors import FileError, InputError, lookup
from roamax.host import files
from roamax.numerics import trees
from roamax.types import MetaParams, Sampler, Weights

FOLDER = Path(__file__).parent
Arguments = ParamSpec("Arguments")


def names() -> list[str]:
    """Return the names of the sets of weights that ship with this version."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str) -> Weights:
    """Return a set of weights that ships with this version, with its card.

    Args:
        name: One of `names()`.
    """
    return read(lookup({known: FOLDER / f"{known}.safetensors" for known in names()}, name, "name"))


def read(path: str | Path) -> Weights:
    """Read weights from a safetensors file, with the card next to it, `NAME.json`, if there is one.

    Args:
        path: The safetensors file.
    """
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


def resolve(meta_params: MetaParams | Weights | str | Path, sampler: str, argument: str = "meta_params") -> Weights:
    """Return the weights that the `meta_params` of a learned sampler stand for.

    Args:
        meta_params: "pretrained", one of `names()`, a safetensors file, or weights themselves.
        sampler: The name of the sampler, which "pretrained" is resolved for.
        argument: What an error calls `meta_params`.
    """
    if isinstance(meta_params, Weights):
        return meta_params
    if not isinstance(meta_params, str | Path):
        return Weights(meta_params, source=argument)
    # Samplers are called as Python allows, weights as files are: kinetic_l2e takes kinetic-l2e.
    name = sampler.replace("_", "-") if meta_params == "pretrained" else str(meta_params)
    if name in names():
        return load(name)
    if meta_params == "pretrained":
        raise InputError(
            f"`{argument}` must be weights or a file of them, for no weights of {sampler} ship with this version "
            "yet; got 'pretrained'."
        )
    return read(meta_params)


def resolving(build: Callable[Arguments, Sampler]) -> Callable[Arguments, Sampler]:
    """Return a learned sampler's function with `meta_params` as users give them: see `resolve`.

    Samplers themselves read no files.

    Args:
        build: A function of `roamax.samplers.learned` with an argument `meta_params`.
    """
    signature = inspect.signature(build)

    @functools.wraps(build)
    def resolved(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Sampler:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments["meta_params"] = resolve(given.arguments["meta_params"], build.__name__)
        return build(*given.args, **given.kwargs)

    return resolved
