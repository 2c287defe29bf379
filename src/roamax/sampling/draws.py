"""Posterior draws, in memory and on disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import FileError, InputError, check
from roamax.host import files
from roamax.numerics import trees
from roamax.runs import check_tensors
from roamax.types import Params

FORMAT = 1


class Draws:
    """The draws of one or several chains, in memory or on disk.

    `draws.positions` is a pytree with leading axes (chain, draw); iterating yields single positions, draw by draw and
    chain by chain, with one at a time in memory when they are on disk. `len(draws)` is the total number of positions;
    `draws[chain, draw]` is one of them, `draws[:, 10:]` and `draws[:2]` are draws again, and nothing is copied.
    """

    def __init__(self, store: "Store"):
        self._store = store

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
        return cls(FolderStore(Path(folder) / "draws", like=like))

    def save(self, folder: str | Path) -> None:
        """Write the draws to a new folder, for `load`; draws of a run with `out` are in its folder already.

        Args:
            folder: The folder to write to.
        """
        path = Path(folder) / "draws"
        check(not path.exists(), "folder", "not hold draws yet", str(folder))
        store = FolderStore(path, self.num_chains)
        for draw, step in enumerate(self.steps):
            store.add(trees.stack(self._store.get(chain, draw) for chain in range(self.num_chains)), step)

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
        steps = self.steps
        return Draws(View([[Place(self._store, c, d) for d in draws] for c in chains], [steps[d] for d in draws]))

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
            return cls(View([row for table in tables for row in table], parts[0].steps))
        steps: list[int] = []
        for part in parts:
            steps += [step + (steps[-1] if steps else 0) for step in part.steps]
        return cls(View([[place for row in rows for place in row] for rows in zip(*tables, strict=True)], steps))

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

    def to_arviz(self) -> Any:
        """Convert to an ArviZ `InferenceData` with one variable per leaf; needs the extra `roamax[arviz]`."""
        import arviz

        posterior = {
            name.replace("/", ".") or "theta": leaf for name, leaf in trees.named_leaves(self.positions).items()
        }
        return arviz.from_dict(posterior=posterior)


class Store(Protocol):
    """A place to keep draws. All chains draw at the same steps."""

    num_chains: int
    steps: list[int]

    def add(self, positions: Params, step: int) -> None:
        """Keep one draw of every chain, a pytree with a leading chain axis."""
        ...

    def get(self, chain: int, draw: int) -> Params:
        """Return one position."""
        ...


class Place(NamedTuple):
    """Where one position is kept."""

    store: Store
    chain: int
    draw: int


class View:
    """Draws of other stores, in a new order, to be read only."""

    def __init__(self, table: list[list[Place]], steps: list[int]):
        self._table, self.steps, self.num_chains = table, steps, len(table)

    def add(self, positions: Params, step: int) -> None:
        """Refuse: the draws are those of other stores."""
        raise InputError("`draws` must be those of a run to be added to; got a part or a concatenation of others.")

    def get(self, chain: int, draw: int) -> Params:
        """Return one position."""
        place = self._table[chain][draw]
        return place.store.get(place.chain, place.draw)


class MemoryStore:
    """Draws as host arrays."""

    def __init__(self, num_chains: int):
        self.num_chains = num_chains
        self.steps: list[int] = []
        self._draws: list[Params] = []

    def add(self, positions: Params, step: int) -> None:
        """Keep one draw of every chain."""
        self._draws.append(positions)
        self.steps.append(step)

    def get(self, chain: int, draw: int) -> Params:
        """Return one position."""
        return jax.tree.map(lambda leaf: leaf[chain], self._draws[draw])


class FolderStore:
    """Draws as files, one per draw and chain, each listed with its checksum once it is fully written.

    A file that `manifest.json` does not list is ignored.
    """

    def __init__(self, folder: Path, num_chains: int | None = None, like: Params | None = None):
        self.folder = folder
        self._treedef = None if like is None else jax.tree.structure(like)
        self._like = None if like is None else trees.named_leaves(like)
        self._manifest = folder / "manifest.json"
        if num_chains is not None and not self._manifest.exists():
            files.make_folder(folder)
            self._write_manifest(num_chains, [])
        self.num_chains, self._entries = self._read_manifest()
        if num_chains not in (None, self.num_chains):
            raise FileError(f"{self._manifest} is damaged: it lists {self.num_chains} chains, not {num_chains}.")
        self.steps = [draw[0]["step"] for draw in self._entries]

    def _write_manifest(self, num_chains: int, entries: list[list[dict[str, Any]]]) -> None:
        files.write_sealed(self._manifest, {"format": FORMAT, "num_chains": num_chains, "draws": entries})

    def _read_manifest(self) -> tuple[int, list[list[dict[str, Any]]]]:
        fields = ("format", "num_chains", "draws")
        listed = files.read_sealed(self._manifest, fields)
        values: list[Any] = [listed.get(field) for field in fields]
        found, num_chains, entries = values
        if files.is_whole(found) and found != FORMAT:
            raise FileError(f"{self._manifest} has format {found}; this version reads {FORMAT}.")
        if found == FORMAT and files.is_whole(num_chains, 1) and isinstance(entries, list):
            good = all(_is_draw(draw, num_chains) for draw in entries)
            steps = [draw[0]["step"] for draw in entries] if good else []
            if good and steps == sorted(set(steps)):
                return num_chains, entries
        raise FileError(f"{self._manifest} is damaged: it is not a list of draws. Restore it, or remove the folder.")

    def add(self, positions: Params, step: int) -> None:
        """Write one draw of every chain, then list it. A draw that is already listed is left as it is."""
        if step in self.steps:
            return
        leaves = trees.named_leaves(positions)
        entry = []
        for chain in range(self.num_chains):
            content = files.pack_tensors({name: leaf[chain] for name, leaf in leaves.items()})
            name = f"draw-{len(self._entries):06d}-chain-{chain:03d}.safetensors"
            files.write_bytes(self.folder / name, content)
            entry.append({"file": name, "step": step, "sha256": files.checksum(content), "bytes": len(content)})
        entries = [*self._entries, entry]
        self._write_manifest(self.num_chains, entries)
        self._entries = entries
        self.steps.append(step)

    def get(self, chain: int, draw: int) -> Params:
        """Read one position, checked against its checksum and, where they are known, its shapes and dtypes."""
        entry = self._entries[draw][chain]
        path = self.folder / entry["file"]
        tensors = files.read_tensors(path, entry["sha256"])
        for name, tensor in tensors.items():
            if not (jnp.issubdtype(tensor.dtype, jnp.floating) and np.isfinite(tensor).all()):
                raise FileError(f"{path} is not a draw: its tensor {name!r:.80} does not hold finite numbers.")
        if self._like is None:
            # Where nothing else is known, all draws must be like the first that is read.
            self._like = {name: jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        if self._like.keys() != tensors.keys():
            raise FileError(f"{path} holds other tensors than expected: {', '.join(sorted(tensors)):.200}.")
        check_tensors(path, tensors, {name: leaf for name, leaf in self._like.items() if hasattr(leaf, "dtype")})
        if self._treedef is not None:
            return jax.tree.unflatten(self._treedef, [tensors[name] for name in self._like])
        try:
            return trees.from_named_leaves(tensors)
        except InputError as error:
            raise FileError(f"{path} is not a draw: {error}") from error


def _is_draw(draw: Any, num_chains: int) -> bool:
    """Return whether an entry of a manifest lists one file per chain, all of the same step."""
    return (
        isinstance(draw, list)
        and len(draw) == num_chains
        and all(isinstance(entry, dict) for entry in draw)
        and all(files.is_plain_name(entry.get("file")) and files.is_whole(entry.get("step"), 1) for entry in draw)
        and all(isinstance(entry.get("sha256"), str) for entry in draw)
        and len({entry["step"] for entry in draw}) == 1
    )
