"""The chains of a run on their devices: keys, states, and checks for divergence."""

import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax.numerics import trees
from roamax.numerics.quick import jit_quickly
from roamax.sampling.batches import BatchSource
from roamax.sampling.loop import Segment, segment
from roamax.types import Info, Key, Sampler


class ChainKeys(NamedTuple):
    """For each purpose, one key per chain along a leading axis."""

    position: Key
    state: Key
    data: Key
    step: Key


@partial(jit_quickly, static_argnames="num_chains")
def chain_keys(key: Key, num_chains: int) -> ChainKeys:
    """Derive all keys of a run from its one key."""
    keys = jax.vmap(lambda chain: jax.random.fold_in(key, chain))(jnp.arange(num_chains))
    purposes = range(len(ChainKeys._fields))
    return ChainKeys(*(jax.vmap(lambda key, p=p: jax.random.fold_in(key, p))(keys) for p in purposes))


class _Group(NamedTuple):
    """Chains that run on one device, in one compiled call. A single group stays where JAX puts it: device None."""

    device: Any
    chains: slice

    @property
    def size(self) -> int:
        """The number of its chains."""
        return self.chains.stop - self.chains.start

    def place(self, tree: Any) -> Any:
        """Return a copy on the device of this group's part of a tree with chains along the leading axis."""
        # Always a copy: segments donate their states' buffers, and the caller's arrays must stay valid.
        part = trees.at(tree, self.chains)
        return jax.device_put(part, self.device, may_alias=False)


class Chains:
    """All chains of a run, advanced by compiled segments, in groups on the local devices that differ by one at most."""

    def __init__(self, sampler: Sampler, keys: ChainKeys, states: Any, source: BatchSource):
        self._groups = _groups(len(keys.step))
        self._runs = [segment(sampler.step, source.read, group.size) for group in self._groups]
        self._source, self._data_keys = source, keys.data
        self._states = [group.place(states) for group in self._groups]
        self._keys = [group.place((keys.step, keys.data)) for group in self._groups]
        self._window, self._batches = None, []
        self._ends: list[Segment] = []

    def advance(self, step: int, stop: int) -> int:
        """Run all chains from `step` to `stop`, or to the end of the window of batches; return the step reached."""
        if self._window is None or step >= self._window.stop:
            self._window = self._source.window(step, self._data_keys)
            shared, per_chain = self._window.shared, self._window.per_chain
            # Batches are only read, so a single group takes them as they are.
            is_alone = self._groups[0].device is None
            self._batches = (
                [(shared, per_chain)]
                if is_alone
                else [(jax.device_put(shared, group.device), group.place(per_chain)) for group in self._groups]
            )
        stop = int(min(stop, self._window.stop))
        steps = np.int32(self._window.start), np.int32(step), np.int32(stop)
        self._ends = [
            run(states, *keys, *batches, *steps)
            for run, states, keys, batches in zip(self._runs, self._states, self._keys, self._batches, strict=True)
        ]
        self._states = [end.states for end in self._ends]
        return stop

    @property
    def states(self) -> Any:
        """The states as host arrays, chains along the leading axis."""
        return _on_host(self._states)

    @property
    def positions(self) -> Any:
        """The positions as host arrays, chains along the leading axis."""
        return _on_host([states.position for states in self._states])

    @property
    def info(self) -> Info:
        """What each chain's last step told."""
        return _on_host([end.info for end in self._ends])

    def divergence(self, step: int) -> str | None:
        """Return a message with the first diverged chain, its step and its non-finite tensors, or None if none has."""
        bad_steps = _on_host([end.bad_steps for end in self._ends])
        finite = _on_host([end.finite for end in self._ends])
        bad = (bad_steps >= 0) | ~np.all(list(finite.values()), axis=0)
        if not bad.any():
            return None
        chain = int(np.argmax(bad))
        energy: Any = self.info.energy[chain]  # pyright: ignore[reportIndexIssue]
        step = int(bad_steps[chain]) + 1 if bad_steps[chain] >= 0 else step
        spoiled = [name.removeprefix("position/") for name, flags in finite.items() if not flags[chain]]
        what = "" if np.isfinite(energy) else f"its energy was not finite at step {step - 1} ({energy})"
        if spoiled:
            others = f" and {len(spoiled) - 1} more" if spoiled[1:] else ""
            what += f"{what and ', '}its {spoiled[0]!r}{others} was not finite after step {step}"
        return f"chain {chain} diverged: {what}."


def _groups(num_chains: int) -> list[_Group]:
    devices = jax.local_devices()[:num_chains]
    if len(devices) == 1:
        return [_Group(None, slice(0, num_chains))]
    ends = [num_chains * number // len(devices) for number in range(len(devices) + 1)]
    return [_Group(device, slice(*pair)) for device, pair in zip(devices, itertools.pairwise(ends), strict=True)]


def _on_host(parts: list[Any]) -> Any:
    """Concatenate the trees of the groups into one tree of host arrays."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)
