"""Sampling the posteriors of Bayesian neural networks with learned stochastic-gradient MCMC.

Names are imported when they are first used, so that the command line can answer before JAX has loaded.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roamax import data, diagnostics, errors, landscape, meta, metrics, models, pretrained, priors, schedules, tasks
    from roamax.draws import Draws
    from roamax.estimators import BayesianClassifier, BayesianRegressor
    from roamax.posterior import Posterior, categorical, gaussian
    from roamax.predict import predict, predict_draws
    from roamax.samplers.cyclical import cyclical
    from roamax.samplers.ensemble import ensemble
    from roamax.samplers.hmc import hmc, nuts
    from roamax.samplers.kinetic_l2e import kinetic_l2e
    from roamax.samplers.l2e import l2e
    from roamax.samplers.meta_sgmcmc import meta_sgmcmc
    from roamax.samplers.precond_l2e import precond_l2e
    from roamax.samplers.psgld import psgld
    from roamax.samplers.sghmc import sghmc
    from roamax.samplers.sgld import sgld
    from roamax.sampling import sample
    from roamax.schedules import from_learning_rate
    from roamax.types import Info, LearnedSampler, Sampler

__version__ = "0.1.0"

_HOME = {
    "BayesianClassifier": "estimators",
    "BayesianRegressor": "estimators",
    "Draws": "draws",
    "Info": "types",
    "LearnedSampler": "types",
    "Posterior": "posterior",
    "Sampler": "types",
    "categorical": "posterior",
    "cyclical": "samplers.cyclical",
    "ensemble": "samplers.ensemble",
    "from_learning_rate": "schedules",
    "gaussian": "posterior",
    "hmc": "samplers.hmc",
    "kinetic_l2e": "samplers.kinetic_l2e",
    "l2e": "samplers.l2e",
    "meta_sgmcmc": "samplers.meta_sgmcmc",
    "nuts": "samplers.hmc",
    "precond_l2e": "samplers.precond_l2e",
    "predict": "predict",
    "predict_draws": "predict",
    "psgld": "samplers.psgld",
    "sample": "sampling",
    "sghmc": "samplers.sghmc",
    "sgld": "samplers.sgld",
}
_MODULES = {
    "data", "diagnostics", "errors", "landscape", "meta", "metrics", "models", "pretrained", "priors", "schedules",
    "tasks",
}  # fmt: skip

__all__ = [  # noqa: RUF022 (grouped by what they are)
    "data", "diagnostics", "errors", "landscape", "meta", "metrics", "models", "pretrained", "priors", "schedules",
    "tasks",
    "BayesianClassifier", "BayesianRegressor",
    "Draws", "Info", "LearnedSampler", "Posterior", "Sampler",
    "categorical", "gaussian", "from_learning_rate", "predict", "predict_draws", "sample",
    "cyclical", "ensemble", "hmc", "kinetic_l2e", "l2e", "meta_sgmcmc", "nuts", "precond_l2e", "psgld", "sghmc", "sgld",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # `roamax.torch` needs an extra, so no list names it.
    if name in _MODULES or name == "torch":
        return importlib.import_module(f"roamax.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"roamax.{_HOME[name]}"), name)
    raise AttributeError(f"module 'roamax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """Lets `roamax.predict` be the function, though importing the module of that name would put itself there."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_shadow = _HOME.get(name) == name and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if is_shadow else value)


sys.modules[__name__].__class__ = _Package
