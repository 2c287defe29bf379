"""Growth of time and memory with parameters, chains, draws and inner steps, and the limits of the machine."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import apart, contests, pairs
from benchmarks.timing import Spread, take_turns
from benchmarks.work import SETTINGS, in_scan, network_flops, turns
from roamax.posterior import Posterior
from roamax.samplers.learned.l2e import DECAYS, l2e, l2e_family
from roamax.samplers.sghmc import sghmc
from roamax.types import Sampler

Rows = list[dict[str, Any]]
FLOAT = 4
PARAMETERS = (10**4, 10**5, 10**6, 10**7)
CHAINS = (1, 2, 4, 8, 16)
DRAWS = (10, 100, 1000)
INNER_STEPS = (40, 120, 400, 1200)


def limits(rounds: int) -> dict[str, float]:
    """Measure the machine's limits per second: FLOPs of a matrix product, bytes to and from memory."""
    side, length = 1024, 2**25
    square = jnp.ones((side, side))
    product = jax.jit(jnp.dot)
    add_one = turns(jax.jit(lambda x, _: x + 1, donate_argnums=0), jnp.zeros(length))
    found = take_turns({"product": lambda: jax.block_until_ready(product(square, square)), "add": add_one}, rounds)
    # The fastest turn counts: a limit is what the machine can do, not what it usually does.
    return {
        "flops": 2 * side**3 / min(found["product"]),
        "bytes": 2 * FLOAT * length / min(found["add"]),
    }


def state_floats(sampler: str) -> int:
    """Count the numbers in a sampler's state per parameter: position, momentum, and L2E's running averages."""
    return 2 + (len(DECAYS) if sampler == "L2E" else 0)


def least_seconds(sampler: str, parameters: float, flops: float, bandwidth: float) -> float:
    """Return the roofline: the least time in which a step can read and write its state and compute its network."""
    moved = 2 * FLOAT * state_floats(sampler) * parameters / bandwidth
    computed = network_flops() * parameters / flops if sampler == "L2E" else 0.0
    return max(moved, computed)


def by_parameters(rounds: int) -> Rows:
    """Measure time and memory per step vs. parameters, on an energy that costs next to nothing."""
    rows = []
    for count in PARAMETERS:
        steps = max(1, min(100, 10**6 // count))
        samplers = bare_samplers()
        position = jax.random.normal(jax.random.key(1), (count,))
        contestants = {name: in_scan(sampler, position, jnp.zeros(1), steps) for name, sampler in samplers.items()}
        found = take_turns(contestants, rounds)
        for name, sampler in samplers.items():
            spread = Spread.of([seconds / steps for seconds in found[name]])
            rows.append(
                {
                    "parameters": count,
                    "sampler": name,
                    **spread._asdict(),
                    "floats": floats_per_parameter(sampler, count),
                }
            )
    return rows


def by_chains(rounds: int) -> Rows:
    """Measure the time per step of all chains vs. their number, for a perceptron on digits."""
    steps = 400
    found = take_turns({str(count): contests.digits_run(count, steps) for count in CHAINS}, rounds)
    return [
        {"chains": count, **Spread.of([seconds / steps for seconds in found[str(count)]])._asdict()} for count in CHAINS
    ]


def by_draws(rounds: int) -> Rows:
    """Measure the peak memory of sampling to disk and predicting vs. the number of draws."""
    # Compiling takes memory too: the first process fills the compilation cache for the others.
    apart.call(contests.sample_and_predict, DRAWS[0])
    return _apart("draws", DRAWS, contests.sample_and_predict)


def by_inner_steps(rounds: int) -> Rows:
    """Measure time and peak memory of an antithetic pair of meta-training vs. inner steps."""
    return _apart("inner_steps", INNER_STEPS, pairs.cost_of_pair)


def bare_samplers() -> dict[str, Sampler]:
    """Return SGHMC and L2E on an energy that costs next to nothing, so that a step is the work of the sampler."""
    posterior = Posterior(lambda theta, batch: jnp.zeros(1), lambda theta: -0.5 * jnp.sum(theta**2), 1)
    weights = l2e_family(**SETTINGS).init(jax.random.key(0))
    return {"SGHMC": sghmc(posterior, **SETTINGS), "L2E": l2e(posterior, weights, **SETTINGS)}


def floats_per_parameter(sampler: Sampler, count: int) -> float:
    """Return the peak memory of a compiled step with a donated state, in floats per parameter."""
    position = jax.ShapeDtypeStruct((count,), jnp.float32)
    state = jax.eval_shape(sampler.init, jax.random.key(0), position)
    step = jax.jit(sampler.step, donate_argnums=1)
    memory = step.lower(jax.random.key(0), state, jnp.zeros(1)).compile().memory_analysis()
    assert memory is not None
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return (held + memory.temp_size_in_bytes) / FLOAT / count


def _apart(name: str, sizes: Sequence[int], function: Any) -> Rows:
    return [{name: size, **apart.call(function, size)} for size in sizes]
