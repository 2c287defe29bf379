"""A run folder, its contents, and when a run may resume in it.

config.json   the arguments that decide the draws, and `run`, the run's identity: a checksum of them
draws/        see `roamax.sampling.stores`
state/        the checkpoint to resume from: `checkpoint.json` names the file and its checksum
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from roamax.errors import FileError, InputError, shown
from roamax.host import files

OURS = {
    ".": r"(config|metrics|results|space|weights)\.json|statistics\.jsonl|log\.(csv|png)"
    r"|(weights|predictions)\.safetensors",
    "draws": r"manifest\.json|journal\.jsonl|draw-\d+-chain-\d+\.safetensors",
    "state": r"checkpoint\.json|step-\d+\.safetensors",
}
"""The files of a run folder, of which killed processes may leave parts."""


@contextmanager
def claimed(folder: Path, settle: Callable[[dict[str, Any] | None], Mapping[str, Any]], grows: str) -> Iterator[str]:
    """Lock `folder` for a run, which becomes its folder or has been so far. A refused run changes nothing in it.

    Args:
        folder: The run folder.
        settle: A function of the arguments in `config.json` (None in a new folder) that returns those to write there,
            or raises an `InputError` if they are of another run. It is called before and after the folder is locked.
        grows: The one argument that may change from call to call, and is not part of the run's identity.

    Yields:
        The run's identity.
    """
    settle(_written(folder, grows))
    files.make_folder(folder)
    with files.locked(folder):
        written = _written(folder, grows, is_locked=True)
        config = files.as_json(settle(written))
        config["run"] = _identity(config, grows)
        if config != written:
            files.write_json(folder / "config.json", config)
        for place, names in OURS.items():
            files.sweep(folder / place, names)
        try:
            yield config["run"]
        except InputError:
            if written is None:
                _release(folder)
            raise


def _release(folder: Path) -> None:
    """Undo the claim of a new folder, unless its run has come to anything."""
    if not (folder / "state").exists() and not any(folder.glob("draws/draw-*")):
        for name in ("draws/journal.jsonl", "config.json"):
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            (folder / "draws").rmdir()


def _written(folder: Path, grows: str, is_locked: bool = False) -> dict[str, Any] | None:
    """Return the arguments of the run in a folder, or None if it is new or empty, apart from a lock of our own."""
    path = folder / "config.json"
    if path.exists():
        written = read_config(path)
        if "run" in written and written["run"] != _identity(written, grows):
            raise FileError(f"{path} is damaged: its content is not what was written. Restore it, or remove the run.")
        return written
    try:
        entries = [entry for entry in folder.iterdir() if not (is_locked and entry.name in (".lock", ".lock.pid"))]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"`out` must be a folder; got {folder}: {error.strerror}.") from error
    if not all(map(_is_left_over, entries)):
        raise InputError(
            f"`out` must be a new or empty folder, or the folder of a run; got {folder} with other files in it."
        )
    return None


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of a `config.json`."""
    written = files.read_json(path)
    if not isinstance(written, dict):
        raise FileError(f"{path} is damaged: it is not a JSON object.")
    return written


def _is_left_over(entry: Path) -> bool:
    """Return whether a run that was killed during its first write may have left this: a lock, a part of its config."""
    if entry.is_symlink() or not entry.is_file():
        return False
    # Our locks are empty; one with content is somebody else's.
    most = {".lock": 0, ".lock.pid": 20}.get(entry.name)
    return entry.stat().st_size <= most if most is not None else _PART.fullmatch(entry.name) is not None


_PART = re.compile(r"\.config\.json\.\d+\.part")


def _identity(config: Mapping[str, Any], grows: str) -> str:
    fixed = {name: value for name, value in config.items() if name not in (grows, "run")}
    return files.checksum(json.dumps(fixed, sort_keys=True).encode())[:16]


def check_identity(path: Path, run: Any, folder: Path) -> None:
    """Raise a `FileError` if `path` is a part of another run than the one in `folder`; earlier versions did not say."""
    config = folder / "config.json"
    expected = read_config(config).get("run") if config.exists() else None
    if None not in (run, expected) and run != expected:
        raise FileError(f"{path} is of another run than {config}: restore it, or remove the run folder.")


def check_same(
    folder: Path, written: Mapping[str, Any], config: Mapping[str, Any], may_grow: tuple[str, ...] = ()
) -> None:
    """Check that the run in `folder` has the arguments in `config`; those in `may_grow` may have grown."""
    old_arguments, new_arguments = _flat(written), _flat(config)
    for name in dict.fromkeys([*new_arguments, *old_arguments]):
        old, new = old_arguments.get(name), new_arguments.get(name)
        if old == new or (name in may_grow and isinstance(old, int) and isinstance(new, int) and new >= old):
            continue
        raise other_run(folder, f"where `{shown(name, 80)}` is {shown(old, 80)}, not {shown(new, 80)}")


def other_run(folder: Path, difference: str) -> InputError:
    """Return the error for a folder whose run differs in an argument."""
    return InputError(
        f"`out` must be a folder of a run with the same arguments; got {folder}, {difference}. Choose another folder, "
        "or the old argument."
    )


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested arguments to dotted names, so that an error can name the one that differs."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
