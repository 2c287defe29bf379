"""What a step of L2E costs: beside SGHMC on two networks, and by the number of parameters.

python benchmarks/step.py [--parts networks scaling memory] [--rounds 15] [--out results.json]

Samplers take turns within a round, so that whatever else the machine does falls on all of them; the time of a step is
that of the fastest round.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import roamax
from roamax import models, priors, trees
from roamax.posterior import categorical
from roamax.samplers.l2e import l2e_family

NETWORKS = {"cnn_fashion": ((28, 28, 1), 40), "resnet20_frn": ((32, 32, 3), 2)}
"""The shape of an input, and the steps of a round."""
BATCH = 128


def samplers(posterior):
    weights = l2e_family(step_size=1e-3, friction=0.1).init(jax.random.key(0))
    settings = {"step_size": 1e-3, "friction": 0.1}
    return {
        "sghmc": roamax.sghmc(posterior, **settings),
        "l2e": roamax.l2e(posterior, weights, **settings),
        "l2e, one pass": roamax.l2e(posterior, weights, **settings, passes=1),
    }


def segment(sampler, length):
    """`length` steps on one batch, compiled, with the state kept in place."""

    def run(state, key, batch):
        def body(state, key):
            state, info = sampler.step(key, state, batch)
            return state, info.energy

        return jax.lax.scan(body, state, jax.random.split(key, length))[0]

    return jax.jit(run, donate_argnums=0)


def seconds_a_step(by_name, position, batch, length, rounds):
    """The least time of a step of each sampler over `rounds`, each of `length` steps of every sampler in turn."""
    runs = {name: segment(sampler, length) for name, sampler in by_name.items()}
    states = {
        name: sampler.init(jax.random.key(0), jax.tree.map(jnp.copy, position)) for name, sampler in by_name.items()
    }
    best = dict.fromkeys(by_name, float("inf"))
    for turn in range(rounds + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            states[name] = jax.block_until_ready(run(states[name], jax.random.key(turn), batch))
            if turn > 0:  # The first round compiles.
                best[name] = min(best[name], (time.perf_counter() - begin) / length)
    return best


def measure_networks(rounds):
    rows = []
    for network, (shape, length) in NETWORKS.items():
        model = models.get(network)
        x = jax.random.uniform(jax.random.key(0), (BATCH, *shape))
        y = jax.random.randint(jax.random.key(1), (BATCH,), 0, 10)
        position = model.init(jax.random.key(2), x[:1])
        posterior = roamax.Posterior(categorical(model.apply), priors.gaussian(variance=0.1), 50_000)
        best = seconds_a_step(samplers(posterior), position, (x, y), length, rounds)
        for name, seconds in best.items():
            rows.append(
                {
                    "network": network,
                    "parameters": trees.size(position),
                    "sampler": name,
                    "ms": seconds * 1e3,
                    "ratio": seconds / best["sghmc"],
                }
            )
            print("{network:14s} {parameters:8d} {sampler:14s} {ms:9.3f} ms  {ratio:5.2f} x sghmc".format(**rows[-1]))
    return rows


def bare_posterior():
    """An energy that costs next to nothing, so that a step is the sampler's own work."""
    return roamax.Posterior(lambda theta, batch: jnp.zeros(1), lambda theta: -0.5 * jnp.sum(theta**2), 1)


def measure_scaling(rounds):
    rows = []
    for exponent in (4, 5, 6, 7):
        count = 10**exponent
        position = jax.random.normal(jax.random.key(0), (count,))
        length = max(1, min(100, 10**6 // count))
        best = seconds_a_step(samplers(bare_posterior()), position, jnp.zeros(1), length, rounds)
        for name, seconds in best.items():
            rows.append({"parameters": count, "sampler": name, "ns a parameter": seconds / count * 1e9})
            print(f"{count:9d} parameters {name:14s} {rows[-1]['ns a parameter']:7.1f} ns a parameter")
    return rows


def measure_memory(_):
    rows = []
    for name, sampler in samplers(bare_posterior()).items():
        for exponent in (5, 6, 7):
            count = 10**exponent + 17  # No whole number of groups, as in any real network.
            position = jax.ShapeDtypeStruct((count,), jnp.float32)
            state = jax.eval_shape(sampler.init, jax.random.key(0), position)
            step = jax.jit(sampler.step, donate_argnums=1)
            memory = step.lower(jax.random.key(0), state, jnp.zeros(1)).compile().memory_analysis()
            peak = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
            floats = (peak + memory.temp_size_in_bytes) / 4 / count
            rows.append({"parameters": count, "sampler": name, "floats a parameter": floats})
            print(f"{count:9d} parameters {name:14s} {floats:6.2f} floats a parameter")
    return rows


PARTS = {"networks": measure_networks, "scaling": measure_scaling, "memory": measure_memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = {part: PARTS[part](arguments.rounds) for part in arguments.parts}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
