"""The networks by name: a new one is a function in a module here, and one record."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from roamax.errors import InputError, lookup, nearest

if TYPE_CHECKING:
    from roamax.models.model import Model


class Record(NamedTuple):
    """The module that holds the function of a network's name, and whether it takes token ids, not numbers."""

    module: str
    tokens: bool = False


# By module, so that a name is known, and a misspelt one refused, before JAX and flax are imported.
MODELS = {
    "mlp": Record("mlp"),
    "mlp_regression": Record("mlp"),
    "cnn": Record("cnn"),
    "cnn_fashion": Record("cnn"),
    "cnn_cifar": Record("cnn"),
    "cnn_pooled": Record("cnn"),
    "resnet8_frn": Record("resnet_frn"),
    "resnet20_frn": Record("resnet_frn"),
    "resnet56_frn": Record("resnet_frn"),
    "cnn_lstm": Record("cnn_lstm", tokens=True),
}


def names() -> list[str]:
    """Return the names that `get` knows."""
    return list(MODELS)


def options(name: str) -> dict[str, Any]:
    """Return the options of the model `name` and their defaults."""
    return {option: entry.default for option, entry in inspect.signature(_function(name)).parameters.items()}


def get(name: str, **chosen: Any) -> "Model":
    """Return the model of that name.

    The same name and options give the same function objects, so that what was compiled for one task is
    found again for the next.

    Args:
        name: One of `names()`.
        **chosen: Some of its `options`.

    Returns:
        The network as two pure functions.
    """
    known = options(name)
    for option in chosen:
        if option not in known:
            raise InputError(f"`{option}` must be an option of the model {name!r}: {nearest(option, known)}")
    return _build(name, tuple(sorted((option, _hashable(value)) for option, value in {**known, **chosen}.items())))


@functools.cache
def _build(name: str, chosen: tuple[tuple[str, Any], ...]) -> "Model":
    from roamax.models.adapters import from_linen

    return from_linen(_function(name)(**dict(chosen)), name=name, tokens=MODELS[name].tokens)


def _function(name: str) -> Callable[..., Any]:
    record = lookup(MODELS, name, "model")
    return getattr(importlib.import_module(f"roamax.models.{record.module}"), name)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
