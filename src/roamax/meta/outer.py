"""The outer step: jobs from keys, a meta-gradient from their results, and Adam on the clipped gradient."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax.errors import check
from roamax.meta import estimators
from roamax.meta.config import Stage, TrainConfig
from roamax.meta.jobs import Job, Result, draw_problem, eligible
from roamax.numerics import trees
from roamax.types import Key, MetaParams

Run = Callable[[MetaParams, Sequence[Job]], list[Result]]
"""An engine's `run`: takes jobs, and returns their results in order."""


class Slot(NamedTuple):
    """The current unroll of a pair: the outer step that began it, and each member's carry after the first segment."""

    start: int
    carries: tuple[list[Any], ...] = ()


class Estimate(NamedTuple):
    """A meta-gradient, None if no pair gave one; the mean loss; the number of pairs that were not finite."""

    gradient: MetaParams | None
    loss: float
    bad: int
    slots: tuple[Slot, ...]
    tasks: tuple[int, ...]
    inner_gradients: int
    compile_seconds: float


def new_slots(stage: Stage, step: int) -> tuple[Slot, ...]:
    """Return one slot per pair, each of which begins an unroll at `step`."""
    return tuple(Slot(step) for _ in range(stage.pairs))


def estimate(
    run: Run,
    meta_params: MetaParams,
    config: TrainConfig,
    task_names: Sequence[str],
    key: Key,
    step: int,
    slots: tuple[Slot, ...],
) -> Estimate:
    """Estimate the meta-gradient of outer step `step`, averaged over the pairs of its stage.

    A pair with a non-finite loss or gradient is counted, and starts a new unroll. A non-finite loss counts as
    `config.loss_ceiling`; a pair without any finite loss is left out.
    """
    number, begin = config.stage_at(step)
    stage = config.stages[number]
    estimator = estimators.get(stage.estimator)
    size, choice = len(estimator.signs), eligible(stage.only, task_names)
    pairs = [_jobs(stage, number, choice, key, step, pair, slot, estimator.signs) for pair, slot in enumerate(slots)]
    results = run(meta_params, [job for jobs in pairs for job in jobs])
    gradients, losses, after, bad = [], [], [], 0
    for pair, jobs in enumerate(pairs):
        outcome = results[pair * size : (pair + 1) * size]
        finite = [math.isfinite(result.loss) for result in outcome]
        gradient = None
        if any(finite):
            # If only one member diverged, that is evidence: it counts as the worst possible loss.
            bounded = [_bounded(result, config.loss_ceiling) for result in outcome]
            compared = [_logarithmic(result) for result in bounded] if stage.compared == "log" else bounded
            gradient = estimator.gradient(meta_params, stage, jobs, compared, config.clip_norm)
            if gradient is not None:
                gradients.append(gradient)
                losses.append(float(np.mean([result.loss for result in bounded])))
        good = all(finite) and gradient is not None
        bad += not good
        after.append(_next_slot(stage, pair, begin, step, slots[pair], outcome, good))
    mean = trees.linear(*((1 / len(gradients), gradient) for gradient in gradients)) if gradients else None
    return Estimate(
        gradient=mean,
        loss=float(np.mean(losses)) if losses else math.nan,
        bad=bad,
        slots=tuple(after),
        tasks=tuple(dict.fromkeys(jobs[0].task for jobs in pairs)),
        inner_gradients=len(results) * (stage.truncation or stage.inner_steps) * config.chains * estimator.cost,
        compile_seconds=sum(result.compile_seconds for result in results),
    )


def _jobs(
    stage: Stage, number: int, choice: Sequence[int], key: Key, step: int, pair: int, slot: Slot, signs: Sequence[int]
) -> list[Job]:
    start_key = jax.random.fold_in(key, slot.start)
    task, job_key = draw_problem(start_key, pair % stage.tasks, pair, len(choice))
    place = choice[int(task)]
    carries = slot.carries or (None,) * len(signs)
    return [
        Job(number, place, np.asarray(job_key), sign, step - slot.start, carry)
        for sign, carry in zip(signs, carries, strict=True)
    ]


def _bounded(result: Result, ceiling: float) -> Result:
    return result._replace(loss=min(result.loss, ceiling) if math.isfinite(result.loss) else ceiling)


def _logarithmic(result: Result) -> Result:
    check(result.loss > 0, "stages.compared", "be loss where a loss may be negative, as in regression", "log")
    return result._replace(loss=math.log(result.loss))


def _next_slot(
    stage: Stage, pair: int, begin: int, step: int, slot: Slot, outcome: Sequence[Result], good: bool
) -> Slot:
    # Unrolls of different pairs end at different outer steps, so that each update sees all parts of an unroll.
    offset = pair * stage.truncations // stage.pairs
    ends = (step + 1 - begin + offset) % stage.truncations == 0
    if ends or not good:
        return Slot(step + 1)
    return Slot(slot.start, tuple(result.carry for result in outcome if result.carry is not None))


class OuterOptimizer(NamedTuple):
    """An optimizer: `init(meta_params)` returns a state, `update(meta_params, state, gradient)` both after a step."""

    init: Callable[[MetaParams], Any]
    update: Callable[[MetaParams, Any, MetaParams], tuple[MetaParams, Any]]


@functools.cache
def outer_optimizer(config: TrainConfig, stage: int) -> OuterOptimizer:
    """Return the optimizer of a stage."""
    import optax

    adam = optax.adam(config.stages[stage].learning_rate, config.beta1, config.beta2)
    transform = optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)

    @jax.jit
    def update(meta_params: MetaParams, state: Any, gradient: MetaParams) -> tuple[MetaParams, Any]:
        # optax mixes integer counts and floats.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = transform.update(gradient, state)
            return optax.apply_updates(meta_params, updates), state

    return OuterOptimizer(transform.init, update)
