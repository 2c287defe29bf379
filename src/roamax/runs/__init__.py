"""Run folders: the configuration of a run, its checkpoint, and its provenance."""

from roamax.runs.checkpoint import (
    Checkpoint,
    check_tensors,
    cpu_seconds_taken,
    load_checkpoint,
    read_pointer,
    read_state,
    save_checkpoint,
    seconds_taken,
    write_state,
)
from roamax.runs.folder import check_same, claim
from roamax.runs.provenance import fingerprint, provenance

__all__ = [
    "Checkpoint",
    "check_same",
    "check_tensors",
    "claim",
    "cpu_seconds_taken",
    "fingerprint",
    "load_checkpoint",
    "provenance",
    "read_pointer",
    "read_state",
    "save_checkpoint",
    "seconds_taken",
    "write_state",
]
