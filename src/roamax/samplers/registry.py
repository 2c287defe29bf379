"""One record per sampler, with all that the rest of the package knows about it.

The samplers in `roamax`, the choices and completions of the command line, the demo, the estimators, the families for
meta-training, the methods of experiments and the lists in the documentation all come from here. Importing this module
imports neither a sampler nor JAX.
"""

import importlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roamax.errors import InputError, lookup

if TYPE_CHECKING:  # For type checkers: these names in `roamax`.
    from roamax.samplers.cyclical import cyclical as cyclical
    from roamax.samplers.ensemble import ensemble as ensemble
    from roamax.samplers.entropy_mcmc import entropy_mcmc as entropy_mcmc
    from roamax.samplers.hmc import hmc as hmc
    from roamax.samplers.hmc import nuts as nuts
    from roamax.samplers.learned.kinetic_l2e import kinetic_l2e as kinetic_l2e
    from roamax.samplers.learned.kinetic_l2e import kinetic_l2e_family as kinetic_l2e_family
    from roamax.samplers.learned.l2e import l2e as l2e
    from roamax.samplers.learned.l2e import l2e_family as l2e_family
    from roamax.samplers.learned.meta_sgmcmc import meta_sgmcmc as meta_sgmcmc
    from roamax.samplers.learned.meta_sgmcmc import meta_sgmcmc_family as meta_sgmcmc_family
    from roamax.samplers.learned.precond_l2e import precond_l2e as precond_l2e
    from roamax.samplers.learned.precond_l2e import precond_l2e_family as precond_l2e_family
    from roamax.samplers.learned.roam import roam as roam
    from roamax.samplers.learned.roam import roam_family as roam_family
    from roamax.samplers.microcanonical import mile as mile
    from roamax.samplers.microcanonical import smile as smile
    from roamax.samplers.psgld import psgld as psgld
    from roamax.samplers.px_sghmc import px_sghmc as px_sghmc
    from roamax.samplers.sa_sgld import sa_sgld as sa_sgld
    from roamax.samplers.sghmc import sghmc as sghmc
    from roamax.samplers.sgld import sgld as sgld
    from roamax.samplers.sgnht import sgnht as sgnht
    from roamax.samplers.sms_ubu import sms_ubu as sms_ubu
    from roamax.types import Sampler


class Terms(NamedTuple):
    """A run in the terms of SGD, from which a sampler's settings are derived."""

    learning_rate: float
    """The learning rate on the mean loss."""
    momentum_decay: float
    """One minus the momentum."""
    num_data: int
    steps_per_draw: int = 1
    init: Callable[[Any], Any] | None = None
    """A function that draws an initial position from a key."""


class Run(NamedTuple):
    """The facts that the cycles of a run are chosen by."""

    num_steps: int
    num_draws: int
    """The draws that the cycles make together."""
    num_data: int
    batch_size: int
    parameters: int
    """The number of parameters."""
    regression: bool = False


def langevin(terms: Terms) -> dict[str, Any]:
    """Return the settings for a sampler without momentum."""
    return {"step_size": terms.learning_rate / terms.num_data}


def with_momentum(terms: Terms) -> dict[str, Any]:
    """Return the settings for a sampler with momentum."""
    from roamax.schedules import from_learning_rate

    return {**from_learning_rate(terms.learning_rate, terms.momentum_decay, terms.num_data)}


EPOCHS_PER_START = 10
"""The passes through the data of a start of `roam`: in more of them networks overfit (training/roam.md, section 29)."""
STEPS_PER_START = {False: (200, 5000), True: (2000, 5000)}
"""The fewest and the most steps of a start of `roam`, in classification and in regression, as near as cycles allow."""


def _start_of_roam(run: Run, cycle_length: int) -> int:
    """Return the steps of a start; all, if the chain reaches equilibrium in cycles of the given length."""
    from roamax.samplers.learned._roam_plan import Sizes

    if Sizes(run.num_data, run.batch_size, run.parameters, min(cycle_length, 2**31)).heat > 0:
        return run.num_steps
    fewest, most = STEPS_PER_START[run.regression]
    return min(most, max(fewest, EPOCHS_PER_START * run.num_data // run.batch_size))


def _by_members(terms: Terms) -> dict[str, Any]:
    return {
        "learning_rate": terms.learning_rate,
        "momentum": 1 - terms.momentum_decay,
        "member_steps": max(1, terms.steps_per_draw),
        "init": terms.init,
    }


class Record(NamedTuple):
    """The facts about one sampler."""

    name: str
    """The name of its function, and of the sampler on the command line."""
    module: str
    """The module of that function."""
    label: str
    """Its name in tables."""
    summary: str
    learning_rates: tuple[float, float] | None = None
    """The defaults for classification and regression; None if it does not take a learning rate."""
    settings: Callable[[Terms], dict[str, Any]] = langevin
    """The settings for given terms, if `learning_rates` is not None."""
    draws: Literal["step", "cycle", "member"] = "step"
    """What ends in a draw; cycles and members need neither burn-in nor thinning. With "cycle", it takes a
    `cycle_length`."""
    shortest_cycle: int = 1
    """The steps below which fewer and longer cycles with several draws each are better than one draw per cycle."""
    start_steps: Callable[[Run, int], int] | None = None
    """The steps after which a run in cycles of a given length starts anew; None if it never does. Otherwise it takes
    `cycles_per_start`."""
    full_batch: bool = False
    """Whether each step needs all data."""
    family: str | None = None
    """The function in the same module that returns the family of a learned sampler."""
    short: str | None = None
    """Its name in the paper's tables, if that is not `label`."""
    in_demo: bool = True

    @property
    def method(self) -> str:
        """Its name in experiments."""
        return self.short or self.label

    def load(self) -> "Callable[..., Sampler]":
        """Return the function that builds the sampler. It does not read weights files: see `roamax.pretrained`."""
        return getattr(importlib.import_module(self.module), self.name)

    def load_family(self) -> Callable[..., Any]:
        """Return the function that builds the family of a learned sampler."""
        if self.family is None:
            raise InputError(f"`sampler` must be a learned one; got {self.name!r}.")
        return getattr(importlib.import_module(self.module), self.family)

    def cycles(self, run: Run) -> dict[str, int]:
        """Return settings for a run in cycles: one draw per cycle, more if cycles would be too short.

        Args:
            run: The run, of whose steps the cycles take as many as they can.

        Returns:
            `cycle_length`, `draws_per_cycle` if that is not 1, and `cycles_per_start` if the run is long enough for
            several starts, of which there is at most one per draw.
        """
        lengths = _lengths(run)
        draws = next((draws for draws, length in lengths.items() if length >= self.shortest_cycle), max(lengths))
        start = run.num_steps if self.start_steps is None else self.start_steps(run, lengths[draws])
        if start < lengths[draws]:
            draws = min(lengths, key=lambda draws: abs(math.log(max(1, lengths[draws]) / start)))
        length, cycles = lengths[draws], run.num_draws // draws
        # With fewer than five steps, a cycle whose last tenth samples would not sample at all.
        found = {"cycle_length": max(5, length)} | ({"draws_per_cycle": draws} if draws > 1 else {})
        starts = run.num_steps // max(1, start)
        return found | ({"cycles_per_start": -(-cycles // starts)} if starts > 1 else {})

    def learning_rate(self, regression: bool) -> float | None:
        """Return the default learning rate, or None if it does not take one."""
        return None if self.learning_rates is None else self.learning_rates[regression]


def _lengths(run: Run) -> dict[int, int]:
    """Return the possible lengths of a cycle by its number of draws, the shortest first."""
    divisors = [draws for draws in range(1, run.num_draws + 1) if run.num_draws % draws == 0]
    lengths = {draws: run.num_steps // (run.num_draws // draws) for draws in divisors}
    # The last tenth of a cycle is what draws come from.
    return {draws: length for draws, length in lengths.items() if draws == 1 or draws <= length // 10}


# A Gaussian likelihood becomes steep as its scale is learned: learning rates that suit cross-entropy diverge on it.
RECORDS: dict[str, Record] = {
    record.name: record
    for record in (
        Record("sgld", "roamax.samplers.sgld", "SGLD", "Langevin dynamics on minibatches", (0.1, 0.002)),
        Record("psgld", "roamax.samplers.psgld", "pSGLD", "SGLD, each coordinate scaled by its gradients",
               (1e-3, 1e-3)),
        Record("sghmc", "roamax.samplers.sghmc", "SGHMC", "Langevin dynamics with momentum on minibatches",
               (0.05, 0.001), with_momentum),
        Record("sgnht", "roamax.samplers.sgnht", "SGNHT", "SGHMC whose friction adapts to the noise of gradients",
               (0.05, 0.001), with_momentum, in_demo=False),
        Record("sms_ubu", "roamax.samplers.sms_ubu", "SMS-UBU", "SGHMC with a bias of second order, in sweeps",
               (0.1, 0.001), with_momentum, in_demo=False),
        Record("px_sghmc", "roamax.samplers.px_sghmc", "PX-SGHMC", "SGHMC on the factors of kernels",
               (0.005, 1e-4), with_momentum, in_demo=False),
        Record("smile", "roamax.samplers.microcanonical", "SMILE", "microcanonical Langevin dynamics on minibatches",
               (0.05, 0.001), with_momentum, in_demo=False),
        Record("sa_sgld", "roamax.samplers.sa_sgld", "SA-SGLD", "SGLD, shorter steps where gradients are large",
               (0.1, 0.002), in_demo=False),
        Record("entropy_mcmc", "roamax.samplers.entropy_mcmc", "Entropy-MCMC", "SGLD tied to an anchor, for flat modes",
               (0.1, 0.002), in_demo=False),
        Record("cyclical", "roamax.samplers.cyclical", "cyclical SGHMC", "SGHMC with warm restarts, a draw per cycle",
               (0.1, 5e-4), with_momentum, draws="cycle", short="cSGMCMC"),
        Record("ensemble", "roamax.samplers.ensemble", "deep ensemble", "deep and snapshot ensembles, by optax",
               (0.1, 0.005), _by_members, draws="member", short="DE"),
        Record("hmc", "roamax.samplers.hmc", "HMC", "exact, on the full batch, by blackjax", full_batch=True),
        # It chooses its number of gradients itself, so it cannot be compared at equal cost.
        Record("nuts", "roamax.samplers.hmc", "NUTS", "HMC that chooses the length of its trajectories",
               full_batch=True, in_demo=False),
        Record("mile", "roamax.samplers.microcanonical", "MILE", "microcanonical Langevin dynamics, on the full batch",
               full_batch=True, in_demo=False),
        Record("l2e", "roamax.samplers.learned.l2e", "L2E", "learned kinetic-energy gradients, the paper's method",
               family="l2e_family"),
        Record("kinetic_l2e", "roamax.samplers.learned.kinetic_l2e", "Kinetic L2E", "a learned mean of the momentum",
               family="kinetic_l2e_family", in_demo=False),
        Record("precond_l2e", "roamax.samplers.learned.precond_l2e", "Precond L2E", "a learned preconditioner",
               family="precond_l2e_family", in_demo=False),
        Record("meta_sgmcmc", "roamax.samplers.learned.meta_sgmcmc", "Meta-SGMCMC", "the method of Gong et al.",
               family="meta_sgmcmc_family", in_demo=False),
        Record("roam", "roamax.samplers.learned.roam", "roam", "preconditioned SGHMC in cycles, nothing to tune",
               draws="cycle", shortest_cycle=2000, start_steps=_start_of_roam, family="roam_family"),
    )
}  # fmt: skip


def names() -> list[str]:
    """Return the names of all samplers."""
    return list(RECORDS)


def families() -> dict[str, Record]:
    """Return the records of the learned samplers by the names of their families' functions."""
    return {record.family: record for record in RECORDS.values() if record.family is not None}


def find(name: str) -> Record:
    """Return the record `name`, or raise an `InputError` that suggests the nearest name."""
    return lookup(RECORDS, name, "sampler")
