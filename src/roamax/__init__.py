"""Sampling the posteriors of Bayesian neural networks with learned stochastic-gradient MCMC.

Names are imported when they are first used, so that the command line can answer before JAX has loaded.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roamax import data, errors, likelihoods, meta, models, pretrained, priors, schedules, tasks
    from roamax.evaluation import diagnostics, landscape, metrics
    from roamax.evaluation.predict import predict, predict_draws
    from roamax.likelihoods import categorical, gaussian
    from roamax.posterior import Posterior
    from roamax.samplers.cyclical import cyclical
    from roamax.samplers.ensemble import ensemble
    from roamax.samplers.hmc import hmc, nuts
    from roamax.samplers.learned.kinetic_l2e import kinetic_l2e
    from roamax.samplers.learned.l2e import l2e
    from roamax.samplers.learned.meta_sgmcmc import meta_sgmcmc
    from roamax.samplers.learned.precond_l2e import precond_l2e
    from roamax.samplers.psgld import psgld
    from roamax.samplers.sghmc import sghmc
    from roamax.samplers.sgld import sgld
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
    "cyclical": "samplers.cyclical",
    "ensemble": "samplers.ensemble",
    "from_learning_rate": "schedules",
    "gaussian": "likelihoods",
    "hmc": "samplers.hmc",
    "kinetic_l2e": "samplers.learned.kinetic_l2e",
    "l2e": "samplers.learned.l2e",
    "meta_sgmcmc": "samplers.learned.meta_sgmcmc",
    "nuts": "samplers.hmc",
    "precond_l2e": "samplers.learned.precond_l2e",
    "predict": "evaluation.predict",
    "predict_draws": "evaluation.predict",
    "psgld": "samplers.psgld",
    "sample": "sampling.runner",
    "sghmc": "samplers.sghmc",
    "sgld": "samplers.sgld",
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

__all__ = [  # noqa: RUF022 (grouped by what they are)
    "data", "diagnostics", "errors", "landscape", "likelihoods", "meta", "metrics", "models", "pretrained", "priors",
    "schedules", "tasks",
    "BayesianClassifier", "BayesianRegressor",
    "Draws", "Info", "LearnedSampler", "Posterior", "Sampler",
    "categorical", "gaussian", "from_learning_rate", "predict", "predict_draws", "sample",
    "cyclical", "ensemble", "hmc", "kinetic_l2e", "l2e", "meta_sgmcmc", "nuts", "precond_l2e", "psgld", "sghmc", "sgld",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # `roamax.torch` needs an extra, so no list names it.
    if name == "torch":
        return importlib.import_module("roamax.torch")
    if name in _MODULES:
        return importlib.import_module(f"roamax.{_MODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"roamax.{_HOME[name]}"), name)
    raise AttributeError(f"module 'roamax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
