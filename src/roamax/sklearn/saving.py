"""A fitted estimator as files: `estimator.json` says what it is and names the file of its arrays.

That file has a name of its own for each content, so `estimator.json`, which is replaced at once, is always whole.
"""

import importlib.metadata
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from roamax.errors import FileError, InputError, check, shaped, shown
from roamax.host import files
from roamax.numerics import trees
from roamax.sampling.draws import Draws
from roamax.types import Params

FORMAT = 2
OLD_FORMAT = 1
"""Arrays in `estimator.safetensors`."""
FIELDS = ("format", "version", "estimator", "params", "objects", "facts", "sha256")
SHAPE = {
    "format": int, "estimator": str, "params": dict, "objects": [str], "sha256": str,
    "facts": {"hidden": [int], "input_shape": [int], "n_features_in": int, "feature_names_in?": [str]},
}  # fmt: skip
"""The fields of `estimator.json` that all estimators have."""


def write(folder: str | Path, kind: str, params: Mapping[str, Any], facts: Mapping[str, Any], arrays: dict) -> None:
    """Write arguments, facts and arrays of an estimator of class `kind`.

    Arguments that are not JSON-serialisable, such as a custom model, are only listed, and must be given again to load.
    """
    folder = Path(folder)
    kept = {name: _plain(value) for name, value in params.items() if _is_plain(value)}
    for name, value in facts.items():
        check(_is_plain(value), name, "hold values that JSON can, to be saved", f"{value!r:.80}")
    content = files.pack_tensors(arrays)
    sha256 = files.checksum(content)
    version, objects = importlib.metadata.version("roamax"), sorted(set(params) - set(kept))
    values = (FORMAT, version, kind, kept, objects, dict(facts), sha256)
    files.make_folder(folder)
    files.write_bytes(_arrays_path(folder, FORMAT, sha256), content)
    files.write_sealed(folder / "estimator.json", dict(zip(FIELDS, values, strict=True)))
    files.sync_folder(folder)
    for old in folder.iterdir():
        if re.fullmatch(r"estimator(-[0-9a-f]{16})?\.safetensors", old.name) and sha256[:16] not in old.name:
            old.unlink(missing_ok=True)


def _arrays_path(folder: Path, version: int, sha256: str) -> Path:
    return folder / ("estimator.safetensors" if version == OLD_FORMAT else f"estimator-{sha256[:16]}.safetensors")


def read(
    folder: str | Path, kind: str, objects: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write` wrote: arguments (with `objects` for those that were not saved), facts and arrays."""
    path = Path(folder) / "estimator.json"
    described = files.read_sealed(path, FIELDS)
    version, found = (described.get(field) for field in ("format", "estimator"))
    if isinstance(version, int) and version not in (OLD_FORMAT, FORMAT):
        raise FileError(f"{path} has format {version}; this version reads {OLD_FORMAT} and {FORMAT}.")
    shaped(described, SHAPE, path)
    if found != kind:
        raise FileError(f"{path} is of a {shown(found, 40)}: load it with {shown(found, 40)}.load.")
    params, listed = described["params"], described["objects"]
    for name in listed:
        if name not in objects:
            raise InputError(f"`{name}` must be given to load {folder}, since it could not be saved; got none.")
    for name in objects:
        if name not in {*listed, *params}:
            raise InputError(f"`{name}` must be an argument of {kind}; got one that it does not have.")
    sha256 = described["sha256"]
    if re.fullmatch("[0-9a-f]{64}", sha256) is None:
        raise FileError(f"{path} is damaged: it does not have a checksum of the arrays.")
    tensors = files.read_tensors(_arrays_path(Path(folder), described["format"], sha256), sha256)
    return {**{name: _as_given(value) for name, value in params.items()}, **objects}, described["facts"], tensors


def as_draws(folder: str | Path, arrays: Mapping[str, np.ndarray], like: Params) -> Draws:
    """Return the draws among the arrays, in the structure of `like`, the parameters of the network."""
    found = {name.removeprefix("draws/"): array for name, array in arrays.items() if name.startswith("draws/")}
    expected = trees.named_leaves(like)
    if {name: array.shape[2:] for name, array in found.items()} != {name: x.shape for name, x in expected.items()}:
        raise FileError(f"{folder} holds draws of a network other than `model`.")
    return Draws.from_positions(jax.tree.unflatten(jax.tree.structure(like), [found[name] for name in expected]))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(_plain(value))
    except (TypeError, ValueError):
        return False
    return True


def _as_given(value: Any) -> Any:
    """Turn lists back into tuples, which JSON lacks."""
    return tuple(map(_as_given, value)) if isinstance(value, list) else value
