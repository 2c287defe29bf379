"""Checkpoints of a meta-training run: a kill at any moment costs seconds of work."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from roamax import runs
from roamax.errors import FileError, shaped
from roamax.meta.outer import Slot
from roamax.types import MetaParams


class TrainState(NamedTuple):
    """Everything that the rest of a run depends on after `step` outer steps, and the totals so far."""

    step: int
    meta_params: MetaParams
    optimizer: Any
    best: MetaParams
    best_loss: float
    slots: tuple[Slot, ...]
    inner_gradients: int
    seconds: float


def save(folder: Path, state: TrainState, run: str) -> None:
    """Write a state of the run with this identity, in place of the previous one."""
    arrays = {"meta_params": state.meta_params, "optimizer": state.optimizer, "best": state.best}
    arrays |= {f"slot{i}.{j}": carry for i, slot in enumerate(state.slots) for j, carry in enumerate(slot.carries)}
    named = {
        f"{name}.{i}": np.asarray(leaf) for name, tree in arrays.items() for i, leaf in enumerate(jax.tree.leaves(tree))
    }
    facts = {
        "run": run,
        "step": state.step,
        "best_loss": state.best_loss,
        "inner_gradients": state.inner_gradients,
        "seconds": round(state.seconds, 3),
        "slots": [{"start": slot.start, "members": len(slot.carries)} for slot in state.slots],
    }
    runs.write_state(folder, named, facts)


def read_pointer(folder: Path) -> dict[str, Any] | None:
    """Read the facts about the checkpoint in `folder`, or return None if there is none yet."""
    pointer = runs.read_pointer(folder)
    if pointer is None:
        return None
    path = folder / "checkpoint.json"
    shaped(pointer, {"inner_gradients": int, "slots": [{"start": int, "members": int}]}, path)
    # A loss that is not known yet is infinite. A pair has two members at most.
    if not isinstance(pointer.get("best_loss"), float) or any(slot["members"] > 2 for slot in pointer["slots"]):
        raise FileError(f"{path} is damaged: it does not point to a state of meta-training.")
    return pointer


def load(folder: Path, pointer: dict[str, Any], meta_params: MetaParams, optimizer: Any) -> TrainState:
    """Load the state that `pointer` names; `meta_params` and `optimizer` have the structure of those parts."""
    path, tensors = runs.read_state(folder, pointer)

    def tree(name: str, like: Any) -> Any:
        leaves, structure = jax.tree.flatten(like)
        runs.check_tensors(path, tensors, {f"{name}.{i}": leaf for i, leaf in enumerate(leaves)})
        return structure.unflatten([tensors[f"{name}.{i}"] for i in range(len(leaves))])

    def carry(name: str) -> list[np.ndarray]:
        count = sum(key.rpartition(".")[0] == name for key in tensors)
        if not all(f"{name}.{i}" in tensors for i in range(count)):
            raise FileError(f"{path} is of another run or version: the arrays of {name} are not numbered from 0.")
        return [tensors[f"{name}.{i}"] for i in range(count)]

    slots = tuple(
        Slot(slot["start"], tuple(carry(f"slot{i}.{j}") for j in range(slot["members"])))
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
