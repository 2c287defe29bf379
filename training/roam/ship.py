"""Put the scheduler of a run of `train.py` into the package, with its card.

python training/roam/ship.py [--run training/roam/run]

`meta_loss` on the card is the geometric mean, over the problems of `ship.jsonl`, of the ratio of NLL to the hand-made
sampler's. Its `spread` is that of docs/bias.json: the scheduler does not act where cycles can settle.
"""

import argparse
import datetime
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np
from train import KINDS_TRAINED, save, weights_of

import roamax
from roamax.host import files
from roamax.pretrained import cards

FOLDER = Path(__file__).parent
SHIPPED = Path(roamax.__file__).parent / "pretrained" / "roam.safetensors"


def ratios(path: Path) -> dict[tuple[str, str], float]:
    """Return the mean difference of the logarithm of NLL, or of NLL in regression, learned minus hand-made."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        of_task = found.setdefault((row["task"], row["cycles"]), {})
        of_task.setdefault(row["row"], []).extend(row["valid"])
    differences = {}
    for (name, cycles), rows in found.items():
        learned, hand = np.asarray(rows["learned"]), np.asarray(rows["hand-made"])
        difference = learned - hand if name == "line" else np.log(learned / hand)
        differences[name, cycles] = float(difference.mean())
    return differences


def main() -> None:
    """Write the weights and their card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=FOLDER / "run")
    arguments = parser.parse_args()
    state = files.read_tensors(arguments.run / "state.safetensors")
    save(SHIPPED, weights_of(state["average"]))
    names = [kind.spec.name.split("/", 1) for kind in KINDS_TRAINED]
    sizes = [kind.spec.train_size for kind in KINDS_TRAINED]
    bias: Any = files.read_json(FOLDER.parents[1] / "docs" / "bias.json")
    (spread,) = (
        row["deviation"]
        for row in bias["rows"]
        if (row["target"], row["sampler"]) == ("network", "roam, cycles of 2,000")
    )
    card = {
        "sampler": "roam",
        "temperature": 0.0,
        "objective": "bma",
        "tasks": "training/roam/train.py",
        "data": sorted({data for data, _ in names}),
        "architectures": sorted({model for _, model in names}),
        "num_data": [min(sizes), max(sizes)],
        "kinds": ["classification", "regression"],
        "estimator": ["es"],
        "inner_steps": sorted({kind.steps for kind in KINDS_TRAINED}),
        "outer_steps": int(state["step"]),
        "started_from": "the hand-made sampler",
        "seed": 0,
        "meta_loss": float(np.exp(np.mean(list(ratios(FOLDER / "ship.jsonl").values())))),
        "meta_loss_is": "ratio of NLL to the hand-made sampler's",
        "spread": spread,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("roamax"),
    }
    cards.write(SHIPPED.with_suffix(".json"), card)


if __name__ == "__main__":
    main()
