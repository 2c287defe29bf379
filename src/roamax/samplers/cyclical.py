"""Cyclical SGMCMC (Zhang et al., 2020): SGHMC, SGLD or another sampler with two schedules."""

from collections.abc import Callable

from roamax.errors import InputError, finite, lookup
from roamax.posterior import Posterior
from roamax.samplers.sghmc import sghmc
from roamax.samplers.sgld import sgld
from roamax.schedules import Cycle, CyclicalCosine, CyclicalSwitch, as_schedule, describe
from roamax.types import Sampler, Scalar


def cyclical(
    posterior: Posterior,
    *,
    step_size: float,
    cycle_length: int,
    friction: Scalar | None = None,
    exploration_ratio: float = 0.8,
    temperature: float = 1.0,
    kernel: str | Callable[..., Sampler] = "sghmc",
    draws_per_cycle: int = 1,
) -> Sampler:
    """Return a sampler with warm restarts: each cycle first explores as an optimizer, then samples.

    Within each cycle the learning rate (the step size of SGLD, the squared step size of SGHMC) decays to 0 along a
    cosine. The first `exploration_ratio` of a cycle runs at temperature 0, the rest at `temperature`. A float
    `friction` applies at the peak and grows as the step size falls, so that the momentum decay, step_size * friction,
    stays constant. The first momentum of SGHMC is 0, unless `exploration_ratio` is 0. With another kernel, the step
    size decays along the cosine, and a friction is passed on as it is.

    Each cycle ends in a draw, so `roamax.sample` needs neither burn-in nor thinning, and `num_samples` is the number
    of cycles.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon at the start of a cycle.
        cycle_length: The number of steps per cycle.
        friction: C; SGHMC needs it, SGLD does not take it.
        exploration_ratio: The fraction of a cycle that runs at temperature 0.
        temperature: T in the rest of a cycle; 1 samples the posterior.
        kernel: "sghmc", "sgld", or a function of a posterior, `step_size` and `temperature` that returns a sampler,
            such as `roamax.psgld` or `functools.partial(roamax.l2e, meta_params="pretrained")`.
        draws_per_cycle: The number of draws, spread evenly over the sampling part of a cycle; the last is at its end.

    Returns:
        The sampler.
    """
    step_size, temperature = finite(step_size, "step_size", above=0), finite(temperature, "temperature", least=0)
    cycle = Cycle(cycle_length, exploration_ratio, draws_per_cycle)
    cycle_length, switch = cycle.length, CyclicalSwitch(temperature, cycle)
    if callable(kernel):
        options = {} if friction is None else {"friction": friction}
        base = kernel(posterior, step_size=CyclicalCosine(step_size, cycle_length), temperature=switch, **options)
    elif lookup({"sghmc": sghmc, "sgld": sgld}, kernel, "kernel") is sgld:
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

    settings = {
        "name": "cyclical",
        "kernel": dict(base.settings) if callable(kernel) else kernel,
        "step_size": step_size,
        "friction": describe(friction),
        "cycle_length": cycle_length,
        "exploration_ratio": exploration_ratio,
        "temperature": temperature,
        "draws_per_cycle": cycle.draws,
    }
    return base._replace(collect=cycle.ends_in_draw, settings=settings)
