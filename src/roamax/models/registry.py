"""The networks by name. To add one, write a function in a module of this package and add a record here."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from roamax.errors import InputError, check, flag, lookup, nearest

if TYPE_CHECKING:
    from roamax.models.model import Model


class Record(NamedTuple):
    """The module with the function that has the network's name, and whether its inputs are token ids."""

    module: str
    tokens: bool = False


MOST_UNITS = 2**24
"""The most units, channels or token ids of a layer; a mistake beyond that."""
# By module, so that names can be listed and checked before JAX and flax are imported.
MODELS = {
    "mlp": Record("mlp"),
    "mlp_regression": Record("mlp"),
    "mlp_heteroscedastic": Record("mlp"),
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
    """Return the names of the networks."""
    return list(MODELS)


def options(name: str) -> dict[str, Any]:
    """Return the options of a model.

    Args:
        name: One of `names()`.

    Returns:
        The defaults by name of the option.
    """
    return {option: entry.default for option, entry in inspect.signature(_function(name)).parameters.items()}


def get(name: str, **chosen: Any) -> "Model":
    """Return a model by name.

    The same name and options give the same function objects, so that functions compiled for one task are reused for
    the next.

    Args:
        name: One of `names()`.
        **chosen: Values for some of its `options`.

    Returns:
        The network as two pure functions.
    """
    known = options(name)
    for option in chosen:
        if option not in known:
            raise InputError(f"`{option}` must be an option of the model {name!r}: {nearest(option, known)}")
        if isinstance(known[option], bool):
            flag(chosen[option], option)
        check(not isinstance(chosen[option], dict), option, "not be an object", chosen[option])
        for size in chosen[option] if isinstance(chosen[option], list | tuple) else [chosen[option]]:
            check(not isinstance(size, int) or size <= MOST_UNITS, option, f"be at most {MOST_UNITS}", size)
    return _build(name, tuple(sorted((option, _hashable(value)) for option, value in {**known, **chosen}.items())))


@functools.cache
def _build(name: str, chosen: tuple[tuple[str, Any], ...]) -> "Model":
    from roamax.models.adapters import from_linen

    return from_linen(_function(name)(**dict(chosen)), name=name, tokens=MODELS[name].tokens)


def _function(name: str) -> Callable[..., Any]:
    record = lookup(MODELS, name, "model")
    return getattr(importlib.import_module(f"roamax.models.{record.module}"), name)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _hashable(one)) for key, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
