"""The zoo of networks by name, and adapters for other flax and equinox models.

model = roamax.models.get("cnn", channels=8, depth=2)
params = model.init(key, x[:1])
logits = model.apply(params, x)
"""

import importlib
from typing import TYPE_CHECKING, Any

from roamax.models.registry import get, names, options

if TYPE_CHECKING:
    from roamax.models.adapters import from_equinox, from_linen, from_nnx
    from roamax.models.model import Model

__all__ = ["Model", "from_equinox", "from_linen", "from_nnx", "get", "names", "options"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command line can list networks before JAX has loaded.
    if name in __all__:
        return getattr(importlib.import_module(f"roamax.models.{'model' if name == 'Model' else 'adapters'}"), name)
    raise AttributeError(f"module 'roamax.models' has no attribute {name!r}")
