"""Samplers by name, with settings in the terms of stochastic gradient descent, for the command line and estimators."""

from collections.abc import Callable
from typing import Any

from roamax.errors import InputError, lookup
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
from roamax.schedules import from_learning_rate
from roamax.types import Key, Params, Sampler

FULL_BATCH = ("hmc", "nuts")
"""The samplers that need all data at every step."""
BY_CYCLES = ("cyclical", "ensemble")
"""The samplers that give one draw a cycle or member, and need no burn-in."""


def named_sampler(
    name: str,
    posterior: Posterior,
    *,
    num_steps: int,
    num_samples: int,
    init: Callable[[Key], Params] | None = None,
    regression: bool = False,
    lr: float | None = None,
    momentum_decay: float = 0.1,
    **options: Any,
) -> Sampler:
    """The sampler of that name for a run of about `num_steps` steps and `num_samples` draws.

    `lr` is a learning rate on the mean loss, each sampler's own default where it is None; `options` go to the sampler
    and win over what follows from `lr`. Cyclical SGMCMC gets one cycle, and an ensemble one member, for each draw.
    """
    build = lookup(_BUILDERS, name, "sampler")
    default = default_learning_rate(name, regression)
    if lr is not None and default is None:
        raise InputError(f"`lr` must not be given for {name}, whose steps are not in those terms; got {lr}.")
    n = posterior.num_data
    rate = default if lr is None else lr
    settings: dict[str, Any] = {}
    if name in ("sgld", "psgld"):
        settings = {"step_size": rate / n} if rate else {}
    elif name in ("sghmc", "cyclical"):
        settings = {**from_learning_rate(rate or 0.0, momentum_decay, n)}
    if name == "cyclical":
        settings["cycle_length"] = max(2, num_steps // num_samples)
    elif name == "ensemble":
        settings = {
            "learning_rate": rate,
            "momentum": 1 - momentum_decay,
            "member_steps": max(1, num_steps // num_samples),
            "init": init,
        }
    return build(posterior, **{**settings, **options})


def one_draw_a_cycle(sampler: Sampler) -> int:
    """The `thinning` that takes one draw at the end of each cycle, or of each member of an ensemble."""
    length = sampler.settings.get("cycle_length", sampler.settings.get("member_steps"))
    if length is None or sampler.collect is None:
        raise InputError(f"`sampler` must run in cycles or members; got {dict(sampler.settings)}.")
    return sum(map(sampler.collect, range(1, length + 1)))


def default_learning_rate(name: str, regression: bool) -> float | None:
    """The learning rate that a sampler gets where none is given; None where its steps are not in those terms."""
    return (_REGRESSION_LR if regression else _CLASSIFICATION_LR).get(name)


_CLASSIFICATION_LR = {"sgld": 0.1, "psgld": 1e-3, "sghmc": 0.05, "cyclical": 0.1, "ensemble": 0.1}
# A Gaussian likelihood grows steep as its scale is learned: what suits a cross-entropy diverges.
_REGRESSION_LR = {"sgld": 0.002, "psgld": 1e-3, "sghmc": 0.001, "cyclical": 5e-4, "ensemble": 0.005}

_BUILDERS: dict[str, Callable[..., Sampler]] = {
    "sgld": sgld,
    "psgld": psgld,
    "sghmc": sghmc,
    "cyclical": cyclical,
    "ensemble": ensemble,
    "hmc": hmc,
    "nuts": nuts,
    "l2e": l2e,
    "kinetic_l2e": kinetic_l2e,
    "precond_l2e": precond_l2e,
    "meta_sgmcmc": meta_sgmcmc,
}
NAMES = tuple(_BUILDERS)
