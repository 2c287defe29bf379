"""The contests of the runner, the learned step, chains and predictions, each with its mark on two CPU cores."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import apart, peers
from benchmarks.timing import BEST, Contest, Mark, result_of
from benchmarks.work import BATCH, SETTINGS, network, turns
from roamax.evaluation.predict import BATCH_SIZE, predict
from roamax.samplers.sghmc import sghmc
from roamax.sampling.draws import Draws
from roamax.sampling.runner import sample


def runner() -> Contest:
    """Compare `roamax.sample` (SGHMC, draws to disk) with a bare optax loop over batches of the same data."""
    import optax

    steps, work = 600, network("cnn_fashion", (28, 28, 1), count=10_000)
    sampler, optimizer = sghmc(work.posterior, **SETTINGS), optax.sgd(1e-3, 0.9)
    x, y = work.data

    def ours() -> Draws:
        with tempfile.TemporaryDirectory() as folder:
            return sample(jax.random.key(0), sampler, work.position, work.data, batch_size=BATCH,
                                   burn_in=steps // 2, num_samples=10, thinning=steps // 20, progress=False,
                                   out=Path(folder) / "run")  # fmt: skip

    @jax.jit
    def bare(state: Any, key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
            params, optimizer_state = carry
            rows = jax.random.randint(key, (BATCH,), 0, len(y))
            gradient = jax.grad(work.posterior.energy)(params, (x[rows], y[rows]))
            with jax.numpy_dtype_promotion("standard"):
                updates, optimizer_state = optimizer.update(
                    jax.tree.map(lambda g: g / work.posterior.num_data, gradient), optimizer_state
                )
            return (optax.apply_updates(params, updates), optimizer_state), None

        return jax.lax.scan(step, state, jax.random.split(key, steps))[0]

    contestants = {"roamax.sample": ours, "optax SGD": turns(bare, (work.position, optimizer.init(work.position)))}
    if not peers.missing("torch"):
        contestants["PyTorch SGD"] = peers.torch_sgd(peers.torch_cnn(depth=1, bottleneck=20), steps)
    mark = Mark("roamax.sample", "optax SGD", at_most=1.10)
    return Contest("`roamax.sample` with SGHMC, draws to disk, against a bare loop of optax SGD", contestants, mark,
                   work=steps)  # fmt: skip


def digits_run(chains: int, steps: int) -> Callable[[], Draws]:
    """Return a turn that runs chains of a perceptron on digits."""
    from roamax.tasks import TaskSpec

    task = TaskSpec("digits", "mlp", {"hidden": [64]}, batch_size=64).build()
    sampler = sghmc(task.posterior, **SETTINGS)
    return partial(sample, jax.random.key(0), sampler, task.init, task.train, batch_size=64,
                   burn_in=steps * 3 // 4, num_samples=10, thinning=steps // 40, num_chains=chains,
                   progress=False)  # fmt: skip


def four_chains() -> Contest:
    """Compare four parallel chains of a perceptron on digits with one."""
    steps = 2000
    contestants = {"four chains": digits_run(4, steps), "one chain": digits_run(1, steps)}
    return Contest("four chains against one, perceptron on digits, a device for each", contestants,
                   Mark("four chains", "one chain", at_most=2.5), work=steps)  # fmt: skip


def predictions() -> Contest:
    """Compare `predict`, with 100 draws on 10,000 images, with the forward passes alone."""
    draws, size, work = 100, BATCH_SIZE, network("mlp", (28, 28, 1), count=10_000, hidden=[64])
    kept = Draws.from_positions(jax.tree.map(lambda leaf: jnp.stack([leaf] * draws)[None], work.position))
    forward = jax.jit(work.apply)
    x = work.data[0]
    batches = [x[start : start + size] for start in range(0, len(x), size)]

    def passes() -> None:
        for _ in range(draws):
            jax.block_until_ready([forward(work.position, batch) for batch in batches])

    contestants = {"predict": lambda: predict(work.apply, kept, x), "forward passes": passes}
    return Contest("`predict` with 100 draws on 10,000 images against 100 forward passes", contestants,
                   Mark("predict", "forward passes", at_most=1.15), work=draws)  # fmt: skip


def prediction_batches() -> Contest:
    """Compare `predict` of a CNN, with 4 of 100 draws on 10,000 images, with the batch size that is best."""
    draws, work = 4, network("cnn_fashion", (28, 28, 1), count=10_000)
    x = work.data[0]
    sizes = {f"of {size}": size for size in (32, 64, 128, 256, 512, 2048)}
    contestants = {
        label: partial(predict, work.apply, [work.position] * draws, x, batch_size=size)
        for label, size in {"default": None, **sizes}.items()
    }
    return Contest("`predict` of cnn_fashion on 10,000 images, the default batch against the best", contestants,
                   Mark("default", BEST, at_most=1.1), work=draws)  # fmt: skip


def prediction_memory() -> Contest:
    """Compare the peak memory of sampling to disk and predicting between two numbers of draws."""
    contestants = {f"{draws:,} draws": partial(_megabytes, draws) for draws in (1000, 10)}
    return Contest("peak memory of sampling to disk and predicting, 1,000 draws against 10", contestants,
                   Mark("1,000 draws", "10 draws", at_most=1.05), unit="MB", measure=result_of)  # fmt: skip


def sample_and_predict(draws: int) -> dict[str, float]:
    """Take draws of 50,000 parameters to disk, predict with them, and return the peak memory of this process."""
    work = network("mlp", (28, 28, 1), count=10_000, hidden=[64])
    sampler = sghmc(work.posterior, **SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        kept = sample(jax.random.key(0), sampler, work.position, work.data, batch_size=BATCH,
                               num_samples=draws, out=Path(folder) / "run", progress=False)  # fmt: skip
        predict(work.apply, kept, work.data[0])
    return {"megabytes": apart.peak_megabytes()}


def _megabytes(draws: int) -> float:
    return apart.call(sample_and_predict, draws)["megabytes"]
