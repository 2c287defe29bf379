"""Weights of learned samplers that ship with the package, each with a card that says how they were made.

A set of weights is a file `NAME.safetensors` and its card, `NAME.json`. The card holds the settings for the weights
(`sampler`, `step_size`, `friction`, `temperature`, `output_scale`), how they were trained (data, architectures, inner
and outer steps, estimator, seed, date, version) and how they scored (`meta_loss`).
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec

from roamax.errors import FileError, InputError, lookup, shaped
from roamax.host import files
from roamax.numerics import trees
from roamax.types import MetaParams, Sampler, Weights

FOLDER = Path(__file__).parent
Arguments = ParamSpec("Arguments")


def names() -> list[str]:
    """Return the names of the weights that ship with this version."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str) -> Weights:
    """Load weights that ship with this version, with their card.

    Args:
        name: One of `names()`.

    Returns:
        The weights and their card.
    """
    return read(lookup({known: FOLDER / f"{known}.safetensors" for known in names()}, name, "name"))


def read(path: str | Path) -> Weights:
    """Read weights from a safetensors file, with their card, `NAME.json` in the same folder, if there is one.

    Args:
        path: The safetensors file.

    Returns:
        The weights and their card.
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
    scalars = ("step_size", "friction", "output_scale")
    card = shaped(files.read_json(path), {f"{name}?": float for name in scalars}, path)
    for name in scalars:
        if card.get(name, 1.0) <= 0:
            raise FileError(f"{path} is damaged: its {name} must be a finite number > 0; got {card[name]!r:.80}.")
    return card


def resolve(meta_params: MetaParams | Weights | str | Path, sampler: str, argument: str = "meta_params") -> Weights:
    """Return the weights that the argument `meta_params` of a learned sampler refers to.

    Args:
        meta_params: "pretrained", one of `names()`, a safetensors file, or the weights themselves.
        sampler: The name of the sampler, for "pretrained".
        argument: The name of the argument, for error messages.

    Returns:
        The weights and their card.
    """
    if isinstance(meta_params, Weights):
        return meta_params
    if not isinstance(meta_params, str | Path):
        return Weights(meta_params, source=argument)
    # Names of samplers have underscores, those of weights hyphens: kinetic_l2e and kinetic-l2e.
    name = sampler.replace("_", "-") if meta_params == "pretrained" else str(meta_params)
    if name in names():
        return load(name)
    if meta_params == "pretrained":
        raise InputError(
            f"`{argument}` must be weights or a file of them, since no weights of {sampler} ship with this version "
            "yet; got 'pretrained'."
        )
    return read(meta_params)


def resolving(build: Callable[Arguments, Sampler]) -> Callable[Arguments, Sampler]:
    """Wrap the function of a learned sampler, so that `meta_params` may be anything that `resolve` takes.

    Args:
        build: A function of `roamax.samplers.learned` with an argument `meta_params`.

    Returns:
        The function, with the same signature.
    """
    signature = inspect.signature(build)

    @functools.wraps(build)
    def resolved(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Sampler:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments["meta_params"] = resolve(given.arguments["meta_params"], build.__name__)
        return build(*given.args, **given.kwargs)

    return resolved
