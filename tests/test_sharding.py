"""What `benchmarks.scaling` assumes of a step that eight devices share: its numbers, its collectives, its memory."""

import re
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import apart, scaling
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import roamax
from roamax import priors
from roamax.likelihoods import categorical

DEVICES, TENSORS = 8, 6
SETTINGS = {"step_size": 0.01, "friction": 1.0, "output_scale": 1.0}


def network(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def problem(hidden):
    """A perceptron with six tensors, none of which ends where a device's share does."""
    rng = np.random.default_rng(0)
    widths = (20, hidden, hidden, 10)
    position = [
        {"w": rng.normal(size=(a, b)).astype(np.float32), "b": rng.normal(size=b).astype(np.float32)}
        for a, b in pairwise(widths)
    ]
    x, y = rng.normal(size=(64, 20)).astype(np.float32), rng.integers(0, 10, 64).astype(np.int32)
    posterior = roamax.Posterior(categorical(network), priors.gaussian(variance=0.1), 1000)
    weights = roamax.l2e_family(**SETTINGS).init(jax.random.key(2))
    return posterior, weights, jax.tree.map(jnp.asarray, position), (x, y)


def shared_step(hidden, num_steps):
    """In a process with eight devices: how far shared steps are from unshared ones, and what was compiled."""
    posterior, weights, position, batch = problem(hidden)
    mesh = jax.make_mesh((DEVICES,), ("devices",), axis_types=(AxisType.Auto,))
    whole, split = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("devices",)))
    sampler = roamax.l2e(posterior, weights, **SETTINGS, mesh=mesh)
    state = sampler.init(jax.random.key(4), jax.tree.map(jnp.copy, position))
    layout = state._replace(
        position=jax.tree.map(lambda _: whole, position),
        momentum=split,
        averages=NamedSharding(mesh, PartitionSpec(None, "devices")),
        step=whole,
    )
    step = jax.jit(sampler.step, donate_argnums=1, in_shardings=(None, layout, split), out_shardings=(layout, None))
    compiled = step.lower(jax.random.key(0), state, batch).compile()
    alone = roamax.l2e(posterior, weights, **SETTINGS)
    unshared, expected = jax.jit(alone.step), alone.init(jax.random.key(4), position)
    for number in range(num_steps):
        state, _ = step(jax.random.key(number), state, batch)
        expected, _ = unshared(jax.random.key(number), expected, batch)
    far = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), state.position, expected.position)
    moved = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), state.position, position)
    memory = compiled.memory_analysis()
    return {
        "far": max(jax.tree.leaves(far)),
        "moved": min(jax.tree.leaves(moved)),
        "collectives": collectives(compiled.as_text()),
        "share": [piece.data.shape[0] for piece in state.momentum.addressable_shards],
        "groups": len(state.momentum),
        "floats": (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 4,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(position)),
    }


def collectives(program):
    """Each collective of a compiled program with the numbers in its result."""
    found = []
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
    for result, kind in re.findall(rf"= (\(?f32.*?) ({kinds})(?:-start)?\(", program):
        shapes = re.findall(r"f32\[([\d,]*)\]", result)
        found.append([kind, int(sum(np.prod([int(n) for n in shape.split(",") if n]) for shape in shapes))])
    return found


def in_a_process(native):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        patch.setenv("ROAMAX_NATIVE", native)
        return apart.call(shared_step, 24, 3, devices=DEVICES)


@pytest.fixture(scope="module")
def shared():
    """As on accelerators, of which the model is: without functions in C++, which hold no hidden units in memory."""
    return in_a_process(native="0")


def test_steps_that_devices_share_are_those_of_one(shared):
    for found in (shared, in_a_process(native="1")):
        assert found["moved"] > 1e-3
        assert found["far"] < 1e-4 * found["moved"]
    assert shared["share"] == [shared["groups"] // DEVICES] * DEVICES


def test_a_shared_step_holds_the_collectives_that_the_model_counts_and_no_others(shared):
    counted = scaling.collectives(shared["parameters"], TENSORS)
    assert [kind for kind, _ in shared["collectives"]] == [one.kind for one in counted]
    for (kind, floats), one in zip(shared["collectives"], counted, strict=True):
        # The energy is summed along with one of them, and a gathered position is filled up to whole shares.
        filling = 64 * shared["groups"] - one.floats if kind == "all-gather" else 1
        assert one.floats <= floats <= one.floats + filling


def test_a_device_holds_what_the_model_says(shared):
    filled = 64 * shared["groups"]
    assert 0.5 < shared["floats"] / scaling.floats_held(filled, DEVICES) < 1.1


def test_the_model_grows_as_it_must():
    one, many = scaling.step(10**9, 1), scaling.step(10**9, 64)
    assert one.communication == 0
    assert one.gradient == pytest.approx(64 * many.gradient)
    assert one.update == pytest.approx(64 * many.update)
    # A ring sends each number nearly three times: twice for the sum of gradients, once for the position.
    assert many.communication == pytest.approx(3 * 4e9 / 200e9, rel=0.03)
    assert scaling.busy_share(1000, 1.0, message_seconds=1e-3) == pytest.approx(0.5)
    assert "1,000,000,000 | 64" in scaling.step_table()
    # With 8 units, reading and writing eight numbers per parameter takes longer than the network.
    narrow = scaling.step(10**9, 1, widths=scaling.NARROW)
    assert narrow.update == pytest.approx(2 * 4 * 8 * 1e9 / 2e12)
    assert (one.memory - narrow.memory) / 4e9 == pytest.approx(2 * (32 - 8))
    assert scaling.worker_table().count("%") == 9
