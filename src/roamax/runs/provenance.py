"""The provenance of results: fingerprints of arrays; command, versions and machine."""

import hashlib
import os
import platform
import shlex
import sys
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from roamax.host.machine import usable_cores
from roamax.numerics import trees


def fingerprint(tree: Any) -> dict[str, Any]:
    """Return shapes, dtypes and a checksum of a pytree of arrays, to tell it from others.

    For arrays of more than 64 MB the checksum covers 4096 evenly spaced rows only.
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
    """Return the command, the seed, the versions and the kind of machine behind a result."""
    packages = ("roamax", "jax", "jaxlib", "numpy")
    # Where a machine keeps the working folder is nobody's business, and the command works in any other too.
    words = [word.replace(f"{os.getcwd()}{os.sep}", "") for word in sys.argv[1:]]
    return {
        "command": shlex.join(["roamax", *words]),
        "seed": seed,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "devices": [str(device) for device in jax.local_devices()],
        "cores": usable_cores(),
    }
