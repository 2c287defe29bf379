"""The interface of an estimator of the meta-gradient."""

from collections.abc import Sequence
from typing import Any, Protocol

import jax

from roamax.meta.config import Stage
from roamax.meta.inner import Unroll
from roamax.meta.jobs import Job, Result
from roamax.types import Key, MetaParams


class Estimator(Protocol):
    """An estimator of the gradient of the loss with respect to the meta-parameters, from groups of unrolls.

    Workers call `perturbed` and `advance` for each job; `gradient` is called once per group, where the results are.
    """

    signs: tuple[int, ...]
    """The sign of the perturbation, 0 for none, of each unroll in a group."""
    cost: int
    """The cost per step of an unroll, in gradient evaluations of the inner problem."""

    def perturbed(self, meta_params: MetaParams, stage: Stage, job: Job) -> MetaParams:
        """Return the meta-parameters that a job runs with; without a sign, those given."""
        ...

    def advance(
        self, unroll: Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any
    ) -> tuple[Any, jax.Array, MetaParams | None]:
        """Run one segment of an unroll, from `carry`.

        Returns:
            The carry after it, the loss there, and the gradient of the loss if this estimator computes it.
        """
        ...

    def gradient(
        self, meta_params: MetaParams, stage: Stage, jobs: Sequence[Job], results: Sequence[Result], clip_norm: float
    ) -> MetaParams | None:
        """Return the gradient from a group of jobs with finite losses, or None if it is not finite."""
        ...
