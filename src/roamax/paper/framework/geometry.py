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
    """Draw the three panels of the first seed, one column per method."""
    shown = {name: records[0] for (_, name), records in found.items()}
    if not shown:
        return {}
    return {"cosine": cosine_matrices(shown), "surface": error_surfaces(shown), "segments": error_paths(shown)}
