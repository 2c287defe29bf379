"""The geometry of a chain's draws, in numbers and in the paper's three panels, for several experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roamax.paper.framework.chain import Chain
from roamax.paper.framework.lab import Record
from roamax.report.geometry import cosine_matrices, error_paths, error_surfaces


def geometry(chain: Chain) -> Record:
    """Compute the mean cosine similarity of draws, and the mean height of barriers between successive ones.

    Returns:
        The numbers, and the data of the panels under "space".
    """
    space = chain.space
    cosine = np.asarray(space["cosine"])
    return {
        "space": space,
        "cosine": float(cosine[~np.eye(len(cosine), dtype=bool)].mean()),
        "error barrier": float(np.mean(space["segments"]["error_barrier"])),
        "NLL barrier": float(np.mean(space["segments"]["nll_barrier"])),
    }


def panels(found: Mapping[tuple[str, str], Sequence[Record]]) -> dict[str, Any]:
    """Draw the panels of the first seed, one column per method; a chain of two draws spans no surface."""
    shown = {name: records[0] for (_, name), records in found.items()}
    drawings = {"cosine": cosine_matrices, "surface": error_surfaces, "segments": error_paths}
    return {
        key: draw(shown) for key, draw in drawings.items() if any(key in record["space"] for record in shown.values())
    }
