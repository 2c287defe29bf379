"""The zoo: networks by name, and adapters that bring any other flax or equinox model to the same form.

model = roamax.models.get("cnn", channels=8, depth=2)
params = model.init(key, x[:1])
logits = model.apply(params, x)
"""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from roamax.errors import InputError, lookup, nearest
from roamax.models.adapters import from_equinox, from_linen, from_nnx
from roamax.models.model import Model

__all__ = ["Model", "from_equinox", "from_linen", "from_nnx", "get", "names", "options"]

# By module, so that a name is known, and a misspelt one refused, before flax is imported.
_BUILDERS = {
    "mlp": "mlp",
    "mlp_regression": "mlp",
    "cnn": "cnn",
    "cnn_fashion": "cnn",
    "cnn_cifar": "cnn",
    "cnn_pooled": "cnn",
    "resnet8_frn": "resnet_frn",
    "resnet20_frn": "resnet_frn",
    "resnet56_frn": "resnet_frn",
    "cnn_lstm": "cnn_lstm",
}


def names() -> list[str]:
    """The names that `get` knows."""
    return list(_BUILDERS)


def options(name: str) -> dict[str, Any]:
    """The options of a model and their defaults."""
    return {option: entry.default for option, entry in inspect.signature(_builder(name)).parameters.items()}


def get(name: str, **chosen: Any) -> Model:
    """The model of that name, with some of its `options` chosen.

    The same name and options give the same function objects, so that what was compiled for one task is
    found again for the next.
    """
    known = options(name)
    for option in chosen:
        if option not in known:
            raise InputError(f"`{option}` must be an option of the model {name!r}: {nearest(option, known)}")
    return _build(name, tuple(sorted((option, _hashable(value)) for option, value in {**known, **chosen}.items())))


@functools.cache
def _build(name: str, chosen: tuple[tuple[str, Any], ...]) -> Model:
    return from_linen(_builder(name)(**dict(chosen)), name=name, tokens=name == "cnn_lstm")


def _builder(name: str) -> Callable[..., Any]:
    module = lookup(_BUILDERS, name, "model")
    return getattr(importlib.import_module(f"roamax.models.{module}"), name)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
