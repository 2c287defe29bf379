"""`roamax meta-train PRESET`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from roamax.cli.arguments import Json, Quiet, RunFolder
from roamax.meta.config import TrainConfig
from roamax.meta.presets import PRESETS


def _command(name: str) -> Callable[..., None]:
    def command(
        out: RunFolder,
        config: Annotated[TrainConfig, tyro.conf.arg(name="")] = PRESETS[name],
        engine: str = "local",
        devices: int = 2,
        address: Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="")] = None,
        quiet: Quiet = False,
        json: Json = False,
    ) -> None:
        _train(out, config, engine, devices, address, quiet, json)

    command.__doc__ = f"""Meta-train with the numbers of the preset `{name}`; any of them can be given another value.

    Examples:
        roamax meta-train {name} --out runs/{name}
        roamax meta-train {name} --out runs/b --seed 1 --stages.0.sigma 0.02

    Args:
        out: The run folder. The same command again goes on where it stopped.
        config: The run's numbers.
        engine: local, or ray for a cluster.
        devices: CPU devices that the local engine spreads its jobs over.
        address: The Ray cluster's address; by default one is started here.
    """
    return command


paper, small, meta_sgmcmc, cpu, smoke = map(_command, ("paper", "small", "meta-sgmcmc", "cpu", "smoke"))


def _train(out: Path, config: Any, engine: str, devices: int, address: str | None, quiet: bool, json: bool) -> None:
    from roamax.cli.start import start_jax

    start_jax(devices if engine == "local" else 1)
    from roamax import meta
    from roamax.cli.output import print_json
    from roamax.errors import lookup

    def ray_engine(config: Any, tasks: Any) -> Any:
        from roamax.parallel.ray_engine import RayEngine

        return RayEngine(config, tasks, address=address)

    chosen = lookup({"local": meta.LocalEngine, "ray": ray_engine}, engine, "engine")
    trained = meta.train(config, out, engine=chosen, show=False if quiet or json else None)
    if json:
        print_json({"out": str(trained.out), "loss": trained.loss})
    elif not quiet:
        print(f"Validation loss {trained.loss:.4f}. Weights: {trained.out / 'weights.safetensors'}")
