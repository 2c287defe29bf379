"""One record per sampler: all that the rest of the package knows of it.

From here come the samplers in `roamax`, the choices of the command line and its completion, the demo, the estimators,
the families that can be meta-trained, the methods of experiments and the lists in the documentation. Importing this
module loads no sampler and no JAX.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roamax.errors import InputError, lookup

if TYPE_CHECKING:  # What type checkers see in `roamax`.
    from roamax.samplers.cyclical import cyclical as cyclical
    from roamax.samplers.ensemble import ensemble as ensemble
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
    from roamax.samplers.psgld import psgld as psgld
    from roamax.samplers.sghmc import sghmc as sghmc
    from roamax.samplers.sgld import sgld as sgld
    from roamax.types import Sampler


class Terms(NamedTuple):
    """A run in the terms of stochastic gradient descent, from which a sampler's settings follow."""

    learning_rate: float
    """On the mean loss."""
    momentum_decay: float
    """One minus the momentum."""
    num_data: int
    steps_per_draw: int = 1
    init: Callable[[Any], Any] | None = None
    """Draws a start from a key."""


def langevin(terms: Terms) -> dict[str, Any]:
    """Return the settings of a sampler without momentum."""
    return {"step_size": terms.learning_rate / terms.num_data}


def with_momentum(terms: Terms) -> dict[str, Any]:
    """Return the settings of a sampler with momentum."""
    from roamax.schedules import from_learning_rate

    return {**from_learning_rate(terms.learning_rate, terms.momentum_decay, terms.num_data)}


def _in_cycles(terms: Terms) -> dict[str, Any]:
    return {**with_momentum(terms), "cycle_length": max(2, terms.steps_per_draw)}


def _by_members(terms: Terms) -> dict[str, Any]:
    return {
        "learning_rate": terms.learning_rate,
        "momentum": 1 - terms.momentum_decay,
        "member_steps": max(1, terms.steps_per_draw),
        "init": terms.init,
    }


class Record(NamedTuple):
    """What there is to know of a sampler."""

    name: str
    """That of its function, and of the sampler on the command line."""
    module: str
    """Where the function is."""
    label: str
    """Its name in tables."""
    summary: str
    learning_rates: tuple[float, float] | None = None
    """The defaults for classification and for regression; None where its steps are not in those terms."""
    settings: Callable[[Terms], dict[str, Any]] = langevin
    """Settings from those terms, where `learning_rates` is not None."""
    draws: Literal["step", "cycle", "member"] = "step"
    """What may end in a draw: those of cycles and members need neither burn-in nor thinning."""
    full_batch: bool = False
    """Whether it needs all data at every step."""
    family: str | None = None
    """The function, in the same module, that makes the family of a learned sampler."""
    short: str | None = None
    """Its name in the tables of the paper, where that is not `label`."""
    in_demo: bool = True

    @property
    def method(self) -> str:
        """Its name in experiments."""
        return self.short or self.label

    def load(self) -> "Callable[..., Sampler]":
        """Return the function that makes the sampler. It reads no weights from files: see `roamax.pretrained`."""
        return getattr(importlib.import_module(self.module), self.name)

    def load_family(self) -> Callable[..., Any]:
        """Return the function that makes the family of a learned sampler."""
        if self.family is None:
            raise InputError(f"`sampler` must be a learned one; got {self.name!r}.")
        return getattr(importlib.import_module(self.module), self.family)

    def learning_rate(self, regression: bool) -> float | None:
        """Return the learning rate where none is given, or None where its steps are not in those terms."""
        return None if self.learning_rates is None else self.learning_rates[regression]


# A Gaussian likelihood grows steep as its scale is learned: the learning rates of a cross-entropy diverge on it.
RECORDS: dict[str, Record] = {
    record.name: record
    for record in (
        Record("sgld", "roamax.samplers.sgld", "SGLD", "Langevin dynamics on minibatches", (0.1, 0.002)),
        Record("psgld", "roamax.samplers.psgld", "pSGLD", "SGLD, each coordinate scaled by its gradients",
               (1e-3, 1e-3)),
        Record("sghmc", "roamax.samplers.sghmc", "SGHMC", "Langevin dynamics with momentum on minibatches",
               (0.05, 0.001), with_momentum),
        Record("cyclical", "roamax.samplers.cyclical", "cyclical SGHMC", "SGHMC with warm restarts, a draw per cycle",
               (0.1, 5e-4), _in_cycles, draws="cycle", short="cSGMCMC"),
        Record("ensemble", "roamax.samplers.ensemble", "deep ensemble", "deep and snapshot ensembles, by optax",
               (0.1, 0.005), _by_members, draws="member", short="DE"),
        Record("hmc", "roamax.samplers.hmc", "HMC", "exact, on the full batch, by blackjax", full_batch=True),
        # It takes as many gradients as it likes, so that it cannot be compared at equal cost.
        Record("nuts", "roamax.samplers.hmc", "NUTS", "HMC that chooses the length of its trajectories",
               full_batch=True, in_demo=False),
        Record("l2e", "roamax.samplers.learned.l2e", "L2E", "learned kinetic-energy gradients, the paper's method",
               family="l2e_family"),
        Record("kinetic_l2e", "roamax.samplers.learned.kinetic_l2e", "Kinetic L2E", "a learned mean of the momentum",
               family="kinetic_l2e_family", in_demo=False),
        Record("precond_l2e", "roamax.samplers.learned.precond_l2e", "Precond L2E", "a learned preconditioner",
               family="precond_l2e_family", in_demo=False),
        Record("meta_sgmcmc", "roamax.samplers.learned.meta_sgmcmc", "Meta-SGMCMC", "the method of Gong et al.",
               family="meta_sgmcmc_family", in_demo=False),
    )
}  # fmt: skip


def names() -> list[str]:
    """Return the names of all samplers."""
    return list(RECORDS)


def families() -> dict[str, Record]:
    """Return the records of the learned samplers by the names of their families' functions."""
    return {record.family: record for record in RECORDS.values() if record.family is not None}


def find(name: str) -> Record:
    """Return the record of that name, or raise an `InputError` that suggests the nearest."""
    return lookup(RECORDS, name, "sampler")
