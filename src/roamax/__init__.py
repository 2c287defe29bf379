"""Sample the posteriors of Bayesian neural networks with learned stochastic-gradient MCMC.

Names are imported on first use, so that the command line can respond before JAX has loaded.
"""

import importlib
from typing import TYPE_CHECKING, Any

from roamax.samplers import registry as _samplers

if TYPE_CHECKING:
    from roamax import data, errors, likelihoods, meta, models, pretrained, priors, schedules, tasks
    from roamax.evaluation import diagnostics, landscape, metrics
    from roamax.evaluation.predict import predict, predict_draws
    from roamax.likelihoods import categorical, gaussian
    from roamax.posterior import Posterior
    from roamax.samplers.registry import *  # noqa: F403
    from roamax.sampling.draws import Draws
    from roamax.sampling.runner import sample
    from roamax.schedules import from_learning_rate
    from roamax.sklearn.estimators import BayesianClassifier, BayesianRegressor
    from roamax.types import Info, LearnedSampler, Sampler

__version__ = "0.1.0"

_HOME = {
    "BayesianClassifier": "sklearn.estimators",
    "BayesianRegressor": "sklearn.estimators",
    "Draws": "sampling.draws",
    "Info": "types",
    "LearnedSampler": "types",
    "Posterior": "posterior",
    "Sampler": "types",
    "categorical": "likelihoods",
    "from_learning_rate": "schedules",
    "gaussian": "likelihoods",
    "predict": "evaluation.predict",
    "predict_draws": "evaluation.predict",
    "sample": "sampling.runner",
}
_MODULES = {
    "data": "data",
    "diagnostics": "evaluation.diagnostics",
    "errors": "errors",
    "landscape": "evaluation.landscape",
    "likelihoods": "likelihoods",
    "meta": "meta",
    "metrics": "evaluation.metrics",
    "models": "models",
    "pretrained": "pretrained",
    "priors": "priors",
    "schedules": "schedules",
    "tasks": "tasks",
}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "data", "diagnostics", "errors", "landscape", "likelihoods", "meta", "metrics", "models", "pretrained", "priors",
    "schedules", "tasks",
    "BayesianClassifier", "BayesianRegressor",
    "Draws", "Info", "LearnedSampler", "Posterior", "Sampler",
    "categorical", "gaussian", "from_learning_rate", "predict", "predict_draws", "sample",
    *_samplers.names(), *_samplers.families(),
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Not in `__all__`, because `roamax.torch` needs an extra.
    if name == "torch":
        return importlib.import_module("roamax.torch")
    if name in _MODULES:
        return importlib.import_module(f"roamax.{_MODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"roamax.{_HOME[name]}"), name)
    if name in _samplers.RECORDS:
        from roamax.sampling.named import builder

        return builder(_samplers.RECORDS[name])
    if name in (families := _samplers.families()):
        return families[name].load_family()
    raise AttributeError(f"module 'roamax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
