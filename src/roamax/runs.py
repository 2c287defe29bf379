"""A run folder: what made it, where it has come to, and how it is taken up again.

config.json   the arguments that decide the draws
draws/        see `roamax.draws`
state/        the checkpoint to go on from: `checkpoint.json` names the file and its checksum
"""

import hashlib
import math
import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import storage, trees
from roamax.errors import FileError, InputError
from roamax.machine import usable_cores

POINTER = ("file", "sha256", "step", "seconds", "best_loss", "inner_gradients", "slots")
"""What `checkpoint.json` may hold; the last three are of meta-training."""


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
        if any(entry.name != ".lock" and not _is_half_a_config(entry) for entry in folder.iterdir()):
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
    """Write a checkpoint in the place of the one before."""
    leaves = {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(checkpoint.state))}
    write_state(folder, leaves, {"step": checkpoint.step, "seconds": checkpoint.seconds})


def load_checkpoint(folder: Path, like: Any) -> Checkpoint | None:
    """The checkpoint in `folder`, in the structure of `like`, or None where there is none yet."""
    pointer = read_pointer(folder)
    if pointer is None:
        return None
    path, tensors = read_state(folder, pointer)
    leaves, treedef = jax.tree.flatten(like)
    check_tensors(path, tensors, {str(i): leaf for i, leaf in enumerate(leaves)})
    restored = [tensors[str(i)] for i in range(len(leaves))]
    return Checkpoint(jax.tree.unflatten(treedef, restored), pointer["step"], pointer["seconds"])


def write_state(folder: Path, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write named arrays, then point to them with `facts` (a `step` among them), then remove the ones before."""
    make_folder(folder)
    content = storage.pack_tensors(dict(tensors))
    name = f"step-{facts['step']:012d}.safetensors"
    storage.write_bytes(folder / name, content)
    storage.write_sealed(folder / "checkpoint.json", {"file": name, "sha256": storage.checksum(content), **facts})
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            with storage.writing(old):
                old.unlink(missing_ok=True)


def read_pointer(folder: Path) -> dict[str, Any] | None:
    """The facts about the state in `folder`, and where it is; None where there is none yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    pointer = storage.read_sealed(path, POINTER)
    name, step, seconds = (pointer.get(field) for field in ("file", "step", "seconds"))
    is_ours = storage.is_plain_name(name) and re.fullmatch(r"step-0*(\d+)\.safetensors", str(name))
    good = is_ours and storage.is_whole(step) and int(is_ours[1]) == step and isinstance(pointer.get("sha256"), str)
    if not good or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise FileError(
            f"{path} is damaged: it does not point to a checkpoint. Remove the folder {folder} to start anew."
        )
    return pointer


def read_state(folder: Path, pointer: Mapping[str, Any]) -> tuple[Path, dict[str, np.ndarray]]:
    """The file that `pointer` names, and its arrays."""
    path = folder / pointer["file"]
    return path, storage.read_tensors(path, pointer["sha256"])


def check_tensors(path: Path, tensors: Mapping[str, np.ndarray], like: Mapping[str, Any]) -> None:
    """Raise a `FileError` that names `path` unless its arrays have the names, shapes and dtypes of those in `like`."""
    for name, leaf in like.items():
        found = tensors.get(name)
        shape, dtype = np.shape(leaf), np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if found is None or (found.shape, found.dtype) != (shape, dtype):
            got = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise FileError(f"{path} is of another run or version: {name} must be {dtype}{list(shape)}; got {got}.")


def seconds_taken(folder: Path) -> float | None:
    """How long the run with this state folder has taken up to its checkpoint, or None where there is none yet."""
    pointer = read_pointer(folder)
    return None if pointer is None else float(pointer["seconds"])


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


def provenance(seed: int) -> dict[str, Any]:
    """What made a result: the command, the seed, the versions and the kind of machine."""
    packages = ("roamax", "jax", "jaxlib", "numpy")
    return {
        "command": " ".join(["roamax", *sys.argv[1:]]),
        "seed": seed,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "devices": [str(device) for device in jax.local_devices()],
        "cores": usable_cores(),
    }


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} could not be made: {error.strerror}.") from error


def _is_half_a_config(path: Path) -> bool:
    """Whether a run that was killed at its very first write has left this."""
    return path.name.startswith(".config.json.") and path.suffix == ".part"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested arguments under dotted names, so that a difference can be named exactly."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
