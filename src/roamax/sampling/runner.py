"""The runner: compiled segments between which the host keeps draws, writes checkpoints and shows progress."""

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import runs
from roamax.errors import DivergenceError, InputError, NumDataWarning, check, finite, shown, whole
from roamax.host import files
from roamax.host.interrupts import noted_interrupts
from roamax.host.machine import check_not_forked
from roamax.host.progress import Report, progress_bar
from roamax.numerics import trees
from roamax.numerics.quick import jit_quickly
from roamax.runs import Checkpoint, numbered_leaves
from roamax.sampling.batches import BatchSource, batch_source
from roamax.sampling.chains import ChainKeys, Chains, chain_keys
from roamax.sampling.draws import Draws
from roamax.sampling.statistics import StatisticsLog
from roamax.sampling.stores import FolderStore, MemoryStore, Store
from roamax.types import Key, NoData, Params, Sampler

CHECKPOINT_SECONDS = 30.0
SEGMENT_SECONDS = 0.5
"""The target duration of a segment: short enough for a live progress bar, long enough for little overhead."""
ADVICE = "Try a smaller step size, and look for labels or inputs that make the likelihood infinite."
MOST_DRAWS = 10**7
"""Draws per chain, each of which is a file."""
BURN_IN_PARTS = 50
"""Statistics of the steps before the first draw are kept at the ends of this many parts."""
HOPELESS_STEPS = 10**7
"""A sampler that allows no draw within this many steps never will."""
ADDED = ("num_data", "programs", "test")
"""Arguments in `config.json` that runs of earlier versions lack."""


def sample(
    key: Key,
    sampler: Sampler,
    init_position: Params | Callable[[Key], Params] | Draws,
    data: Any = None,
    *,
    num_samples: int,
    batch_size: int | None = None,
    burn_in: int = 0,
    thinning: int = 1,
    num_chains: int = 1,
    replacement: bool = False,
    out: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Draws:
    """Run chains and collect draws.

    After `burn_in` steps every `thinning`-th position is kept. A sampler that chooses its draws itself (`cyclical`: one
    per cycle, `ensemble`: one per member) needs neither; `hmc` yields none while it adapts.

    Args:
        key: The key of the whole run: it determines where chains start, their batches and their noise.
        sampler: The sampler.
        init_position: A pytree of arrays from which all chains start, or a function that returns one, called with a
            different key per chain, or the `Draws` of as many chains, each of which resumes from its last draw.
        data: A pytree of arrays with a common leading length (memory-mapped files are streamed), or a function of the
            step that returns a batch, or an iterator of batches (which cannot be resumed exactly), or None for a
            posterior made by `Posterior.from_log_density`.
        num_samples: The number of draws per chain.
        batch_size: The number of examples per step; None means all data.
        burn_in: The number of steps before the first draw may be taken.
        thinning: The number of steps per draw.
        num_chains: The number of chains; they run in parallel, spread over the local devices if there are several.
        replacement: Whether batches are drawn with replacement instead of from shuffled epochs.
        out: A folder for the run. Every draw is written as it is taken, the state every `checkpoint_seconds`; calling
            again with the same arguments resumes where the run stopped, bit for bit. `num_samples` may be any number
            that is not less than the draws in the folder.
        about: Further arguments of the run, ready for JSON; they are kept in the folder's `config.json`, and a resumed
            run must have the same.
        progress: Whether to show a progress bar; None shows it on a terminal only.
        checkpoint_seconds: The time between two checkpoints.

    Returns:
        The draws, in memory or in `out`.

    Raises:
        DivergenceError: A chain is no longer finite. The error's `draws` are those so far.
        KeyboardInterrupt: Ctrl-C, between two segments; with `out` the state is written first, and nothing is lost.
    """
    check_not_forked()
    num_samples, num_chains = whole(num_samples, "num_samples"), whole(num_chains, "num_chains")
    burn_in, thinning = whole(burn_in, "burn_in", 0), whole(thinning, "thinning")
    check(num_samples <= MOST_DRAWS, "num_samples", f"be at most {MOST_DRAWS}", num_samples)
    steps = burn_in + num_samples * thinning
    check(steps < 2**31, "burn_in", "be so that the run has less than 2**31 steps, which JAX counts in 32 bits", steps)
    batch_size = None if batch_size is None else whole(batch_size, "batch_size")
    data = NoData(np.zeros((1, 0), np.float32)) if data is None else trees.arrays_of(data)
    finite(checkpoint_seconds, "checkpoint_seconds", least=0)
    keys = chain_keys(key, num_chains)
    positions = _initial_positions(init_position, keys.position)
    states = jax.vmap(sampler.init)(keys.state, positions)
    run = _Run(sampler, keys, plan_draws(sampler, num_samples, burn_in, thinning), checkpoint_seconds, progress)
    source = batch_source(data, batch_size, run.draw_steps[-1], replacement=replacement, sweeps=sampler.sweeps)
    _warn_of_num_data(sampler, data, batch_size)
    if out is None:
        return run(states, source, MemoryStore(num_chains), StatisticsLog(), None)
    like = trees.at(positions, 0)
    _check_names(like)
    files.check_storable(numbered_leaves(states), "sampler.init")
    is_caller_made = callable(data) or isinstance(data, Iterator)
    config = {
        "key": jax.random.key_data(key).tolist() if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key.tolist(),
        "sampler": dict(sampler.settings),
        "num_data": None if sampler.posterior is None else sampler.posterior.num_data,
        "programs": runs.programs(sampler, like, source.example()),
        "init_position": runs.fingerprint(positions),
        "data": "batches made by the caller" if is_caller_made else runs.fingerprint(data),
        "batch_size": batch_size,
        "burn_in": burn_in,
        "thinning": thinning,
        "num_chains": num_chains,
        "num_samples": num_samples,
        "replacement": replacement,
        **dict(about or {}),
    }
    config, folder = _plain(config, about), Path(out)
    with runs.claimed(folder, partial(_settle, folder, config), grows="num_samples") as identity:
        store = FolderStore.to_write(folder, num_chains, like, run.draw_steps, identity)
        return run(states, source, store, StatisticsLog(folder), _StateFolder(folder / "state", identity))


def _settle(folder: Path, config: Mapping[str, Any], written: dict[str, Any] | None) -> Mapping[str, Any]:
    """Return the `config` to write in `folder`, where `written` is; raise an `InputError` if that is another run's."""
    if written is None:
        return config
    before = _in_todays_words(config, written)
    # A run may end earlier than planned, but not before the draws that it has.
    drawn = len(FolderStore(folder).steps) if FolderStore.is_begun(folder) else 0
    if config["num_samples"] != written.get("num_samples"):
        before |= {"num_samples": drawn}
    before.pop("run", None)
    known, now = before.pop("programs", {}), dict(config["programs"])
    if known.get("traced_by") == now["traced_by"]:
        for name in known.keys() | now.keys():
            if known.get(name) != now.get(name):
                raise runs.other_run(folder, f"whose `{name}` computes something else")
    # Runs of earlier versions do not know what was added since.
    compared = {name: value for name, value in config.items() if name in before or name not in ADDED}
    compared.pop("programs", None)
    runs.check_same(folder, before, compared, may_grow=("num_samples",))
    return {**written, "num_samples": config["num_samples"]} if "run" in written else config


def _plain(config: Mapping[str, Any], about: Any) -> dict[str, Any]:
    """Return a configuration as it will be read back: tuples as lists, NumPy's numbers as Python's, NaN as None."""
    try:
        return files.as_json(config)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`about` must hold text, numbers, lists and dictionaries only; got {shown(about)}."
        ) from error


def _in_todays_words(config: Mapping[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """Return an older configuration as it would be written today, for a run with the arguments of `config`.

    `cyclical` used to take every `thinning`-th step of its sampling phases as a draw, counted from the end of burn-in.
    """
    now, before, thinning = config["sampler"], written.get("sampler"), written.get("thinning")
    if now.get("name") != "cyclical" or not isinstance(before, dict) or "draws_per_cycle" in before:
        return written
    length, exploration = now["cycle_length"], round(now["exploration_ratio"] * now["cycle_length"])
    sampling, sampled = length - exploration, max(0, config["burn_in"] % length - exploration)
    if not isinstance(thinning, int) or thinning < 1 or sampling % thinning or sampled % thinning:
        return {**written, "sampler": {**before, "draws_per_cycle": f"counted across cycles, by thinning={thinning}"}}
    return {**written, "sampler": {**before, "draws_per_cycle": sampling // thinning}, "thinning": 1}


def plan_draws(sampler: Sampler, num_samples: int, burn_in: int = 0, thinning: int = 1) -> list[int]:
    """Return the number of steps before each draw; the last is the length of the run."""
    if sampler.collect is None:
        return [burn_in + thinning * (i + 1) for i in range(num_samples)]
    steps, allowed, step, last = [], 0, burn_in, burn_in
    while len(steps) < num_samples:
        step += 1
        if sampler.collect(step):
            allowed, last = allowed + 1, step
            if allowed % thinning == 0:
                steps.append(step)
        if step - last > HOPELESS_STEPS:
            raise InputError(f"`sampler` must allow draws; got none in {HOPELESS_STEPS} steps after step {last}.")
    return steps


class _StateFolder(NamedTuple):
    """Where a run keeps its checkpoint, and the run's identity."""

    folder: Path
    run: str


class _Run(NamedTuple):
    """One call of `sample`: the loop on the host."""

    sampler: Sampler
    keys: ChainKeys
    draw_steps: list[int]
    checkpoint_seconds: float
    progress: bool | None

    def __call__(
        self, states: Any, source: BatchSource, store: Store, log: StatisticsLog, kept: "_StateFolder | None"
    ) -> Draws:
        """Run from `states`, or from the checkpoint in `kept`, to the last draw."""
        start = Checkpoint(states, 0, 0.0)
        if kept is not None:
            start = runs.load_checkpoint(kept.folder, states) or start
        end = self.draw_steps[-1]
        if start.step < end:
            chains = Chains(self.sampler, self.keys, start.state, source)
            title = self.sampler.settings.get("name", "sampling")
            with progress_bar(title, end, start.step, self.progress) as report, noted_interrupts() as interrupted:
                self._loop(chains, start, store, log, kept, report, interrupted)
        return Draws.of_run(store, log)

    @property
    def _burn_in_steps(self) -> set[int]:
        """The steps before the first draw at which statistics are kept."""
        first = self.draw_steps[0]
        return {first * part // BURN_IN_PARTS for part in range(1, BURN_IN_PARTS)} - {0}

    def _loop(
        self,
        chains: Chains,
        start: Checkpoint,
        store: Store,
        log: StatisticsLog,
        kept: "_StateFolder | None",
        report: Report,
        interrupted: Callable[[], bool],
    ) -> None:
        draw_steps = set(self.draw_steps)
        pending = deque(step for step in sorted(draw_steps | self._burn_in_steps) if step > start.step)
        step, length = start.step, 1
        saved_at = time.monotonic()
        seconds, used = start.seconds, start.cpu_seconds
        while pending:
            begun, begun_cpu = time.monotonic(), time.process_time()
            stop = chains.advance(step, min(pending[0], step + length))
            diverged = chains.divergence(stop)
            if diverged:
                raise DivergenceError(f"{diverged} {ADVICE} {len(store.steps)} draws per chain were collected before.",
                                      Draws.of_run(store, log))  # fmt: skip
            taken = time.monotonic() - begun
            if step > start.step:  # The first segment compiles the step.
                seconds, used = seconds + taken, used + time.process_time() - begun_cpu
            length = stop - step + 1 if taken > SEGMENT_SECONDS else length * 2
            # The clock may stand still, as when a virtual machine is suspended.
            rate = (stop - step) / max(taken, 1e-9)
            step = stop
            info = chains.info
            if step == pending[0]:
                log.add(step, info)
                if step in draw_steps:
                    store.add(chains.positions, step)
                pending.popleft()
            stops = interrupted()
            is_due = stops or time.monotonic() - saved_at > self.checkpoint_seconds
            if kept is not None and (is_due or not pending):
                log.sync()
                checkpoint = Checkpoint(chains.states, step, seconds, used)
                runs.save_checkpoint(kept.folder, checkpoint, kept.run, len(store.steps))
                saved_at = time.monotonic()
            if stops:
                raise KeyboardInterrupt
            report(step, f"energy {float(np.mean(info.energy)):.5g} · {rate:,.0f} steps/s")


def _check_names(position: Params) -> None:
    named = trees.named_leaves(position)
    count = len(jax.tree.leaves(position))
    check(len(named) == count, "init_position", f"have a name of its own for each of its {count} leaves", len(named))
    files.check_storable(named, "init_position")


def _warn_of_num_data(sampler: Sampler, data: Any, batch_size: int | None) -> None:
    if sampler.posterior is None or callable(data) or isinstance(data, Iterator | NoData):
        return
    rows, num_data = trees.leading_length(data, "data"), sampler.posterior.num_data
    # One that is less than a batch is an error.
    if num_data != rows and num_data >= (batch_size or rows):
        message = (
            f"`num_data` of the posterior is {num_data}, but `data` has {rows} rows: each counts {num_data / rows:.3g} "
            "times. If that is meant, ignore roamax.errors.NumDataWarning."
        )
        warnings.warn(message, NumDataWarning, stacklevel=3)


def _drawing(init: Callable[[Key], Params]) -> Callable[[Key], Params]:
    """Return the compiled function that draws a position per key: operation by operation, it is many small programs."""
    try:
        return _compiled_drawing(init)
    except TypeError:  # Not hashable.
        return jax.vmap(init)


@lru_cache(maxsize=64)
def _compiled_drawing(init: Callable[[Key], Params]) -> Callable[[Key], Params]:
    return jit_quickly(jax.vmap(init), floats=True)


def _initial_positions(init_position: Params | Callable[[Key], Params] | Draws, keys: Key) -> Params:
    if isinstance(init_position, Draws):
        chains = init_position.num_chains
        check(chains == len(keys), "num_chains", f"be that of the draws to resume from, {chains}", len(keys))
        check(init_position.num_samples > 0, "init_position", "hold at least one draw", "none")
        last = [init_position[chain, init_position.num_samples - 1] for chain in range(chains)]
        positions = jax.tree.map(jnp.asarray, trees.stack(last))
    elif callable(init_position):
        positions = _drawing(init_position)(keys)
    else:
        positions = jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.asarray(leaf), (len(keys), *jnp.shape(leaf))), init_position
        )
    named = trees.named_leaves(positions)
    check(len(named) > 0, "init_position", "hold at least one array", "an empty tree")
    for name, leaf in named.items():
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        check(is_float, "init_position", "hold floating-point arrays only", f"{leaf.dtype} at {name!r}")
        check(bool(np.isfinite(leaf).all()), "init_position", "be finite", f"a NaN or an infinity at {name!r}")
    return positions
