"""Weights of learned samplers that ship with the package, each with a card that says how they were made.

A set of weights is a file `NAME.safetensors` and its card, `NAME.json`, which `NAME.md` shows as a page. `cards` says
what a card holds.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

from roamax import likelihoods
from roamax.errors import FileError, InputError, lookup
from roamax.host import files
from roamax.numerics import trees
from roamax.pretrained import cards
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
    card = cards.read(card_path) if card_path.exists() else {}
    try:
        meta_params = trees.from_named_leaves({name.replace(".", "/"): tensors[name] for name in sorted(tensors)})
    except InputError as error:
        raise FileError(f"{path} does not hold weights: {error}") from error
    return Weights(meta_params, card, str(path))


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

    The function then warns of a posterior far from the card of its weights.

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
        weights = given.arguments["meta_params"] = resolve(given.arguments["meta_params"], build.__name__)
        sampler = build(*given.args, **given.kwargs)
        posterior = given.arguments["posterior"]
        cards.warn_if_far(weights, posterior.num_data, likelihoods.kind(posterior.log_likelihood))
        return sampler

    return resolved
