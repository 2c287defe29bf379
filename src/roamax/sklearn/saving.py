"""A fitted estimator as files: `estimator.json` says what it is, `estimator.safetensors` holds its arrays."""

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.numerics import trees
from roamax.sampling.draws import Draws
from roamax.types import Params

FORMAT = 1
FIELDS = ("format", "version", "estimator", "params", "objects", "facts", "sha256")


def write(folder: str | Path, kind: str, params: Mapping[str, Any], facts: Mapping[str, Any], arrays: dict) -> None:
    """Write arguments, facts and arrays of an estimator of class `kind`.

    Arguments that are not JSON-serialisable, such as a custom model, are only listed, and must be given again to load.
    """
    folder = Path(folder)
    files.make_folder(folder)
    kept = {name: _plain(value) for name, value in params.items() if _is_plain(value)}
    content = files.pack_tensors(arrays)
    files.write_bytes(folder / "estimator.safetensors", content)
    version, objects = importlib.metadata.version("roamax"), sorted(set(params) - set(kept))
    values = (FORMAT, version, kind, kept, objects, dict(facts), files.checksum(content))
    files.write_sealed(folder / "estimator.json", dict(zip(FIELDS, values, strict=True)))


def read(
    folder: str | Path, kind: str, objects: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write` wrote: arguments (with `objects` for those that were not saved), facts and arrays."""
    path = Path(folder) / "estimator.json"
    described = files.read_sealed(path, FIELDS)
    try:
        version, found, params = described["format"], described["estimator"], dict(described["params"])
        listed, facts, sha256 = list(described["objects"]), dict(described["facts"]), str(described["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} is damaged: it does not describe an estimator.") from error
    if version != FORMAT:
        raise FileError(f"{path} has format {version}; this version reads {FORMAT}.")
    if found != kind:
        raise FileError(f"{path} is of a {found}: load it with {found}.load.")
    for name in listed:
        if name not in objects:
            raise InputError(f"`{name}` must be given to load {folder}, since it could not be saved; got none.")
    for name in objects:
        if name not in {*listed, *params}:
            raise InputError(f"`{name}` must be an argument of {kind}; got one that it does not have.")
    tensors = files.read_tensors(path.with_suffix(".safetensors"), sha256)
    return {**{name: _as_given(value) for name, value in params.items()}, **objects}, facts, tensors


def as_draws(folder: str | Path, arrays: Mapping[str, np.ndarray], like: Params) -> Draws:
    """Return the draws among the arrays, in the structure of `like`, the parameters of the network."""
    found = {name.removeprefix("draws/"): array for name, array in arrays.items() if name.startswith("draws/")}
    expected = trees.named_leaves(like)
    if {name: array.shape[2:] for name, array in found.items()} != {name: x.shape for name, x in expected.items()}:
        raise FileError(f"{Path(folder) / 'estimator.safetensors'} holds draws of a network other than `model`.")
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
