"""Posterior draws, in memory and on disk."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from roamax.errors import InputError, check
from roamax.numerics import trees
from roamax.sampling.statistics import Statistics, StatisticsLog, joined
from roamax.sampling.stores import FolderStore, MemoryStore, Place, Store, View
from roamax.types import Info, Params


class Draws:
    """The draws of one or several chains, in memory or on disk.

    `draws.positions` is a pytree with leading axes (chain, draw); iterating yields single positions, draw by draw and
    chain by chain, with one at a time in memory when they are on disk. `len(draws)` is the total number of positions;
    `draws[chain, draw]` is one of them, `draws[:, 10:]` and `draws[:2]` are draws again, and nothing is copied.
    """

    def __init__(
        self, store: Store, statistics: Statistics | None = None, burn_in_statistics: Statistics | None = None
    ):
        self._store = store
        self.statistics = statistics
        """What the last step before each draw told; None if that was not kept."""
        self.burn_in_statistics = burn_in_statistics
        """The same at up to fifty steps before the first draw."""

    @classmethod
    def of_run(cls, store: Store, log: StatisticsLog) -> "Draws":
        """Return the draws of a run with its statistics."""
        return cls(store, log.of(store.steps), log.before(store.steps[0] if store.steps else float("inf")))

    @classmethod
    def from_positions(cls, positions: Params, steps: Sequence[int] | None = None) -> "Draws":
        """Make draws from arrays in memory.

        Args:
            positions: A pytree of arrays with leading axes (chain, draw).
            steps: The number of steps before each draw; 1, 2, 3, ... by default.

        Returns:
            The draws.
        """
        leaves = jax.tree.leaves(positions)
        shapes = {np.shape(leaf)[:2] for leaf in leaves}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise InputError(f"`positions` must have one pair of leading axes (chain, draw); got {sorted(shapes)}.")
        num_chains, num_samples = shapes.pop()
        store = MemoryStore(num_chains)
        for draw, step in enumerate(range(1, num_samples + 1) if steps is None else steps):
            store.add(jax.tree.map(np.asarray, trees.at(positions, np.s_[:, draw])), step)
        return cls(store)

    @classmethod
    def load(cls, folder: str | Path, like: Params | None = None) -> "Draws":
        """Open the draws of a run folder, finished or still running.

        Args:
            folder: The folder, `out` of `roamax.sample`.
            like: A pytree with the structure of a draw. Without it, draws are nested dictionaries.

        Returns:
            The draws, each of which is read, and checked against its checksum, when it is needed.
        """
        return cls.of_run(FolderStore(Path(folder), like), StatisticsLog(Path(folder)))

    def save(self, folder: str | Path) -> None:
        """Write the draws to a new folder, for `load`; draws of a run with `out` are in its folder already.

        Args:
            folder: The folder to write to.
        """
        path = Path(folder) / "draws"
        check(not path.exists(), "folder", "not hold draws yet", str(folder))
        store = FolderStore.new(Path(folder), self.num_chains)
        for draw, step in enumerate(self.steps):
            store.add(trees.stack(self._store.get(chain, draw) for chain in range(self.num_chains)), step)
        log = StatisticsLog(Path(folder))
        for kept in filter(None, (self.burn_in_statistics, self.statistics)):
            for place, step in enumerate(kept.steps.tolist()):
                told: Any = [part[:, place] for part in kept[1:]]
                log.add(step, Info(*told))
        log.sync()

    @property
    def num_chains(self) -> int:
        """The number of chains."""
        return self._store.num_chains

    @property
    def num_samples(self) -> int:
        """The number of draws per chain."""
        return len(self._store.steps)

    @property
    def steps(self) -> list[int]:
        """The number of steps before each draw."""
        return list(self._store.steps)

    def __len__(self) -> int:
        return self.num_chains * self.num_samples

    def __getitem__(self, index: Any) -> Any:
        chain, draw = index if isinstance(index, tuple) else (index, slice(None))
        try:
            chains, draws = range(self.num_chains)[chain], range(self.num_samples)[draw]
        except IndexError:
            raise IndexError(
                f"draws[{chain}, {draw}] is outside of {self.num_chains} chains and {self.num_samples} draws"
            ) from None
        if isinstance(chains, int) and isinstance(draws, int):
            return self._store.get(chains, draws)
        chains, draws = ([part] if isinstance(part, int) else part for part in (chains, draws))
        steps, rows, columns = self.steps, list(chains), list(draws)
        told, before = self.statistics, self.burn_in_statistics
        return Draws(
            View([[Place(self._store, c, d) for d in columns] for c in rows], [steps[d] for d in columns]),
            told and told.at(rows, columns),
            before and before.at(rows, slice(None)),
        )

    @classmethod
    def concatenate(cls, parts: "Sequence[Draws]", along: Literal["draws", "chains"] = "draws") -> "Draws":
        """Concatenate draws of the same parameters; nothing is copied.

        Args:
            parts: The draws.
            along: "draws" for runs of the same chains, one after the other, whose steps are counted on; "chains" for
                runs side by side, with as many draws each.

        Returns:
            The draws.
        """
        check(len(parts) > 0, "parts", "hold at least one `Draws`", "none")
        check(along in ("draws", "chains"), "along", 'be "draws" or "chains"', repr(along))
        common = {part.num_chains if along == "draws" else part.num_samples for part in parts}
        check(len(common) == 1, "parts", f"have the same number of {'chains' if along == 'draws' else 'draws'}",
              sorted(common))  # fmt: skip
        tables = [
            [[Place(part._store, c, d) for d in range(part.num_samples)] for c in range(part.num_chains)]
            for part in parts
        ]
        if along == "chains":
            told = joined([part.statistics for part in parts], axis=0)
            before = joined([part.burn_in_statistics for part in parts], axis=0)
            return cls(View([row for table in tables for row in table], parts[0].steps), told, before)
        steps: list[int] = []
        for part in parts:
            steps += [step + (steps[-1] if steps else 0) for step in part.steps]
        told = joined([part.statistics for part in parts], axis=1)
        told = told and told._replace(steps=np.asarray(steps))
        table = [[place for row in rows for place in row] for rows in zip(*tables, strict=True)]
        return cls(View(table, steps), told, parts[0].burn_in_statistics)

    def __iter__(self) -> Iterator[Params]:
        for draw in range(self.num_samples):
            for chain in range(self.num_chains):
                yield self._store.get(chain, draw)

    def __repr__(self) -> str:
        return f"Draws(num_chains={self.num_chains}, num_samples={self.num_samples})"

    @property
    def positions(self) -> Params:
        """All draws as one pytree of NumPy arrays with leading axes (chain, draw)."""
        if self.num_samples == 0:
            raise InputError("`draws` must hold at least one draw; got none.")
        chains = [
            trees.stack(self._store.get(chain, draw) for draw in range(self.num_samples))
            for chain in range(self.num_chains)
        ]
        return trees.stack(chains)

    def to_arviz(
        self,
        data: Any = None,
        *,
        log_likelihood: Callable[[Params, Any], Any] | None = None,
        predictive: Callable[[Params, Any], Any] | None = None,
    ) -> Any:
        """Convert to what ArviZ takes, with one variable per leaf; needs the extra `roamax[arviz]`.

        Args:
            data: The pair (x, y); `observed_data` holds y.
            log_likelihood: That of a posterior, `posterior.log_likelihood`: one number per example, for LOO.
            predictive: A function of a position and `data` that returns a replication of y, for predictive checks.

        Returns:
            `InferenceData` of ArviZ 0.x, a `DataTree` of 1.x: `posterior`, `sample_stats` where the run kept them, with
            those of burn-in as `warmup_sample_stats`, and `log_likelihood`, `posterior_predictive` and `observed_data`.
        """
        positions = trees.named_leaves(self.positions)
        groups: dict[str, dict[str, Any]] = {
            "posterior": {name.replace("/", ".") or "theta": leaf for name, leaf in positions.items()}
        }
        for group, kept in (("sample_stats", self.statistics), ("warmup_sample_stats", self.burn_in_statistics)):
            if kept is not None:
                groups[group] = {
                    "energy": kept.energy, "acceptance_rate": kept.acceptance, "diverging": kept.divergent,
                }  # fmt: skip
        for group, function in (("log_likelihood", log_likelihood), ("posterior_predictive", predictive)):
            if function is not None:
                check(data is not None, "data", f"be the pair (x, y) for {group}", None)
                groups[group] = {"y": self._each(jax.jit(function), data)}
        if data is not None:
            groups["observed_data"] = {"y": np.asarray(data[1])}
        return _in_arviz(groups)

    def _each(self, function: Callable[[Params, Any], Any], data: Any) -> np.ndarray:
        """Return the results of a function for each position, (chain, draw, ...)."""
        chains = range(self.num_chains)
        return np.stack(
            [[np.asarray(function(self._store.get(c, d), data)) for d in range(self.num_samples)] for c in chains]
        )


def _in_arviz(groups: dict[str, dict[str, Any]]) -> Any:
    arviz: Any = importlib.import_module("arviz")
    if int(arviz.__version__.partition(".")[0]) >= 1:
        return arviz.from_dict(groups, save_warmup=True)
    return arviz.from_dict(**groups, save_warmup=True)
