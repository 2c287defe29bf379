"""Put the weights of a run into the package, with the step size that a user gets.

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
from roamax import meta, runs
from roamax.host import files
from roamax.meta import Stage, checkpoint, log

PACKAGE = Path(roamax.__file__).parent / "pretrained"


def trained_weights(trained):
    """The weights that validated best; the last, where none validated better than those it started from."""
    best = files.read_bytes(trained / "weights.safetensors")
    validated = [row for row in log.read_rows(trained / "log.csv") if row.validation]
    if int(min(validated, key=lambda row: float(row.validation)).step) > 0:
        return best
    _, tensors = runs.read_state(trained / "state", checkpoint.read_pointer(trained / "state"))
    names = sorted(files.read_tensors(trained / "weights.safetensors"))
    return files.pack_tensors({name: tensors[f"meta_params.{i}"] for i, name in enumerate(names)})


def main(name, squared_step_size):
    trained, shipped = Path(__file__).parent / name, PACKAGE / f"{name}.safetensors"
    step_size = math.sqrt(float(squared_step_size))
    card = files.read_json(trained / "weights.json") | {"step_size": step_size}
    files.write_bytes(shipped, trained_weights(trained))
    files.write_json(shipped.with_suffix(".json"), card)
    config = dataclasses.replace(
        VARIANTS[name],
        weights=str(shipped),
        step_size=step_size,
        # Validation alone counts here, which is of the model average and of one chain.
        objective="bma",
        chains=1,
        stages=(Stage("es", 1, 1, 1, 1),),
    )
    with tempfile.TemporaryDirectory() as folder:
        meta.train(config, folder, tasks=tasks(small=name == "l2e-small"))
        loss = float(log.read_rows(Path(folder) / "log.csv")[0].validation)
    files.write_json(shipped.with_suffix(".json"), card | {"meta_loss": loss})
    print(f"{name}: validation loss {loss:.4f}")


if __name__ == "__main__":
    meta.use_cpu_devices(2)
    main(*sys.argv[1:])
