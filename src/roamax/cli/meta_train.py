"""`roamax meta-train PRESET`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from roamax.cli.arguments import Address, Engine, Json, Quiet, RunFolder
from roamax.meta.config import TrainConfig
from roamax.meta.presets import PRESETS


def _command(name: str) -> Callable[..., None]:
    def command(
        out: RunFolder,
        config: Annotated[TrainConfig, tyro.conf.arg(name="")] = PRESETS[name],
        engine: Engine = "local",
        devices: int = 2,
        address: Address = None,
        quiet: Quiet = False,
        json: Json = False,
    ) -> None:
        _train(out, config, engine, devices, address, quiet, json)

    command.__doc__ = f"""Meta-train a sampler, starting from the preset `{name}`.

    Every setting of the preset can be changed. Running the same command again
    resumes where it stopped.

    Examples:
        roamax meta-train {name} --out runs/{name}
        roamax meta-train {name} --out runs/b --seed 1 --stages.0.sigma 0.02

    Args:
        out: The run folder.
        config: The run's settings.
        engine: Where unrolls run: in this process, or on a Ray cluster.
        devices: CPU devices over which the local engine spreads unrolls.
    """
    return command


paper, small, meta_sgmcmc, cpu, smoke = map(_command, ("paper", "small", "meta-sgmcmc", "cpu", "smoke"))


def _train(out: Path, config: Any, engine: Engine, devices: int, address: str | None, quiet: bool, json: bool) -> None:
    from roamax.cli.start import start_jax
    from roamax.errors import whole

    start_jax(whole(devices, "devices") if engine == "local" else 1)
    from roamax import meta
    from roamax.cli.output import print_json

    chosen = {"local": meta.LocalEngine, "ray": partial(meta.RayEngine, address=address)}[engine]
    trained = meta.train(config, out, engine=chosen, show=False if quiet or json else None)
    if json:
        print_json({"out": str(trained.out), "loss": trained.loss})
    elif not quiet:
        print(f"Validation loss {trained.loss:.4f}. Weights: {trained.out / 'weights.safetensors'}")
