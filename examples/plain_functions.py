"""A classifier in plain functions, with a custom prior.

Parameters are a dictionary, the network is a function of them, and the prior is any function that returns a log
density. Here it is a Student-t: its heavy tails let a few weights grow large, which a Gaussian does not.

    python examples/plain_functions.py
"""

import sys

import jax
import jax.numpy as jnp

import roamax


def network(params, x):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def student_t_prior(params, degrees=4.0, scale=1.0):
    """Return the sum over all parameters of the log density of a Student-t."""
    leaves = jax.tree.leaves(params)
    return sum(jnp.sum(jax.scipy.stats.t.logpdf(leaf, degrees, 0.0, scale)) for leaf in leaves)


def start(key):
    """Return the initial position of a chain; each chain has its own key."""
    one, two = jax.random.split(key)
    return {
        "w1": jax.random.normal(one, (2, 32)) / jnp.sqrt(2.0),
        "b1": jnp.zeros(32),
        "w2": jax.random.normal(two, (32, 2)) / jnp.sqrt(32.0),
        "b2": jnp.zeros(2),
    }


def main(quick=False):
    data = roamax.data.load("two_moons")
    train, num_data = (data.x_train, data.y_train), len(data.x_train)
    for name, prior in {"Gaussian": roamax.priors.gaussian(variance=1.0), "Student-t": student_t_prior}.items():
        posterior = roamax.Posterior(roamax.categorical(network), prior, num_data)
        sampler = roamax.sghmc(posterior, **roamax.from_learning_rate(0.1, momentum_decay=0.1, num_data=num_data))
        draws = roamax.sample(
            jax.random.key(0), sampler, start, train, batch_size=100,
            burn_in=300 if quick else 20_000, num_samples=10 if quick else 100, thinning=20 if quick else 200,
        )  # fmt: skip
        probs = roamax.predict(network, draws, data.x_test)
        nll = roamax.metrics.nll(probs, data.y_test)
        print(f"{name} prior: accuracy {roamax.metrics.accuracy(probs, data.y_test):.3f}, NLL {nll:.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
