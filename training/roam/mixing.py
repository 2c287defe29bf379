"""Whether `roam`'s draws at T = 1 from one long cycle are the posterior with too few draws, or have not mixed.

python training/roam/mixing.py [barriers]

First, on `half` and `small`, the error barriers between successive draws, and their cosine similarities, of ten cycles
of 5,000 steps, without and with new starts, and of cyclical SGHMC in as many. With `barriers`, that is all.
Then, on `small`, the NLL of one draw (mean over draws), and of averages over more and more draws, on validation data,
for SGHMC with two step sizes and for `roam` in long and in short cycles, 100,000 steps each.
"""

import sys

import jax
import numpy as np
from evaluate import TASKS
from runs import draws, nll, task_of

import roamax
from roamax import landscape
from roamax.sampling.named import named_sampler

STEPS, KEPT = 100_000, 100


def row(name: str, logs: jax.Array) -> None:
    """Print one line: single draws of the first and the second half, and averages of the last draws."""
    half = len(logs) // 2
    single = [float(np.mean([nll(log[None]) for log in part])) for part in (logs[:half], logs[half:])]
    averages = "  ".join(f"{count}: {float(nll(logs[-count:])):.3f}" for count in (10, 50, 100))
    print(f"{name:22} one draw {single[0]:.3f}, {single[1]:.3f}  averages of {averages}", flush=True)


def barriers(name: str) -> None:
    """Print the barriers between the ends of cycles."""
    task = task_of(TASKS[name])
    samplers = {
        "roam": roamax.roam(task.posterior, cycle_length=5_000),
        "roam, new starts": roamax.roam(task.posterior, cycle_length=5_000, cycles_per_start=2),
        "cyclical SGHMC": named_sampler(
            "cyclical", task.posterior, num_steps=50_000, num_samples=10, init=task.init, batch_size=task.batch_size
        ),
    }
    for label, sampler in samplers.items():
        drawn = roamax.sample(
            jax.random.key(0),
            sampler,
            task.init,
            task.train,
            batch_size=task.batch_size,
            num_samples=10,
            progress=False,
        )
        found = landscape.error_segments(task.apply, drawn, task.valid).error_barrier.round(3)
        cosine = np.diag(landscape.cosine_similarity(drawn), 1).round(3)
        print(f"{name}, {label}: error barriers {found}, cosines {cosine}", flush=True)


def main() -> None:
    """Print the tables."""
    for name in ("half", "small"):
        barriers(name)
    if sys.argv[1:] == ["barriers"]:
        return
    task, key = task_of(TASKS["small"]), jax.random.key(0)

    def run(sampler: roamax.Sampler, ends: np.ndarray) -> jax.Array:
        compiled = jax.jit(lambda train, valid: draws(sampler, task, ends, key, train, valid))
        return compiled(task.train, task.valid)

    evenly = np.linspace(0, STEPS, KEPT + 1, dtype=int)[1:]
    for rate in (0.01, 0.003):
        terms = roamax.from_learning_rate(rate, momentum_decay=0.1, num_data=task.posterior.num_data)
        row(f"SGHMC, rate {rate}", run(roamax.sghmc(task.posterior, **terms), evenly))
    for length in (10_000, 2_000):
        sampler = roamax.roam(task.posterior, cycle_length=length, draws_per_cycle=length // 1_000)
        ends = [step for step in range(1, STEPS + 1) if sampler.collect and sampler.collect(step)]
        row(f"roam, cycles of {length:,}", run(sampler, np.asarray(ends)))


if __name__ == "__main__":
    main()
