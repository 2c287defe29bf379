"""The zoo: networks by name, and adapters that bring any other flax or equinox model to the same form.

model = roamax.models.get("cnn", channels=8, depth=2)
params = model.init(key, x[:1])
logits = model.apply(params, x)
"""

from roamax.models.adapters import from_equinox, from_linen, from_nnx
from roamax.models.model import Model
from roamax.models.registry import get, names, options

__all__ = ["Model", "from_equinox", "from_linen", "from_nnx", "get", "names", "options"]
