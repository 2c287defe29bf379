"""`roamax sample`."""

import json as json_module
from pathlib import Path
from typing import Any

from roamax.errors import InputError


def sample(
    out: Path,
    data: str = "digits",
    model: str = "mlp",
    options: tuple[str, ...] = (),
    sampler: str = "sghmc",
    num_samples: int = 10,
    burn_in: int = 2000,
    thinning: int = 200,
    chains: int = 1,
    batch_size: int = 128,
    weight_decay: float = 5e-4,
    lr: float | None = None,
    momentum_decay: float = 0.1,
    settings: tuple[str, ...] = (),
    train_size: int | None = None,
    halve: bool = False,
    data_dir: Path | None = None,
    seed: int = 0,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Sample the posterior of a network on a data set, and score the averaged prediction on its test set.

    Draws, state and results.json go to OUT; the same command again goes on where it stopped.

    Example: roamax sample --data fashion_mnist --model cnn --options channels=8 depth=2 --out runs/fashion

    Args:
        out: The run folder.
        data: A name that `roamax data list` shows.
        model: mlp, mlp_regression, cnn, cnn_fashion, resnet8_frn, resnet20_frn, cnn_lstm, ...
        options: The model's own options, such as channels=8 or hidden=[64,64].
        sampler: sgld, psgld, sghmc, cyclical, ensemble, hmc, nuts, l2e, kinetic_l2e, precond_l2e, meta_sgmcmc.
        num_samples: Draws of each chain.
        burn_in: Steps before the first draw counts.
        thinning: Steps between draws; cyclical counts those of a cycle's sampling part.
        chains: Chains side by side.
        batch_size: Examples of a minibatch; HMC and NUTS take all data.
        weight_decay: The Gaussian prior's strength, beside the mean loss.
        lr: Learning rate on the mean loss, for samplers in those terms.
        momentum_decay: One minus the momentum, for samplers in those terms.
        settings: The sampler's own settings, such as temperature=0.1 or step_size=0.01.
        train_size: Take so many training examples, chosen by the seed.
        halve: Shrink images to half their size.
        data_dir: Where data sets are kept: by default $ROAMAX_DATA, or the user's cache folder.
        seed: Seed of everything random.
        quiet: Print nothing.
        json: Print the results as JSON instead of text.
    """
    from roamax.cli.start import start_jax

    start_jax(chains)
    import time

    import jax

    from roamax import sampling
    from roamax.cli.output import print_json
    from roamax.experiments import compare
    from roamax.samplers.named import FULL_BATCH, named_sampler
    from roamax.tasks import TaskSpec

    spec = TaskSpec(
        data, model, parse_pairs(options, "options"), weight_decay=weight_decay, batch_size=batch_size,
        halve=halve, train_size=train_size, seed=seed,
    )  # fmt: skip
    task = spec.build(data_dir)
    chosen = named_sampler(
        sampler, task.posterior, num_steps=burn_in + num_samples * thinning, num_samples=num_samples, init=task.init,
        regression=task.is_regression, lr=lr, momentum_decay=momentum_decay, **parse_pairs(settings, "settings"),
    )  # fmt: skip
    by_members = sampler in ("cyclical", "ensemble")
    begun = time.monotonic()
    draws = sampling.sample(
        jax.random.key(seed),
        chosen,
        task.init,
        task.train,
        batch_size=None if sampler in FULL_BATCH else batch_size,
        num_samples=num_samples,
        burn_in=0 if by_members else burn_in,
        thinning=_sampling_part(chosen) if by_members else thinning,
        num_chains=chains,
        out=out,
        about={"task": compare.task_record(spec)},
        progress=False if quiet or json else None,
    )
    results = {
        **compare.provenance(seed),
        "task": spec.name,
        "sampler": dict(chosen.settings),
        "draws": len(draws),
        "seconds": round(time.monotonic() - begun, 2),
        **compare.score(task, draws),
    }
    compare.write_results(out / "results.json", results)
    if json:
        print_json(results)
    elif not quiet:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in compare.score(task, draws).items())
        print(f"{len(draws)} draws in {out}: {scores}")


def parse_pairs(pairs: tuple[str, ...], argument: str) -> dict[str, Any]:
    """`name=value` words as a dictionary; a value is JSON where it can be, text elsewhere."""
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


def _sampling_part(sampler: Any) -> int:
    """One draw a cycle or member: how many steps of each may be draws."""
    length = sampler.settings.get("cycle_length", sampler.settings.get("member_steps"))
    return sum(sampler.collect(step) for step in range(1, length + 1))
