"""The outer loop: Adam on the meta-gradient, with validation on fixed problems; resumes after a kill at any moment."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from roamax import runs
from roamax import tasks as task_sets
from roamax.errors import FileError, check
from roamax.host.progress import Report, progress_bar
from roamax.meta import checkpoint, folder, log
from roamax.meta.checkpoint import TrainState
from roamax.meta.config import TrainConfig
from roamax.meta.engines import Engine, LocalEngine
from roamax.meta.families import initial_weights, make_family
from roamax.meta.jobs import VALIDATION, Job, Result, draw_problem, eligible
from roamax.meta.outer import Estimate, estimate, new_slots, outer_optimizer
from roamax.numerics import trees
from roamax.tasks import TaskDistribution
from roamax.types import Key, MetaParams

SAVE_SECONDS = 2.0
"""The time between checkpoints, which a kill may cost: a checkpoint is small, but some disks are slow."""


class Trained(NamedTuple):
    """The weights with the best validation loss, that loss, and the folder of the run."""

    meta_params: MetaParams
    loss: float
    out: Path


def train(
    config: TrainConfig,
    out: str | Path,
    *,
    tasks: TaskDistribution | None = None,
    engine: Callable[[TrainConfig, TaskDistribution], Engine] = LocalEngine,
    show: bool | None = None,
) -> Trained:
    """Meta-train a sampler. Called again with the same `out`, it resumes where it stopped.

    The meta-parameters are bit-identical, however often the run was interrupted. A finished run resumes if its last
    stage is given more outer steps, or if stages are added.

    Args:
        config: The settings of the run.
        out: The run folder.
        tasks: The tasks to train on; None for the distribution that `config.tasks` names.
        engine: A function of the config and the tasks that returns the engine to run jobs on.
        show: Whether to show a progress bar; None shows it on a terminal only.

    Returns:
        The weights with the best validation loss.
    """
    out = Path(out)
    distribution = task_sets.get(config.tasks) if tasks is None else tasks
    parts = {f"stages.{number}.only": stage.only for number, stage in enumerate(config.stages)}
    for argument, part in {**parts, "valid_only": config.valid_only}.items():
        check(len(eligible(part, distribution.names())) > 0, argument, "be part of the name of a task", repr(part))
    tensors = trees.named_leaves(jax.eval_shape(make_family(config, config.step_size).init, jax.random.key(0)))
    for number, stage in enumerate(config.stages):
        known = any(stage.layers in name for name in tensors)
        check(known, f"stages.{number}.layers", f"be part of one of {', '.join(tensors)}", repr(stage.layers))
    keys = _Keys(*jax.random.split(jax.random.key(config.seed), len(_Keys._fields)))
    weights = initial_weights(config, make_family(config, config.step_size), keys.weights)
    settle = partial(folder.settle, out, config, distribution)
    with (
        runs.claimed(out, settle, grows="stages") as identity,
        closing(engine(config, distribution)) as running,
    ):
        state = _Run(config, out, identity, distribution, running, keys, weights).to_the_end(show)
    return Trained(state.best, state.best_loss, out)


class _Keys(NamedTuple):
    weights: Key
    steps: Key
    validation: Key


class _Run:
    """A run in a folder that it has claimed."""

    def __init__(
        self,
        config: TrainConfig,
        out: Path,
        identity: str,
        tasks: TaskDistribution,
        engine: Engine,
        keys: _Keys,
        weights: MetaParams,
    ):
        self.config = config
        self.out = out
        self.identity = identity
        self.tasks = tasks
        self.engine = engine
        self.keys = keys
        self.weights = weights
        self.report: Report = lambda steps, note: None
        self.met: set[tuple[int, int]] = set()

    def to_the_end(self, show: bool | None) -> TrainState:
        """Run the remaining outer steps, and write the summary and the plot."""
        state = self._resume()
        total, done = self.config.outer_steps, 0 if state is None else state.step
        journal = log.Log(self.out / "log.csv", -1 if state is None else done)
        with closing(journal), progress_bar("meta-train", total, done, show) as self.report:
            if state is None:
                state = self._begin(journal)
                self._save(state, journal)
            saved = time.monotonic()
            while state.step < total:
                state = self._outer_step(state, journal)
                if state.step == total or time.monotonic() > saved + SAVE_SECONDS:
                    self._save(state, journal)
                    saved = time.monotonic()
        folder.write_results(self.out, self.config, state)
        log.plot(self.out / "log.csv", self.out / "log.png")
        return state

    def _resume(self) -> TrainState | None:
        place = self.out / "state"
        pointer = checkpoint.read_pointer(place)
        if pointer is None:
            return None
        runs.check_identity(place / "checkpoint.json", pointer.get("run"), self.out)
        if pointer["step"] > self.config.outer_steps:
            raise FileError(f"{place / 'checkpoint.json'} is damaged: {pointer['step']} steps are more than the run's.")
        stage, _ = self.config.stage_at(max(0, pointer["step"] - 1))
        return checkpoint.load(place, pointer, self.weights, outer_optimizer(self.config, stage).init(self.weights))

    def _begin(self, journal: log.Log) -> TrainState:
        weights = self.weights
        began = time.monotonic()
        loss = self._validation_loss(weights, 0)
        seconds = time.monotonic() - began
        journal.add(log.Row(0, 0, "", "", loss, "", 0, 0, round(seconds, 2), 0.0, ""))
        return TrainState(0, weights, outer_optimizer(self.config, 0).init(weights), weights, loss, (), 0, seconds)

    def _outer_step(self, state: TrainState, journal: log.Log) -> TrainState:
        began = time.monotonic()
        number, begin = self.config.stage_at(state.step)
        if state.step == begin:
            # Gradients of another estimator have another scale, for which Adam's old averages would be wrong.
            optimizer = outer_optimizer(self.config, number).init(state.meta_params)
            state = state._replace(optimizer=optimizer, slots=new_slots(self.config.stages[number], begin))
        made = estimate(
            self._run_jobs, state.meta_params, self.config, self.tasks.names(), self.keys.steps, state.step, state.slots
        )
        state, norm = self._updated(state, number, made)
        validation = self._validation_loss(state.meta_params, state.step) if self._is_time_to_validate(state) else None
        if validation is not None and validation < state.best_loss:
            state = state._replace(best=state.meta_params, best_loss=validation)
        state = state._replace(seconds=state.seconds + time.monotonic() - began)
        journal.add(self._row(state, number, made, norm, validation))
        self.report(state.step, f"loss {made.loss:.4f}, best validation {state.best_loss:.4f}")
        return state

    def _updated(self, state: TrainState, stage: int, made: Estimate) -> tuple[TrainState, float | None]:
        counted = state._replace(
            step=state.step + 1, slots=made.slots, inner_gradients=state.inner_gradients + made.inner_gradients
        )
        if made.gradient is None:
            return counted, None
        norm = float(np.sqrt(trees.squared_norm(made.gradient)))
        update = outer_optimizer(self.config, stage).update
        meta_params, optimizer = update(state.meta_params, state.optimizer, made.gradient)
        return counted._replace(meta_params=meta_params, optimizer=optimizer), norm

    def _row(
        self, state: TrainState, stage: int, made: Estimate, norm: float | None, validation: float | None
    ) -> log.Row:
        return log.Row(
            step=state.step,
            stage=stage,
            estimator=self.config.stages[stage].estimator,
            loss="" if math.isnan(made.loss) else made.loss,
            validation="" if validation is None else validation,
            gradient_norm="" if norm is None else norm,
            bad=made.bad,
            inner_gradients=state.inner_gradients,
            seconds=round(state.seconds, 2),
            compile_seconds=round(made.compile_seconds, 2),
            tasks=" ".join(self.tasks[task].name for task in made.tasks),
        )

    def _is_time_to_validate(self, state: TrainState) -> bool:
        return state.step % self.config.valid_every == 0 or state.step == self.config.outer_steps

    def _validation_loss(self, meta_params: MetaParams, step: int) -> float:
        """Return the mean loss over fixed problems, where divergence counts as `loss_ceiling`."""
        self.report(step, "validating")
        choice = eligible(self.config.valid_only, self.tasks.names())
        drawn = [
            draw_problem(self.keys.validation, problem, problem, len(choice))
            for problem in range(self.config.valid_problems)
        ]
        jobs = [Job(VALIDATION, choice[int(task)], np.asarray(key)) for task, key in drawn]
        losses = [result.loss for result in self._run_jobs(meta_params, jobs)]
        ceiling = self.config.loss_ceiling
        return float(np.mean([min(loss, ceiling) if math.isfinite(loss) else ceiling for loss in losses]))

    def _run_jobs(self, meta_params: MetaParams, jobs: Sequence[Job]) -> list[Result]:
        new = {(job.stage, job.task) for job in jobs} - self.met
        if new:
            names = ", ".join(self.tasks[task].name for _, task in sorted(new))
            self.report(None, f"compiling {names}")
            self.met |= new
        return self.engine.run(meta_params, jobs)

    def _save(self, state: TrainState, journal: log.Log) -> None:
        journal.sync()
        folder.write_weights(self.out, self.config, self.tasks, state)
        checkpoint.save(self.out / "state", state, self.identity)
