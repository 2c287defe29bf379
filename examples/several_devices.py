"""Several chains on several devices, without any set-up.

`roamax.sample` spreads chains evenly over the local devices: GPUs or, as here, several CPU devices. The draws do not
depend on the number of devices, since each chain has its own key.

    python examples/several_devices.py
"""

import sys

import jax

# The number of CPU devices has to be set before JAX computes anything.
jax.config.update("jax_num_cpu_devices", 2)

import roamax  # noqa: E402
from roamax.tasks import TaskSpec  # noqa: E402


def main(quick=False):
    task = TaskSpec("digits", "mlp", {"hidden": [32]}).build()
    settings = roamax.from_learning_rate(0.1, momentum_decay=0.1, num_data=task.posterior.num_data)
    draws = roamax.sample(
        jax.random.key(0), roamax.sghmc(task.posterior, **settings), task.init, task.train, batch_size=task.batch_size,
        burn_in=200 if quick else 10_000, num_samples=4 if quick else 20, thinning=20 if quick else 500, num_chains=4,
    )  # fmt: skip
    x, y = task.test
    print(f"{draws} on {jax.local_device_count()} devices")
    for chain in range(draws.num_chains):
        own = [draws[chain, number] for number in range(draws.num_samples)]
        print(f"chain {chain}: NLL {roamax.metrics.nll(roamax.predict(task.apply, own, x), y):.3f}")
    print(f"all: NLL {roamax.metrics.nll(roamax.predict(task.apply, draws, x), y):.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
