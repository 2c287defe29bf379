"""Meta-training: learn a sampler from tasks.

    from roamax import meta

    meta.train(meta.PRESETS["smoke"], "out")

Task distribution -> inner loop (`inner`) -> objective -> `estimators` -> outer optimizer -> weights.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roamax.meta.config import Stage, TrainConfig
    from roamax.meta.engines import LocalEngine, RayEngine, use_cpu_devices
    from roamax.meta.presets import PRESETS
    from roamax.meta.trainer import Trained, train

__all__ = ["PRESETS", "LocalEngine", "RayEngine", "Stage", "TrainConfig", "Trained", "train", "use_cpu_devices"]

_HOME = {
    "LocalEngine": "engines",
    "PRESETS": "presets",
    "RayEngine": "engines",
    "Stage": "config",
    "TrainConfig": "config",
    "Trained": "trainer",
    "train": "trainer",
    "use_cpu_devices": "engines",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the help of `roamax meta-train` does not wait for JAX.
    if name in _HOME:
        return getattr(importlib.import_module(f"roamax.meta.{_HOME[name]}"), name)
    raise AttributeError(f"module 'roamax.meta' has no attribute {name!r}")
