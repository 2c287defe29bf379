"""Where draws are kept: in memory, or in the folder of a run.

draws/journal.jsonl   the draws in order, each with its step, and the checksums of its files
draws/draw-*          one safetensors file per draw and chain; one that the journal does not list does not count
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from roamax import runs
from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.numerics import trees
from roamax.runs import Journal
from roamax.types import Params

FORMAT = 2
OLD_FORMAT = 1
"""One `manifest.json` that was written anew for every draw."""


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
    """Draws as files, each listed with its checksum once it is fully written."""

    def __init__(self, run_folder: Path, like: Params | None = None):
        """Open the draws of a run to read them; `like` is a pytree with the structure of a draw."""
        self.folder = run_folder / "draws"
        self._treedef = None if like is None else jax.tree.structure(like)
        self._like = None if like is None else trees.named_leaves(like)
        # The checkpoint is read first: a process that samples lists a draw before it writes a checkpoint after it.
        pointer = runs.read_pointer(run_folder / "state")
        self._journal: Journal | None = None
        if (self.folder / "journal.jsonl").exists():
            self._journal = Journal(self.folder / "journal.jsonl")
            self._source, entries = self._journal.path, self._journal.entries
        else:
            self._source = self.folder / "manifest.json"
            entries = _read_manifest(self._source)
        header, self._entries = entries[0], entries[1:]
        self._check(header)
        self.num_chains: int = header["num_chains"]
        self.steps: list[int] = [entry["step"] for entry in self._entries]
        runs.check_identity(self._source, header["run"], run_folder)
        if pointer is not None:
            runs.check_identity(run_folder / "state" / "checkpoint.json", pointer.get("run"), run_folder)
        self._reached: int = 0 if pointer is None else pointer["step"]
        if pointer is not None and pointer.get("draws", 0) > len(self.steps):
            raise FileError(
                f"{self._source} is older than the checkpoint: it lists {len(self.steps)} draws, not "
                f"{pointer['draws']}. Restore it, or remove the run folder."
            )

    @staticmethod
    def is_begun(run_folder: Path) -> bool:
        """Return whether a run has a list of draws, even an empty one."""
        return any((run_folder / "draws" / name).exists() for name in ("journal.jsonl", "manifest.json"))

    @classmethod
    def new(cls, run_folder: Path, num_chains: int, run: str | None = None) -> "FolderStore":
        """Make a folder for draws, of the run with this identity if they are of one."""
        files.make_folder(run_folder / "draws")
        Journal.create(run_folder / "draws" / "journal.jsonl", [_header(num_chains, run)])
        return cls(run_folder)

    @classmethod
    def to_write(cls, run_folder: Path, num_chains: int, like: Params, plan: Sequence[int], run: str) -> "FolderStore":
        """Open or create the draws of a run, to add to them.

        Args:
            run_folder: The folder of the run.
            num_chains: The number of its chains.
            like: A pytree with the structure, shapes and dtypes of a draw.
            plan: The steps at which it draws.
            run: Its identity.

        Returns:
            The draws so far: the first of the plan, with all those up to the run's checkpoint.
        """
        folder, path = run_folder / "draws", run_folder / "draws" / "journal.jsonl"
        if not cls.is_begun(run_folder):
            if any(folder.glob("draw-*")) or (run_folder / "state" / "checkpoint.json").exists():
                raise FileError(f"{path} is missing from a run that has begun: restore it, or remove the run folder.")
            cls.new(run_folder, num_chains, run)
        store = cls(run_folder, like)
        if store.num_chains != num_chains:
            raise FileError(f"{store._source} is damaged: it lists {store.num_chains} chains, not {num_chains}.")
        listed, reached = len(store.steps), store._reached
        if store.steps != list(plan[:listed]) or any(step <= reached for step in plan[listed : listed + 1]):
            raise FileError(
                f"{store._source} does not list the draws that the run had taken at step {reached}, its checkpoint. "
                "Restore it, or remove the run folder."
            )
        if store._journal is None:
            Journal.create(path, [_header(num_chains, run), *store._entries])
            store._source.unlink(missing_ok=True)
            store = cls(run_folder, like)
        return store

    def add(self, positions: Params, step: int) -> None:
        """Write one draw of every chain, then list it. A draw that is already listed is left as it is."""
        if self.steps and step <= self.steps[-1]:
            return
        assert self._journal is not None, "opened to be read only"
        leaves = trees.named_leaves(positions)
        written = []
        for chain in range(self.num_chains):
            content = files.pack_tensors({name: leaf[chain] for name, leaf in leaves.items()})
            name = f"draw-{len(self.steps):06d}-chain-{chain:03d}.safetensors"
            files.write_new(self.folder / name, content)
            written.append([name, files.checksum(content)])
        entry = {"step": step, "files": written}
        self._journal.append(entry)
        self._entries.append(entry)
        self.steps.append(step)

    def get(self, chain: int, draw: int) -> Params:
        """Read one position, checked against its checksum and, where they are known, its shapes and dtypes."""
        name, sha256 = self._entries[draw]["files"][chain]
        path = self.folder / name
        tensors = files.read_tensors(path, sha256)
        for name, tensor in tensors.items():
            if not (jnp.issubdtype(tensor.dtype, jnp.floating) and np.isfinite(tensor).all()):
                raise FileError(f"{path} is not a draw: its tensor {name!r:.80} does not hold finite numbers.")
        if self._like is None:
            # Where nothing else is known, all draws must be like the first that is read.
            self._like = {name: jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        if self._like.keys() != tensors.keys():
            raise FileError(f"{path} holds other tensors than expected: {', '.join(sorted(tensors)):.200}.")
        runs.check_tensors(path, tensors, {name: leaf for name, leaf in self._like.items() if hasattr(leaf, "dtype")})
        if self._treedef is not None:
            return jax.tree.unflatten(self._treedef, [tensors[name] for name in self._like])
        try:
            return trees.from_named_leaves(tensors)
        except InputError as error:
            raise FileError(f"{path} is not a draw: {error}") from error

    def _check(self, header: dict[str, Any]) -> None:
        found, num_chains, run = (header.get(field) for field in ("format", "num_chains", "run"))
        if files.is_whole(found) and found != FORMAT:
            raise FileError(f"{self._source} has format {found}; this version reads {OLD_FORMAT} and {FORMAT}.")
        good = found == FORMAT and files.is_whole(num_chains, 1) and (run is None or isinstance(run, str))
        good = good and all(_is_draw(entry, num_chains) for entry in self._entries)
        steps = [entry["step"] for entry in self._entries] if good else []
        if not good or any(step >= later for step, later in itertools.pairwise(steps)):
            raise FileError(f"{self._source} is damaged: it is not a list of draws. Restore it, or remove the folder.")


def _header(num_chains: int, run: str | None) -> dict[str, Any]:
    return {"format": FORMAT, "num_chains": num_chains, "run": run}


def _is_draw(entry: Any, num_chains: int | None) -> bool:
    """Return whether an entry lists a step, and one file with its checksum per chain."""
    listed = entry.get("files")
    return (
        files.is_whole(entry.get("step"), 1)
        and isinstance(listed, list)
        and len(listed) == num_chains
        and all(isinstance(pair, list) and len(pair) == 2 for pair in listed)
        and all(files.is_plain_name(name) and isinstance(sha256, str) for name, sha256 in listed)
    )


def _read_manifest(path: Path) -> list[dict[str, Any]]:
    """Return what a journal would list from the `manifest.json` of an earlier version."""
    listed = files.read_sealed(path, ("format", "num_chains", "draws"))
    found = listed.get("format")
    if files.is_whole(found) and found != OLD_FORMAT:
        raise FileError(f"{path} has format {found}; this version reads {OLD_FORMAT} and {FORMAT}.")
    try:
        if found != OLD_FORMAT:
            raise ValueError(found)
        steps = [{entry["step"] for entry in draw} for draw in listed["draws"]]
        pairs = [[[entry["file"], entry["sha256"]] for entry in draw] for draw in listed["draws"]]
        draws = [{"step": step, "files": pair} for (step,), pair in zip(steps, pairs, strict=True)]
        return [_header(listed["num_chains"], None), *draws]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} is damaged: it is not a list of draws. Restore it, or remove the folder.") from error
