"""The checkpoint of a run folder: `state/checkpoint.json` names the file to resume from and its checksum."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax.errors import FileError
from roamax.host import files

POINTER = ("file", "sha256", "step", "seconds", "cpu_seconds", "run", "draws", "best_loss", "inner_gradients", "slots")
"""The fields of `checkpoint.json`; `draws` is for sampling, the last three are for meta-training."""


class Checkpoint(NamedTuple):
    """The state of a run after `step` steps, and the seconds and CPU seconds that they took, without compilation."""

    state: Any
    step: int
    seconds: float
    cpu_seconds: float = 0.0


def save_checkpoint(folder: Path, checkpoint: Checkpoint, run: str, draws: int) -> None:
    """Write a checkpoint of the run with this identity and so many draws, replacing the previous one."""
    leaves = {name: np.asarray(leaf) for name, leaf in numbered_leaves(checkpoint.state).items()}
    facts = {"step": checkpoint.step, "seconds": checkpoint.seconds, "cpu_seconds": checkpoint.cpu_seconds}
    write_state(folder, leaves, {**facts, "run": run, "draws": draws})


def numbered_leaves(state: Any) -> dict[str, Any]:
    """Return the leaves of a state by the names that they have in its file."""
    return {str(i): leaf for i, leaf in enumerate(jax.tree.leaves(state))}


def load_checkpoint(folder: Path, like: Any) -> Checkpoint | None:
    """Load the checkpoint in `folder`, in the structure of `like`; return None if there is none yet."""
    pointer = read_pointer(folder)
    if pointer is None:
        return None
    path, tensors = read_state(folder, pointer)
    leaves = numbered_leaves(like)
    check_tensors(path, tensors, leaves)
    restored = jax.tree.unflatten(jax.tree.structure(like), [tensors[name] for name in leaves])
    return Checkpoint(restored, pointer["step"], pointer["seconds"], pointer["cpu_seconds"])


def write_state(folder: Path, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write named arrays, then a pointer to them with `facts` (including `step`), then remove the previous arrays."""
    files.make_folder(folder)
    content = files.pack_tensors(dict(tensors))
    name = f"step-{facts['step']:012d}.safetensors"
    files.write_bytes(folder / name, content)
    files.write_sealed(folder / "checkpoint.json", {"file": name, "sha256": files.checksum(content), **facts})
    # On some file systems a removal may reach the disk before the pointer that it depends on.
    files.sync_folder(folder)
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            with files.writing(old):
                old.unlink(missing_ok=True)


def read_pointer(folder: Path) -> dict[str, Any] | None:
    """Read the pointer to the state in `folder` and the facts about it; return None if there is none yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    # Files from earlier versions have no CPU time.
    pointer = {"cpu_seconds": 0.0, **files.read_sealed(path, POINTER)}
    name, step, *times = (pointer.get(field) for field in ("file", "step", "seconds", "cpu_seconds"))
    is_ours = files.is_plain_name(name) and re.fullmatch(r"step-0*(\d+)\.safetensors", str(name))
    good = is_ours and files.is_whole(step) and int(is_ours[1]) == step and isinstance(pointer.get("sha256"), str)
    good = good and files.is_whole(pointer.get("draws", 0))
    if not good or not all(isinstance(number, int | float) and abs(number) <= sys.float_info.max for number in times):
        raise FileError(
            f"{path} is damaged: it does not point to a checkpoint. Remove the folder {folder} to start anew."
        )
    return pointer


def read_state(folder: Path, pointer: Mapping[str, Any]) -> tuple[Path, dict[str, np.ndarray]]:
    """Return the path of the state that `pointer` names, and its arrays."""
    path = folder / pointer["file"]
    return path, files.read_tensors(path, pointer["sha256"])


def check_tensors(path: Path, tensors: Mapping[str, np.ndarray], like: Mapping[str, Any]) -> None:
    """Raise a `FileError` that names `path` unless its arrays have the names, shapes and dtypes of those in `like`."""
    for name, leaf in like.items():
        found = tensors.get(name)
        shape, dtype = np.shape(leaf), np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if found is None or (found.shape, found.dtype) != (shape, dtype):
            got = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise FileError(f"{path} is of another run or version: {name} must be {dtype}{list(shape)}; got {got}.")


def seconds_taken(folder: Path) -> float | None:
    """Return the seconds of a run's steps up to its checkpoint, without compilation; None if there is none yet."""
    pointer = read_pointer(folder)
    return None if pointer is None else float(pointer["seconds"])


def cpu_seconds_taken(folder: Path) -> float | None:
    """Return the CPU seconds of a run's steps, without compilation, as `seconds_taken` does for the time."""
    pointer = read_pointer(folder)
    return None if pointer is None else float(pointer["cpu_seconds"])
