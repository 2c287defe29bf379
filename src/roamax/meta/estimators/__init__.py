"""Estimators of the meta-gradient, by name: each has a module with its `ESTIMATOR`, and one entry here."""

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from roamax.meta.estimators.protocol import Estimator


class Entry(NamedTuple):
    """Facts about an estimator that a config is checked against, before JAX is loaded."""

    takes_whole_unrolls: bool
    takes_truncations: bool
    backpropagates: bool = False


ESTIMATORS = {
    "es": Entry(takes_whole_unrolls=True, takes_truncations=False),
    "pes": Entry(takes_whole_unrolls=False, takes_truncations=True),
    "nres": Entry(takes_whole_unrolls=False, takes_truncations=True),
    "tbptt": Entry(takes_whole_unrolls=True, takes_truncations=True, backpropagates=True),
}


def get(name: str) -> "Estimator":
    """Return the estimator of that name."""
    return importlib.import_module(f"{__name__}.{name}").ESTIMATOR
