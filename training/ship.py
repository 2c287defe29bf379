"""Put the best weights of a run into the package, with the step size that a user gets.

python training/ship.py NAME SQUARED_STEP_SIZE     such as: l2e 5e-7

Training validates with one step size; the one that goes on the card was chosen afterwards, on validation data of other
networks (README.md). The card's `meta_loss` is measured here with it, on the run's own problems.
"""

import dataclasses
import math
import sys
import tempfile
from pathlib import Path

from variants import VARIANTS, tasks

import roamax
from roamax import meta, storage
from roamax.meta import Stage, log

PACKAGE = Path(roamax.__file__).parent / "pretrained"


def main(name, squared_step_size):
    trained = Path(__file__).parent / name
    step_size = math.sqrt(float(squared_step_size))
    config = dataclasses.replace(
        VARIANTS[name],
        weights=str(trained / "weights.safetensors"),
        step_size=step_size,
        # Validation alone counts here, which is of the model average and of one chain.
        objective="bma",
        chains=1,
        stages=(Stage("es", 1, 1, 1, 1),),
    )
    with tempfile.TemporaryDirectory() as folder:
        meta.train(config, folder, tasks=tasks(small=name == "l2e-small"))
        loss = float(log.read_rows(Path(folder) / "log.csv")[0].validation)
    card = storage.read_json(trained / "weights.json")
    storage.write_bytes(PACKAGE / f"{name}.safetensors", storage.read_bytes(trained / "weights.safetensors"))
    storage.write_json(PACKAGE / f"{name}.json", {**card, "step_size": step_size, "meta_loss": loss})
    print(f"{name}: validation loss {loss:.4f}")


if __name__ == "__main__":
    meta.use_cpu_devices(2)
    main(*sys.argv[1:])
