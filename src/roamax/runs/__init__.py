"""Run folders: the configuration of a run, its checkpoint, and its provenance."""

from roamax.runs.checkpoint import (
    Checkpoint,
    check_tensors,
    cpu_seconds_taken,
    load_checkpoint,
    numbered_leaves,
    read_pointer,
    read_state,
    save_checkpoint,
    seconds_taken,
    write_state,
)
from roamax.runs.folder import check_identity, check_same, claimed, other_run, read_config
from roamax.runs.journal import Journal
from roamax.runs.programs import programs
from roamax.runs.provenance import fingerprint, provenance

__all__ = [
    "Checkpoint",
    "Journal",
    "check_identity",
    "check_same",
    "check_tensors",
    "claimed",
    "cpu_seconds_taken",
    "fingerprint",
    "load_checkpoint",
    "numbered_leaves",
    "other_run",
    "programs",
    "provenance",
    "read_config",
    "read_pointer",
    "read_state",
    "save_checkpoint",
    "seconds_taken",
    "write_state",
]
