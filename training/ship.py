"""Put the weights of a run into the package, with the step size for users.

python training/ship.py NAME SQUARED_STEP_SIZE     such as: l2e 5e-7

Training validates with one step size; that on the card was chosen afterwards, on validation data of other networks
(README.md). The card's `meta_loss` is measured here with it, on the validation problems of the run; its `spread` by
benchmarks/bias.py afterwards. Beside the card is a page of Markdown.
"""

import dataclasses
import math
import sys
import tempfile
from pathlib import Path

import jax
from variants import VARIANTS, tasks_of

import roamax
from roamax import meta
from roamax.host import files
from roamax.meta import Stage, checkpoint, folder, log
from roamax.meta.families import make_family
from roamax.meta.outer import outer_optimizer
from roamax.pretrained import cards

PACKAGE = Path(roamax.__file__).parent / "pretrained"


def read_trained(trained, config):
    """Return the state of a run, with the last weights as the best if none validated better than the first."""
    pointer = checkpoint.read_pointer(trained / "state")
    like = make_family(config, config.step_size).init(jax.random.key(0))
    state = checkpoint.load(trained / "state", pointer, like, outer_optimizer(config, 0).init(like))
    validated = [row for row in log.read_rows(trained / "log.csv") if row.validation]
    learned = int(min(validated, key=lambda row: float(row.validation)).step) > 0
    return state if learned else state._replace(best=state.meta_params)


def main(name, squared_step_size):
    """Write the weights and their card."""
    trained, shipped = Path(__file__).parent / name, PACKAGE / f"{name}.safetensors"
    step_size = math.sqrt(float(squared_step_size))
    distribution = tasks_of(name)
    state = read_trained(trained, VARIANTS[name])
    files.write_bytes(shipped, folder.pack_weights(state.best))
    card = folder.card(VARIANTS[name], distribution, state) | {"step_size": step_size}
    cards.write(shipped.with_suffix(".json"), card)
    config = dataclasses.replace(
        VARIANTS[name],
        weights=str(shipped),
        step_size=step_size,
        # Only validation counts here, which scores the model average of one chain.
        objective="bma",
        chains=1,
        stages=(Stage("es", 1, 1, 1, 1),),
    )
    with tempfile.TemporaryDirectory() as out:
        meta.train(config, out, tasks=distribution)
        loss = float(log.read_rows(Path(out) / "log.csv")[0].validation)
    cards.write(shipped.with_suffix(".json"), card | {"meta_loss": loss})
    print(f"{name}: validation loss {loss:.4f}")


if __name__ == "__main__":
    meta.use_cpu_devices(2)
    main(*sys.argv[1:])
