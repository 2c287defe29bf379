"""Meta-training: learn a sampler from tasks.

    from roamax import meta

    meta.train(meta.PRESETS["smoke"], "out")

Task distribution -> inner loop (`inner`) -> objective -> estimator (`es`, `tbptt`) -> outer optimizer -> weights.
"""

from roamax.meta.config import Stage, TrainConfig
from roamax.meta.engines import LocalEngine, use_cpu_devices
from roamax.meta.presets import PRESETS
from roamax.meta.trainer import Trained, train

__all__ = ["PRESETS", "LocalEngine", "Stage", "TrainConfig", "Trained", "train", "use_cpu_devices"]
