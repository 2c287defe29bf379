"""The runner: compiled segments between which the host keeps draws, writes checkpoints and shows progress."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import runs
from roamax.errors import DivergenceError, InputError, check
from roamax.host import files
from roamax.host.interrupts import noted_interrupts
from roamax.host.progress import Report, progress_bar
from roamax.numerics import trees
from roamax.sampling.batches import BatchSource, Window, batch_source
from roamax.sampling.draws import Draws, FolderStore, MemoryStore, Store
from roamax.sampling.loop import Segment, segment
from roamax.types import Key, Params, Sampler

CHECKPOINT_SECONDS = 30.0
SEGMENT_SECONDS = 0.5
"""How long a segment aims to take: often enough for a live progress bar, seldom enough not to cost."""
HOPELESS_STEPS = 10**7
"""A sampler that allows no draw within this many steps never will."""


def sample(
    key: Key,
    sampler: Sampler,
    init_position: Params | Callable[[Key], Params] | Draws,
    data: Any,
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

    After `burn_in` steps every `thinning`-th position is kept, `num_samples` of them for each chain; a sampler with a
    say in it (`cyclical`, `ensemble`, `hmc` while it adapts) counts only the steps that it allows.

    - `init_position`: a pytree of arrays where all chains start, or a function of a key that gives each its own, or
      the `Draws` of as many chains, each of which goes on from its last draw.
    - `data`: a pytree of arrays with one leading length (memory-mapped files are streamed), or a function of the step
      that returns a batch, or an iterator of batches (which cannot be resumed exactly).
    - `batch_size`: None means all data at every step. Batches come from shuffled epochs, or with `replacement`.
    - `num_chains`: chains run side by side, spread over the local devices where there are several.
    - `out`: a folder. Every draw is written as it is taken, the state every `checkpoint_seconds`; calling again with
      the same arguments goes on where it stopped, bit for bit. `num_samples` may grow.
    - `about`: what else made the run, as JSON can hold it; kept in the folder's `config.json`, and held to.
    - `progress`: None shows a bar on a terminal.

    A chain that leaves the finite numbers stops the run with a `DivergenceError` whose `draws` are those so far. Ctrl-C
    is a `KeyboardInterrupt` between two segments, with `out` after the state is written: nothing is lost.
    """
    for name, value, least in (("num_samples", num_samples, 1), ("burn_in", burn_in, 0), ("thinning", thinning, 1),
                               ("num_chains", num_chains, 1)):  # fmt: skip
        check(value == int(value) and value >= least, name, f"be a whole number >= {least}", value)
    draw_steps = plan_draws(sampler, num_samples, burn_in, thinning)
    keys = jax.vmap(lambda chain: jax.random.fold_in(key, chain))(jnp.arange(num_chains))
    positions = _initial_positions(init_position, keys)
    states = jax.vmap(sampler.init)(_purpose(keys, 1), positions)
    like = trees.at(positions, 0)

    if out is None:
        run = _Run(sampler, keys, draw_steps, MemoryStore(num_chains), None, checkpoint_seconds, progress)
        return run(states, data, batch_size, replacement)
    folder = Path(out)
    config = {
        "key": jax.random.key_data(key).tolist() if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key.tolist(),
        "sampler": dict(sampler.settings),
        "init_position": runs.fingerprint(positions),
        "data": "batches made by the caller"
        if callable(data) or isinstance(data, Iterator)
        else runs.fingerprint(data),
        "batch_size": batch_size,
        "burn_in": burn_in,
        "thinning": thinning,
        "num_chains": num_chains,
        "num_samples": num_samples,
        "replacement": replacement,
        **(about or {}),
    }
    files.make_folder(folder)
    with files.locked(folder):
        runs.claim(folder, config, may_grow=("num_samples",))
        store = FolderStore(folder / "draws", num_chains, like)
        run = _Run(sampler, keys, draw_steps, store, folder / "state", checkpoint_seconds, progress)
        return run(states, data, batch_size, replacement)


def plan_draws(sampler: Sampler, num_samples: int, burn_in: int = 0, thinning: int = 1) -> list[int]:
    """After how many steps each draw is taken. The last is the length of the run."""
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


class _Group(NamedTuple):
    """Chains that run on one device, in one compiled call."""

    device: Any
    chains: slice


class _Run(NamedTuple):
    """One call of `sample`: the loop on the host."""

    sampler: Sampler
    keys: Key
    draw_steps: list[int]
    store: Store
    state_folder: Path | None
    checkpoint_seconds: float
    progress: bool | None

    def __call__(self, states: Any, data: Any, batch_size: int | None, replacement: bool) -> Draws:
        checkpoint = None if self.state_folder is None else runs.load_checkpoint(self.state_folder, states)
        step, seconds = (0, 0.0) if checkpoint is None else (checkpoint.step, checkpoint.seconds)
        if checkpoint is not None:
            states = checkpoint.state
        end = self.draw_steps[-1]
        if step < end:
            source = batch_source(data, batch_size, end, replacement=replacement, resumed_at=step)
            title = self.sampler.settings.get("name", "sampling")
            with progress_bar(title, end, step, self.progress) as report, noted_interrupts() as interrupted:
                self._loop(states, source, step, seconds, report, interrupted)
        return Draws(self.store)

    def _loop(
        self,
        states: Any,
        source: BatchSource,
        step: int,
        seconds: float,
        report: Report,
        interrupted: Callable[[], bool],
    ) -> None:
        groups = _groups(len(self.keys))
        run_segment = segment(self.sampler.step, source.read, len(self.keys) // len(groups))
        data_keys, step_keys = _purpose(self.keys, 2), _purpose(self.keys, 3)
        parts = [_place(trees.at((states, step_keys, data_keys), g.chains), g) for g in groups]
        window, inputs = None, []
        pending = [s for s in self.draw_steps if s > step]
        length, started, saved_at = 1, time.monotonic() - seconds, time.monotonic()
        while pending:
            if window is None or step >= window.stop:
                window = source.window(step, data_keys)
                inputs = _inputs(window, groups)
            stop = int(min(pending[0], window.stop, step + length))
            begun = time.monotonic()
            ends = [
                run_segment(*part, *given, np.int32(window.start), np.int32(step), np.int32(stop))
                for part, given in zip(parts, inputs, strict=True)
            ]
            parts = [(end.states, *part[1:]) for part, end in zip(parts, ends, strict=True)]
            self._stop_if_diverged(ends, stop)
            taken = time.monotonic() - begun
            length = stop - step + 1 if taken > SEGMENT_SECONDS else length * 2
            # A clock may stand still, as when a virtual machine is suspended.
            rate = (stop - step) / max(taken, 1e-9)
            step = stop
            if step == pending[0]:
                self.store.add(_host([end.states.position for end in ends]), step)
                pending.pop(0)
            stops = interrupted()
            is_due = stops or time.monotonic() - saved_at > self.checkpoint_seconds
            if self.state_folder is not None and (is_due or not pending):
                state = _host([end.states for end in ends])
                runs.save_checkpoint(self.state_folder, runs.Checkpoint(state, step, time.monotonic() - started))
                saved_at = time.monotonic()
            if stops:
                raise KeyboardInterrupt
            report(step, f"energy {float(np.mean(ends[0].energies)):.5g} · {rate:,.0f} steps/s")

    def _stop_if_diverged(self, ends: list[Segment], step: int) -> None:
        """Raise if a chain has left the finite numbers, with its number, the step, and the tensors that it shows in."""
        bad_steps = np.concatenate([np.asarray(end.bad_steps) for end in ends])
        finite = {name: np.concatenate([end.finite[name] for end in ends]) for name in ends[0].finite}
        bad = (bad_steps >= 0) | ~np.all(list(finite.values()), axis=0)
        if not bad.any():
            return
        chain = int(np.argmax(bad))
        energy = np.concatenate([np.asarray(end.energies) for end in ends])[chain]
        step = int(bad_steps[chain]) + 1 if bad_steps[chain] >= 0 else step
        spoiled = [name.removeprefix("position/") for name, flags in finite.items() if not flags[chain]]
        what = "" if np.isfinite(energy) else f"its energy was not finite at step {step - 1} ({energy})"
        if spoiled:
            others = f" and {len(spoiled) - 1} more" if spoiled[1:] else ""
            what += f"{what and ', '}its {spoiled[0]!r}{others} was not finite after step {step}"
        kept = len(self.store.steps)
        raise DivergenceError(
            f"chain {chain} diverged: {what}. Try a smaller step size, and look for labels or inputs that make the "
            f"likelihood infinite. {kept} draws a chain were collected before.",
            Draws(self.store),
        )


def _initial_positions(init_position: Params | Callable[[Key], Params] | Draws, keys: Key) -> Params:
    if isinstance(init_position, Draws):
        chains = init_position.num_chains
        check(chains == len(keys), "num_chains", f"be that of the draws to go on from, {chains}", len(keys))
        check(init_position.num_samples > 0, "init_position", "hold at least one draw", "none")
        last = [init_position[chain, init_position.num_samples - 1] for chain in range(chains)]
        positions = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *last)
    elif callable(init_position):
        positions = jax.vmap(init_position)(_purpose(keys, 0))
    else:
        positions = jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.asarray(leaf), (len(keys), *jnp.shape(leaf))), init_position
        )
    named = trees.named_leaves(positions)
    check(len(named) > 0, "init_position", "hold at least one array", "an empty tree")
    for name, leaf in named.items():
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        check(is_float, "init_position", "hold floating-point arrays only", f"{leaf.dtype} at {name!r}")
        check(bool(jnp.all(jnp.isfinite(leaf))), "init_position", "be finite", f"a NaN or an infinity at {name!r}")
    return positions


def _purpose(keys: Key, purpose: int) -> Key:
    """One key a chain for one purpose: 0 initial position, 1 initial state, 2 data, 3 steps."""
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(keys)


def _groups(num_chains: int) -> list[_Group]:
    """Chains in equal groups on as many local devices as divide them; one group stays where JAX puts it."""
    devices = jax.local_devices()
    count = max(n for n in range(1, min(num_chains, len(devices)) + 1) if num_chains % n == 0)
    size = num_chains // count
    if count == 1:
        return [_Group(None, slice(0, num_chains))]
    return [_Group(devices[i], slice(i * size, (i + 1) * size)) for i in range(count)]


def _place(tree: Any, group: _Group) -> Any:
    # A copy in any case: segments are given their states for good, and the caller keeps his own.
    return (
        jax.tree.map(jnp.array, tree) if group.device is None else jax.device_put(tree, group.device, may_alias=False)
    )


def _inputs(window: Window, groups: list[_Group]) -> list[tuple[Any, Any]]:
    if groups[0].device is None:
        return [(window.shared, window.per_chain)]
    return [jax.device_put((window.shared, trees.at(window.per_chain, g.chains)), g.device) for g in groups]


def _host(parts: list[Any]) -> Any:
    """One tree of host arrays, all chains along the leading axis."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)
