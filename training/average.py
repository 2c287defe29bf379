"""Average the weights of two runs of one lineage, and write what came of it with its card.

python average.py FIRST SECOND SHARE EPSILON_SQUARED OUT

SHARE is that of the second. The card's meta_loss is measured here, on problems of the `cpu` tasks.
"""

import datetime
import importlib.metadata
import json
import math
import sys
import tempfile
from pathlib import Path

from roamax import meta, pretrained, storage, trees
from roamax.meta import Stage, TrainConfig, log


def main(first, second, share, epsilon_squared, out):
    weights = [pretrained.read(path) for path in (first, second)]
    mixed = trees.linear(*zip((1 - float(share), float(share)), (one.meta_params for one in weights), strict=True))
    tensors = {name.replace("/", "."): leaf for name, leaf in trees.named_leaves(mixed).items()}
    out = Path(out)
    storage.write_bytes(out, storage.pack_tensors(tensors))
    config = TrainConfig(
        tasks="cpu", weights=str(out), seed=8, stages=(Stage("es", 1, 1, 1, 1),), friction=0.1, output_scale=0.1,
        step_size=math.sqrt(float(epsilon_squared)), valid_problems=12, valid_draws=10, valid_thinning=150,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        meta.train(config, folder)
        loss = float(log.read_rows(Path(folder) / "log.csv")[0].validation)
        card = storage.read_json(Path(folder) / "weights.json")
    cards = [one.card for one in weights]
    history = {
        "data": sorted({data for card in cards for data in card["data"]}),
        "architectures": sorted({network for card in cards for network in card["architectures"]}),
        "estimator": [name for card in cards for name in card["estimator"]],
        "inner_steps": [steps for card in cards for steps in card["inner_steps"]],
        "outer_steps": sum(card["outer_steps"] for card in cards),
        "started_from": f"{1 - float(share):g} of {first} and {share} of {second}",
        "seed": [card["seed"] for card in cards],
        "meta_loss": loss,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("roamax"),
    }
    storage.write_json(out.with_suffix(".json"), {**card, **history})
    print(json.dumps({**card, **history}, indent=1))


if __name__ == "__main__":
    meta.use_cpu_devices(2)
    main(*sys.argv[1:])
