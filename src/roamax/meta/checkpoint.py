"""The state of a meta-training run, on disk so that a kill at any moment costs seconds."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import storage
from roamax.errors import FileError
from roamax.meta.estimators import Slot
from roamax.runs import make_folder
from roamax.types import MetaParams


class TrainState(NamedTuple):
    """All that the rest of a run depends on, after `step` outer steps, and what has been counted on the way."""

    step: int
    meta_params: MetaParams
    optimizer: Any
    best: MetaParams
    best_loss: float
    slots: tuple[Slot, ...]
    inner_gradients: int
    seconds: float


def save(folder: Path, state: TrainState) -> None:
    """Write the arrays, then point to them, then remove the ones before."""
    make_folder(folder)
    arrays = {"meta_params": state.meta_params, "optimizer": state.optimizer, "best": state.best}
    arrays |= {f"slot{i}.{j}": carry for i, slot in enumerate(state.slots) for j, carry in enumerate(slot.carries)}
    named = {
        f"{name}.{i}": np.asarray(leaf) for name, tree in arrays.items() for i, leaf in enumerate(jax.tree.leaves(tree))
    }
    content = storage.pack_tensors(named)
    file = f"step-{state.step:08d}.safetensors"
    storage.write_bytes(folder / file, content)
    pointer = {
        "file": file,
        "sha256": storage.checksum(content),
        "step": state.step,
        "best_loss": state.best_loss,
        "inner_gradients": state.inner_gradients,
        "seconds": round(state.seconds, 3),
        "slots": [{"start": slot.start, "members": len(slot.carries)} for slot in state.slots],
    }
    storage.write_json(folder / "checkpoint.json", pointer)
    for old in folder.glob("step-*.safetensors"):
        if old.name != file:
            old.unlink(missing_ok=True)


def read_pointer(folder: Path) -> dict[str, Any] | None:
    """What the checkpoint in `folder` says about itself, or None where there is none yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    pointer = storage.read_json(path)
    fields = {"file": str, "sha256": str, "step": int, "best_loss": float, "inner_gradients": int, "seconds": float}
    good = isinstance(pointer, dict) and all(isinstance(pointer.get(name), kind) for name, kind in fields.items())
    good = good and Path(pointer["file"]).name == pointer["file"] and isinstance(pointer.get("slots"), list)
    if not good:
        raise FileError(f"{path} is damaged: it does not point to a checkpoint.")
    return pointer


def load(folder: Path, pointer: dict[str, Any], meta_params: MetaParams, optimizer: Any) -> TrainState:
    """The state that `pointer` names; `meta_params` and `optimizer` show the structure of those parts."""
    path = folder / pointer["file"]
    tensors = storage.read_tensors(path, pointer["sha256"])

    def leaves(name: str) -> list[np.ndarray]:
        count = sum(key.rpartition(".")[0] == name for key in tensors)
        return [tensors[f"{name}.{i}"] for i in range(count)]

    def tree(name: str, like: Any) -> Any:
        found = leaves(name)
        expected, structure = jax.tree.flatten(like)
        if [leaf.shape for leaf in found] != [np.shape(leaf) for leaf in expected]:
            raise FileError(f"{path} holds another state than this run's.")
        return structure.unflatten(found)

    slots = tuple(
        Slot(int(slot["start"]), tuple(leaves(f"slot{i}.{j}") for j in range(int(slot["members"]))))
        for i, slot in enumerate(pointer["slots"])
    )
    return TrainState(
        step=pointer["step"],
        meta_params=tree("meta_params", meta_params),
        optimizer=tree("optimizer", optimizer),
        best=tree("best", meta_params),
        best_loss=pointer["best_loss"],
        slots=slots,
        inner_gradients=pointer["inner_gradients"],
        seconds=pointer["seconds"],
    )
