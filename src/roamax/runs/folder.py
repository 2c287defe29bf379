"""A run folder, its contents, and when a run may resume in it.

config.json   the arguments that decide the draws
draws/        see `roamax.sampling.draws`
state/        the checkpoint to resume from: `checkpoint.json` names the file and its checksum
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roamax.errors import FileError, InputError
from roamax.host import files


def claim(
    folder: Path,
    config: Mapping[str, Any],
    *,
    may_grow: tuple[str, ...] = (),
    translate: Callable[[dict[str, Any]], dict[str, Any]] = lambda written: written,
) -> None:
    """Make `folder` the folder of a run with this `config`, or check that it is.

    Args:
        folder: The run folder.
        config: The arguments that decide the draws.
        may_grow: Arguments that may be larger than before: the run then resumes and continues to the new end.
        translate: Converts the configuration of an earlier version to this one.
    """
    path = folder / "config.json"
    if not path.exists():
        files.make_folder(folder)
        # A run that was killed during its first write may have left a lock, or a partial configuration.
        if any(not entry.name.startswith((".lock", ".config.json.")) for entry in folder.iterdir()):
            raise InputError(
                f"`out` must be a new or empty folder, or the folder of a run; got {folder} with other files in it."
            )
        files.write_json(path, dict(config))
        return
    written = files.read_json(path)
    if not isinstance(written, dict):
        raise FileError(f"{path} is damaged: it is not a JSON object.")
    check_same(folder, translate(written), config, may_grow)
    files.write_json(path, dict(config))


def check_same(
    folder: Path, written: Mapping[str, Any], config: Mapping[str, Any], may_grow: tuple[str, ...] = ()
) -> None:
    """Check that the run in `folder` has the arguments in `config`; those in `may_grow` may have grown."""
    old_arguments, new_arguments = _flat(written), _flat(config)
    for name in dict.fromkeys([*new_arguments, *old_arguments]):
        old, new = old_arguments.get(name), new_arguments.get(name)
        if old == new or (name in may_grow and isinstance(old, int) and isinstance(new, int) and new >= old):
            continue
        raise InputError(
            f"`out` must be a folder of a run with the same arguments; got {folder}, where `{name}` is {_short(old)}, "
            f"not {_short(new)}. Choose another folder, or the old argument."
        )


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested arguments to dotted names, so that an error can name the one that differs."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
