"""The interface of an estimator of the meta-gradient."""

from collections.abc import Sequence
from typing import Any, Protocol

import jax

from roamax.meta.config import Stage
from roamax.meta.inner import Unroll
from roamax.meta.jobs import Job, Result
from roamax.types import Key, MetaParams


class Estimator(Protocol):
    """Turns groups of unrolls into gradients of their loss with respect to the meta-parameters.

    Workers call `perturbed` and `advance` for each job; `gradient` is called once per group, where the results are.
    """

    signs: tuple[int, ...]
    """One unroll of a group for each: the sign of its perturbation, 0 for none."""
    cost: int
    """The cost of a step of an unroll, in evaluations of the gradient of the inner problem."""

    def perturbed(self, meta_params: MetaParams, stage: Stage, job: Job) -> MetaParams:
        """Return the meta-parameters that a job runs with; a job without a sign has those that are given."""
        ...

    def advance(
        self, unroll: Unroll, meta_params: MetaParams, key: Key, data: Any, carry: Any
    ) -> tuple[Any, jax.Array, MetaParams | None]:
        """Run one segment of an unroll, from `carry`.

        Returns:
            The carry after it, the loss there, and the gradient of the loss where this estimator takes it.
        """
        ...

    def gradient(
        self, meta_params: MetaParams, stage: Stage, jobs: Sequence[Job], results: Sequence[Result], clip_norm: float
    ) -> MetaParams | None:
        """Return the gradient that a group of jobs with finite losses gives, or None where it is not finite."""
        ...
