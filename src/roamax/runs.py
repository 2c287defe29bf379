"""A run folder: what made it, where it has come to, and how it is taken up again.

config.json   the arguments that decide the draws
draws/        see `roamax.draws`
state/        the checkpoint to go on from: `checkpoint.json` names the file and its checksum
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import storage, trees
from roamax.errors import FileError, InputError


class Checkpoint(NamedTuple):
    """A running state after `step` steps, and the seconds they took."""

    state: Any
    step: int
    seconds: float


def claim(folder: Path, config: Mapping[str, Any], *, may_grow: tuple[str, ...] = ()) -> None:
    """Make `folder` the home of a run with this `config`, or check that it is.

    Arguments named in `may_grow` may be larger than they were: the run then goes on to the new end.
    """
    path = folder / "config.json"
    if not path.exists():
        make_folder(folder)
        if any(entry.name not in (".lock", "config.json") for entry in folder.iterdir()):
            raise InputError(
                f"`out` must be a new or empty folder, or one of a run; got {folder} with other files in it."
            )
        storage.write_json(path, dict(config))
        return
    written = storage.read_json(path)
    if not isinstance(written, dict):
        raise FileError(f"{path} is damaged: it is not a JSON object.")
    old_arguments, new_arguments = _flat(written), _flat(config)
    for name in dict.fromkeys([*new_arguments, *old_arguments]):
        old, new = old_arguments.get(name), new_arguments.get(name)
        if old == new or (name in may_grow and isinstance(old, int) and isinstance(new, int) and new >= old):
            continue
        raise InputError(
            f"`out` must be a folder of a run with the same arguments; got {folder}, where `{name}` is {_short(old)}, "
            f"not {_short(new)}. Choose another folder, or the old argument."
        )
    storage.write_json(path, dict(config))


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the state, then point to it, then remove the one before."""
    make_folder(folder)
    content = storage.pack_tensors(
        {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(checkpoint.state))}
    )
    name = f"step-{checkpoint.step:012d}.safetensors"
    storage.write_bytes(folder / name, content)
    pointer = {
        "file": name,
        "sha256": storage.checksum(content),
        "step": checkpoint.step,
        "seconds": checkpoint.seconds,
    }
    storage.write_json(folder / "checkpoint.json", pointer)
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def load_checkpoint(folder: Path, like: Any) -> Checkpoint | None:
    """The checkpoint in `folder`, in the structure of `like`, or None where there is none yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    pointer = storage.read_json(path)
    try:
        name, step, seconds = pointer["file"], int(pointer["step"]), float(pointer["seconds"])
        sha256 = str(pointer["sha256"])
        good = Path(name).name == name and step >= 0
    except (KeyError, TypeError, ValueError):
        good = False
    if not good:
        raise FileError(
            f"{path} is damaged: it does not point to a checkpoint. Remove the folder {folder} to start anew."
        )
    tensors = storage.read_tensors(folder / name, sha256)
    leaves, treedef = jax.tree.flatten(like)
    restored = [tensors.get(str(i)) for i in range(len(leaves))]
    for old, new in zip(leaves, restored, strict=True):
        if new is None or new.shape != np.shape(old) or new.dtype != np.asarray(old).dtype:
            raise FileError(f"{folder / name} holds another state than this run's. Remove {folder} to start anew.")
    return Checkpoint(jax.tree.unflatten(treedef, restored), step, seconds)


def seconds_taken(folder: Path) -> float | None:
    """How long the run with this state folder has taken up to its checkpoint, or None where there is none yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    pointer = storage.read_json(path)
    return float(pointer["seconds"]) if isinstance(pointer, dict) and "seconds" in pointer else None


def fingerprint(tree: Any) -> dict[str, Any]:
    """Shapes, dtypes and a checksum of a pytree of arrays: enough to see that it is another one.

    Of an array of more than 64 MB, 4096 evenly spaced rows stand for the whole.
    """
    digest = hashlib.sha256()
    shapes = {}
    for name, leaf in trees.named_leaves(tree).items():
        array = leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)
        shapes[name] = f"{array.dtype}{list(array.shape)}"
        if array.nbytes > 64 * 1024**2 and array.ndim:
            array = array[np.linspace(0, len(array) - 1, min(4096, len(array))).astype(int)]
        digest.update(np.ascontiguousarray(array).tobytes())
    return {"arrays": shapes, "sha256": digest.hexdigest()[:16]}


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} could not be made: {error.strerror}.") from error


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested arguments under dotted names, so that a difference can be named exactly."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
