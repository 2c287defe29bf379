"""A new sampler is a file, a record and a row: CONTRIBUTING's example, so added, is wherever samplers are."""

import json
import re
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from docs import hooks
from sklearn.datasets import load_iris

import roamax
import test_conformance
from roamax.cli import demo_methods as demo
from roamax.cli import main
from roamax.paper.framework.methods import method
from roamax.paper.framework.problems import CPU
from roamax.samplers import registry
from targets import linear_regression

ROOT = Path(__file__).parent.parent


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def walk(monkeypatch):
    """The example's file, record and row, and nothing else."""
    (file,), (record, row) = blocks("python"), blocks("py")
    module = types.ModuleType("roamax.samplers.walk")
    exec(file, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.RECORDS, "walk", eval(record, vars(registry)))
    monkeypatch.setitem(test_conformance.SAMPLERS, "walk", eval(row)["walk"])


def test_a_new_sampler_runs_from_python_and_in_an_estimator(walk):
    target = linear_regression(num_data=50)
    sampler = roamax.walk(target.posterior, step_size=1e-3)
    draws = roamax.sample(jax.random.key(0), sampler, {"theta": jnp.zeros(3)}, target.data, num_samples=3)
    assert draws.positions["theta"].shape == (1, 3, 3)
    few = {"num_chains": 1, "num_samples": 2, "burn_in": 100, "thinning": 5, "hidden": (8,), "random_state": 0}
    x, y = load_iris(return_X_y=True)
    assert roamax.BayesianClassifier(sampler="walk", **few).fit(x, y).score(x, y) > 0.8


def test_a_new_sampler_runs_on_the_command_line(walk, tmp_path, capsys):
    short = ["--options", "hidden=[8]", "--batch-size", "32", "--burn-in", "4", "--thinning", "2", "--num-samples", "2"]
    main(["sample", "--sampler", "walk", *short, "--out", str(tmp_path / "run"), "--json"])
    results = json.loads(capsys.readouterr().out)
    assert results["draws"] == 2
    assert results["sampler"] == {"name": "walk", "step_size": 0.1 / 1294, "temperature": 1.0}
    main(["completion", "bash"])
    assert "walk" in capsys.readouterr().out


def test_a_new_sampler_is_in_the_demo_the_experiments_and_the_reference(walk):
    task = demo.problem(0).task
    assert [one.name for one in demo.methods(task)][-1] == "random walk"
    tuned = {"epsilon_squared": 1e-5, "momentum_decay": 0.1}
    made = method("random walk", next(iter(CPU.values())), task, tuned)
    assert made.sampler.settings["step_size"] == 1e-5
    assert "| `walk` | random walk | gradient descent with noise |" in hooks.samplers()
    assert "::: roamax.samplers.walk.walk" in hooks.samplers()


def test_a_new_sampler_is_held_to_the_contract(walk):
    test_conformance.test_every_sampler_has_a_row()
    test_conformance.test_step_keeps_structure_and_compiles_once_and_has_no_memory_of_its_own("walk")
    test_conformance.test_keys_and_gradients_matter("walk")
    test_conformance.test_steps_can_be_traced_for_many_chains_in_a_loop("walk")
    test_conformance.test_runs_in_the_runner("walk")
    test_conformance.test_a_sampler_knows_its_name_and_its_posterior("walk")


def test_the_readme_names_samplers_that_there_are():
    rows = re.findall(r"^\| (`.*?) \| .* \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall("`(\\w+)`", row)}
    assert named <= set(registry.names())
