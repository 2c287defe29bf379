"""Sampling the posteriors of Bayesian neural networks with learned stochastic-gradient MCMC."""

from roamax import errors, priors, schedules
from roamax.draws import Draws
from roamax.posterior import Posterior, categorical, gaussian
from roamax.predict import predict, predict_draws
from roamax.samplers.cyclical import cyclical
from roamax.samplers.ensemble import ensemble
from roamax.samplers.hmc import hmc, nuts
from roamax.samplers.l2e import l2e
from roamax.samplers.psgld import psgld
from roamax.samplers.sghmc import sghmc
from roamax.samplers.sgld import sgld
from roamax.sampling import sample
from roamax.schedules import from_learning_rate
from roamax.types import Info, LearnedSampler, Sampler

__version__ = "0.1.0"

__all__ = [
    "Draws",
    "Info",
    "LearnedSampler",
    "Posterior",
    "Sampler",
    "categorical",
    "cyclical",
    "ensemble",
    "errors",
    "from_learning_rate",
    "gaussian",
    "hmc",
    "l2e",
    "nuts",
    "predict",
    "predict_draws",
    "priors",
    "psgld",
    "sample",
    "schedules",
    "sghmc",
    "sgld",
]
