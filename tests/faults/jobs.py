"""A short sampling run and a short meta-training run, which faults are let loose on."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import roamax
from roamax import meta, runs
from roamax.host import files
from roamax.meta import Stage, log
from targets import linear_regression
from test_meta import SMALL, TASKS, use_toy_family

TARGET = linear_regression(num_data=50)
# One sampler for all runs of a process, so that it is compiled once.
SAMPLER = roamax.sghmc(TARGET.posterior, step_size=0.02, friction=1.0)


def training(es_steps, pes_steps):
    """A config that compiles in no time; the second stage has persistent unrolls under way at most of its steps."""
    stages = Stage("es", es_steps, 20, 2, 5, pairs=2), Stage("pes", pes_steps, 20, 2, 5, truncation=5, pairs=2)
    return dataclasses.replace(SMALL, stages=stages, valid_every=2, valid_problems=1)


def sample(out, num_samples=2, **options):
    """Draws of two chains, the state saved after every segment."""
    settings = {"batch_size": 8, "burn_in": 2, "thinning": 2, "num_chains": 2, "checkpoint_seconds": 0.0} | options
    start = {"theta": jnp.zeros(3)}
    key = settings.pop("key", jax.random.key(0))
    return roamax.sample(key, SAMPLER, start, TARGET.data, num_samples=num_samples, out=out, **settings)


def long_sample(out):
    """Draws enough to be killed in between, with checkpoints less often than draws."""
    return sample(out, num_samples=40, checkpoint_seconds=0.05)


def chain_bits(out) -> dict[str, np.ndarray]:
    """All that a finished sampling run has come to, read from its folder."""
    draws = roamax.Draws.load(out)
    return {"steps": np.asarray(draws.steps), "theta": draws.positions["theta"], **state_bits(out)}


def prepare_training(setattr=setattr):
    """Let `train` compile in no time, draw no picture, and save its state after every step."""
    use_toy_family(setattr)
    setattr(meta.trainer, "SAVE_SECONDS", 0.0)
    setattr(log, "plot", lambda log, picture: None)


def train(out, config=None, **options):
    """Meta-training of the toy family."""
    return meta.train(config or training(1, 2), out, tasks=TASKS, **options)


def long_train(out):
    """Outer steps enough to be killed in between."""
    return train(out, training(4, 12))


def train_bits(out) -> dict[str, np.ndarray]:
    """All that a finished meta-training run has come to, but for what a clock wrote."""
    rows = [row._replace(seconds=0, compile_seconds=0) for row in log.read_rows(Path(out) / "log.csv")]
    weights = files.read_tensors(Path(out) / "weights.safetensors")
    results = files.read_json(Path(out) / "results.json")
    assert results["validation_loss"] == files.read_json(Path(out) / "weights.json")["meta_loss"]
    return {"log": np.asarray([str(row) for row in rows]), **weights, **state_bits(out)}


def state_bits(out) -> dict[str, np.ndarray]:
    pointer = runs.read_pointer(Path(out) / "state")
    assert pointer is not None
    tensors = files.read_tensors(Path(out) / "state" / pointer["file"], pointer["sha256"])
    return {"step": np.asarray(pointer["step"]), **{f"state.{name}": tensor for name, tensor in tensors.items()}}


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
        assert found[name].dtype == value.dtype


def assert_no_listed_draw_is_damaged(out, whole):
    """Of a run that was broken off, every draw that the journal lists is whole, and the right one."""
    if (Path(out) / "draws" / "journal.jsonl").exists():
        draws = roamax.Draws.load(out)
        assert draws.steps == list(whole["steps"][: draws.num_samples])
        if draws.num_samples:
            np.testing.assert_array_equal(draws.positions["theta"], whole["theta"][:, : draws.num_samples])
