"""An outer step: jobs from keys, and a meta-gradient from their results.

Which estimator is at work shows in three places only: the signs of a pair's jobs, the formula that turns their
results into a gradient, and how many of a key's perturbations are in it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.meta import es, tbptt
from roamax.meta.config import Stage, TrainConfig
from roamax.meta.worker import Job, Result, split_key
from roamax.numerics import trees
from roamax.types import Key, MetaParams

Run = Callable[[MetaParams, Sequence[Job]], list[Result]]
"""What an engine does: run jobs, and give their results in order."""


class Slot(NamedTuple):
    """The unroll that a pair is in: the outer step that began it, and a carry for each member once it is under way."""

    start: int
    carries: tuple[list[Any], ...] = ()


class Estimate(NamedTuple):
    """A meta-gradient, None if no pair gave one; the mean loss; how many losses or gradients were not finite."""

    gradient: MetaParams | None
    loss: float
    bad: int
    slots: tuple[Slot, ...]
    tasks: tuple[int, ...]
    inner_gradients: int
    compile_seconds: float


def new_slots(stage: Stage, step: int) -> tuple[Slot, ...]:
    """Slots of pairs that all begin an unroll at `step`."""
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
    """The meta-gradient of outer step `step`, averaged over the pairs of its stage.

    A pair whose loss or gradient is not finite is counted and left out, and starts a new unroll.
    """
    number, begin = config.stage_at(step)
    stage = config.stages[number]
    signs = (0,) if stage.estimator == "tbptt" else (1, -1)
    choice = eligible(stage.only, task_names)
    jobs = [_jobs(stage, number, choice, key, step, pair, slot, signs) for pair, slot in enumerate(slots)]
    results = run(meta_params, [job for pair in jobs for job in pair])
    pairs = [results[i : i + len(signs)] for i in range(0, len(results), len(signs))]
    gradients, losses, after, bad = [], [], [], 0
    for pair, (members, outcome) in enumerate(zip(jobs, pairs, strict=True)):
        gradient = _gradient(config, stage, meta_params, members[0], outcome)
        if gradient is None:
            bad += 1
        else:
            gradients.append(gradient)
            losses.append(float(np.mean([min(result.loss, config.loss_ceiling) for result in outcome])))
        after.append(_next_slot(stage, pair, begin, step, slots[pair], outcome, gradient is not None))
    mean = trees.linear(*((1 / len(gradients), gradient) for gradient in gradients)) if gradients else None
    steps = stage.truncation or stage.inner_steps
    return Estimate(
        gradient=mean,
        loss=float(np.mean(losses)) if losses else math.nan,
        bad=bad,
        slots=tuple(after),
        tasks=tuple(dict.fromkeys(members[0].task for members in jobs)),
        inner_gradients=len(results) * steps * config.chains * (tbptt.COST if stage.estimator == "tbptt" else 1),
        compile_seconds=sum(result.compile_seconds for result in results),
    )


def eligible(part: str, task_names: Sequence[str]) -> list[int]:
    """The places in a task distribution of the tasks whose names contain `part`."""
    return [place for place, name in enumerate(task_names) if part in name]


@jax.jit
def draw_problem(key: Key, task_group: jax.Array, pair: jax.Array, num_tasks: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A task, the same for all pairs of one `task_group`, and the data of a key of the pair's own."""
    task_key, pair_key = jax.random.split(key)
    task = jax.random.randint(jax.random.fold_in(task_key, task_group), (), 0, num_tasks)
    return task, jax.random.key_data(jax.random.fold_in(pair_key, pair))


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


def _gradient(
    config: TrainConfig, stage: Stage, meta_params: MetaParams, job: Job, outcome: Sequence[Result]
) -> MetaParams | None:
    if not all(math.isfinite(result.loss) for result in outcome):
        return None
    if stage.estimator == "tbptt":
        gradient = trees.masked(outcome[0].gradient, stage.layers)
        norm = math.sqrt(sum(float(np.sum(np.square(leaf, dtype=np.float64))) for leaf in jax.tree.leaves(gradient)))
        # An unroll whose gradient explodes would drown the others in the mean, though it has the least to say.
        return trees.linear((min(1.0, config.clip_norm / max(norm, 1e-30)), gradient)) if math.isfinite(norm) else None
    plus, minus = (min(result.loss, config.loss_ceiling) for result in outcome)
    count = es.noise_number(stage.estimator, job.truncation) + 1
    scalars = jnp.asarray(plus - minus, float), jnp.asarray(stage.sigma, float), jnp.asarray(count, jnp.int32)
    return es.gradient(meta_params, split_key(job.key)[0], *scalars, layers=stage.layers)


def _next_slot(
    stage: Stage, pair: int, begin: int, step: int, slot: Slot, outcome: Sequence[Result], good: bool
) -> Slot:
    # Unrolls of different pairs end at different outer steps, so that every update sees all parts of an unroll.
    offset = pair * stage.truncations // stage.pairs
    ends = (step + 1 - begin + offset) % stage.truncations == 0
    if ends or not good:
        return Slot(step + 1)
    return Slot(slot.start, tuple(result.carry for result in outcome if result.carry is not None))
