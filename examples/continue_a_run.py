"""Draws on disk: stop a run at any moment, resume it later, and get the same draws as from an unbroken run.

With `out`, every draw is written to a file as soon as it is taken. Calling again with the same arguments resumes the
run; `num_samples` may have grown. Other arguments for the same folder are refused.

    python examples/continue_a_run.py
"""

import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import roamax
from roamax.tasks import TaskSpec


def main(quick=False):
    task = TaskSpec("digits", "mlp", {"hidden": [32]}).build()
    settings = roamax.from_learning_rate(0.1, momentum_decay=0.1, num_data=task.posterior.num_data)
    sampler = roamax.sghmc(task.posterior, **settings)

    def run(num_samples, out=None):
        return roamax.sample(
            jax.random.key(0), sampler, task.init, task.train, batch_size=task.batch_size,
            burn_in=100 if quick else 10_000, num_samples=num_samples, thinning=10 if quick else 1000, out=out,
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        print(f"first: {run(4, folder)}")
        print(f"then:  {run(10, folder)}")

        # Any process can read the draws, one by one or all at once; each is checked against its checksum.
        draws = roamax.Draws.load(folder)
        unbroken = run(10)
        same = jax.tree.map(lambda a, b: np.array_equal(a, b), draws.positions, unbroken.positions)
        print(f"the same bits as an unbroken run: {all(jax.tree.leaves(same))}")
        try:
            run(3, folder)
        except roamax.errors.InputError as error:
            print(f"refused: {error}".replace(str(folder), "FOLDER"))


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
