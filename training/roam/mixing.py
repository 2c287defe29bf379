"""Whether `roam`'s draws at T = 1 from one long cycle are the posterior with too few draws, or have not mixed.

python training/roam/mixing.py

First, on `half`, the error barriers between the draws of five cycles of 2,000 steps, and their cosine similarities.
Then, on `small`, the NLL of one draw (mean over draws), and of averages over more and more draws, on validation data,
for SGHMC with two step sizes and for `roam` in long and in short cycles, 100,000 steps each.
"""

import jax
import numpy as np
from evaluate import TASKS
from runs import draws, nll, task_of

import roamax
from roamax import landscape

STEPS, KEPT = 100_000, 100


def row(name: str, logs: jax.Array) -> None:
    """Print one line: single draws of the first and the second half, and averages of the last draws."""
    half = len(logs) // 2
    single = [float(np.mean([nll(log[None]) for log in part])) for part in (logs[:half], logs[half:])]
    averages = "  ".join(f"{count}: {float(nll(logs[-count:])):.3f}" for count in (10, 50, 100))
    print(f"{name:22} one draw {single[0]:.3f}, {single[1]:.3f}  averages of {averages}", flush=True)


def barriers() -> None:
    """Print the barriers between the ends of cycles."""
    task = task_of(TASKS["half"])
    sampler = roamax.roam(task.posterior, cycle_length=2_000)
    drawn = roamax.sample(
        jax.random.key(0), sampler, task.init, task.train, batch_size=task.batch_size, num_samples=5, progress=False
    )
    segments = landscape.error_segments(task.apply, drawn, task.valid)
    cosine = landscape.cosine_similarity(drawn)
    print("half, error barriers", segments.error_barrier.round(3), "cosines", np.diag(cosine, 1).round(3), flush=True)


def main() -> None:
    """Print the tables."""
    barriers()
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
