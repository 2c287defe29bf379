"""`roamax sample`."""

import dataclasses
import json as json_module
import shlex
from typing import Annotated, Any

import tyro

from roamax.cli.arguments import DataDir, DataSet, Flag, Json, Model, Quiet, RunFolder, Sampler, Seed, Words
from roamax.errors import InputError, whole

PLANNED = 10
"""The draws that cycles and members are laid out for, whatever --num-samples is, so that a run can take more."""
Pairs = Annotated[Words, tyro.conf.arg(metavar="NAME=VALUE ...")]


def sample(
    out: RunFolder,
    data: DataSet = "digits",
    model: Model = "mlp",
    options: Pairs = (),
    sampler: Sampler = "sghmc",
    num_samples: int = PLANNED,
    burn_in: int = 2000,
    thinning: int = 200,
    chains: int = 1,
    batch_size: int = 128,
    weight_decay: float = 5e-4,
    lr: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: the sampler's)")] = None,
    momentum_decay: float = 0.1,
    temperature: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: the sampler's)")
    ] = None,
    settings: Pairs = (),
    train_size: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all)")] = None,
    halve: Flag = False,
    data_dir: DataDir = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Sample the posterior of a network, and score its averaged prediction.

    Writes draws, state and scores on the test set (results.json) to OUT.
    Running the same command again resumes where it stopped; with a larger
    --num-samples, it adds draws to a finished run.

    cyclical and roam in cycles, and the members of an ensemble, spend burn-in
    on every draw: each takes thinning + burn-in / 10 steps, on average.

    Examples:
        roamax sample --out runs/digits
        roamax sample --out runs/fashion --data fashion_mnist --model cnn \\
            --options channels=8 depth=2
        roamax sample --out runs/cold --sampler cyclical --temperature 0.1

    Args:
        out: The run folder.
        data: A name that `roamax data list` shows.
        model: The network.
        options: The model's own options, such as channels=8 or hidden=[64,64].
        sampler: The sampler.
        num_samples: Draws per chain.
        burn_in: Steps before the first draw.
        thinning: Steps between draws.
        chains: Chains that run in parallel.
        batch_size: Examples per minibatch; HMC, NUTS and MILE use all data.
        weight_decay: Weight decay equivalent to the Gaussian prior, relative to the mean loss.
        lr: Learning rate on the mean loss, for samplers that have one.
        momentum_decay: One minus the momentum, for samplers that have one.
        temperature: That of the posterior; 1 is Bayes' rule, less is sharper.
        settings: The sampler's own settings, such as step_size=0.01.
        train_size: Use only this many training examples, chosen by the seed.
        halve: Shrink images to half their size.
    """
    from roamax.cli.start import start_jax

    start_jax(whole(chains, "chains"))
    import time

    import jax

    from roamax import runs
    from roamax.cli.output import print_json
    from roamax.evaluation.score import score
    from roamax.host import files
    from roamax.host.progress import followed
    from roamax.sampling import runner
    from roamax.sampling.named import draw_options, named_sampler
    from roamax.tasks import TaskSpec

    spec = TaskSpec(
        data, model, parse_pairs(options, "options"), weight_decay=weight_decay, batch_size=batch_size,
        halve=halve, train_size=train_size, seed=seed,
    )  # fmt: skip
    task = spec.build(data_dir)
    tempered = {} if temperature is None else {"temperature": temperature}
    chosen = named_sampler(
        sampler, task.posterior, num_steps=burn_in + PLANNED * thinning, num_samples=PLANNED, init=task.init,
        batch_size=batch_size, regression=task.is_regression, learning_rate=lr, momentum_decay=momentum_decay,
        argument="lr", options={**tempered, **parse_pairs(settings, "settings")},
    )  # fmt: skip
    show = False if quiet or json else None
    begun = time.monotonic()
    draws = runner.sample(
        jax.random.key(seed),
        chosen,
        task.init,
        task.train,
        **draw_options(sampler, burn_in, thinning, batch_size),
        num_samples=num_samples,
        num_chains=chains,
        out=out,
        about={"task": dataclasses.asdict(spec), "test": runs.fingerprint(task.test)},
        progress=show,
    )
    seconds = time.monotonic() - begun
    scores = score(task, followed("predicting", draws, len(draws), show))
    results = {
        **runs.provenance(seed),
        "task": spec.name,
        "sampler": dict(chosen.settings),
        "draws": len(draws),
        "seconds": round(seconds, 2),
        **scores,
    }
    files.write_json(out / "results.json", results)
    if json:
        print_json(results)
    elif not quiet:
        print(", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
        print(f"{len(draws)} draws are in {out}. To measure them: roamax evaluate {shlex.quote(str(out))}")


def parse_pairs(pairs: tuple[str, ...], argument: str) -> dict[str, Any]:
    """Parse `name=value` words into a dictionary; a value is read as JSON if possible, else as text."""
    parsed = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise InputError(f"`{argument}` must be words of the form name=value; got {pair!r}.")
        try:
            parsed[name] = json_module.loads(text)
        except ValueError:
            parsed[name] = text
    return parsed
