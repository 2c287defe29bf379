"""Cyclical SGMCMC (Zhang et al., 2020): SGHMC or SGLD with two schedules, not a kernel of its own."""

from roamax.errors import InputError, check, lookup
from roamax.posterior import Posterior
from roamax.samplers.sghmc import sghmc
from roamax.samplers.sgld import sgld
from roamax.schedules import CyclicalCosine, CyclicalSwitch, as_schedule, describe
from roamax.types import Sampler, Scalar


def cyclical(
    posterior: Posterior,
    *,
    step_size: float,
    cycle_length: int,
    friction: Scalar | None = None,
    exploration_ratio: float = 0.8,
    temperature: float = 1.0,
    kernel: str = "sghmc",
) -> Sampler:
    """Warm restarts: each cycle first explores as an optimizer, then samples; draws come from the second part.

    The squared step size of SGHMC (its learning rate; for SGLD the step size itself) follows a cosine from
    `step_size` to 0 within each cycle of `cycle_length` steps. The first `exploration_ratio` of a cycle runs
    at temperature 0, the rest at `temperature`. A float `friction` is that at the peak: it grows as the step
    size falls, so that the momentum decay, step_size * friction, stays the same.

    With `thinning` = the steps of a cycle's sampling part, `roamax.sample` takes one draw at the end of each.
    """
    as_schedule(step_size, "step_size")
    check(
        cycle_length == int(cycle_length) and cycle_length >= 2, "cycle_length", "be a whole number >= 2", cycle_length
    )
    switch = CyclicalSwitch(temperature, int(cycle_length), exploration_ratio)
    check(
        0 <= exploration_ratio < 1 and switch.exploration_steps < cycle_length,
        "exploration_ratio",
        "be in [0, 1) and leave at least one step of a cycle to sample",
        exploration_ratio,
    )
    as_schedule(temperature, "temperature", positive=False)
    lookup({"sghmc": sghmc, "sgld": sgld}, kernel, "kernel")

    if kernel == "sgld":
        if friction is not None:
            raise InputError(f"`friction` must not be given with kernel='sgld'; got {friction}.")
        base = sgld(posterior, step_size=CyclicalCosine(step_size, cycle_length), temperature=switch)
    else:
        if friction is None:
            raise InputError("`friction` must be given with kernel='sghmc'; got None.")
        epsilon_at = CyclicalCosine(step_size, cycle_length, power=0.5)
        as_schedule(friction, "friction")
        constant_decay = friction if callable(friction) else lambda step: step_size * friction / epsilon_at(step)
        base = sghmc(posterior, step_size=epsilon_at, friction=constant_decay, temperature=switch)

    def collect(steps_taken: int) -> bool:
        return (steps_taken - 1) % cycle_length >= switch.exploration_steps

    settings = {
        "name": "cyclical",
        "kernel": kernel,
        "step_size": step_size,
        "friction": describe(friction),
        "cycle_length": cycle_length,
        "exploration_ratio": exploration_ratio,
        "temperature": temperature,
    }
    return base._replace(collect=collect, settings=settings)
