"""Experiments at a scale of their own, tiny: every one runs, writes its files, goes on, and compares with the paper."""

import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.flatten_util
import numpy as np
import pytest
from docs import standing

from roamax import pretrained
from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.meta.config import SamplerName, TrainConfig
from roamax.meta.families import make_family
from roamax.numerics import trees
from roamax.paper import (
    augmentation,
    convergence,
    corruption,
    cost,
    hmc_fidelity,
    meta_loss,
    meta_sgmcmc,
    ood,
    regression_1d,
    transfer,
)
from roamax.paper.framework import methods, search
from roamax.paper.framework.chain import Chain, Setup, prepare, scores
from roamax.paper.framework.claims import Claim, above, below
from roamax.paper.framework.comparison import Comparison, Value, exceeds, printed
from roamax.paper.framework.lab import Lab
from roamax.paper.framework.methods import L2E_TUNED, LEARNED, method, task_of
from roamax.paper.framework.problems import CPU, LONG, PAPER, SCALES, Problem
from roamax.paper.framework.problems import TUNED as TUNED_SETTINGS
from roamax.paper.framework.queue import plan_queue, run_queue
from roamax.paper.framework.records import Answer, Records, Seconds
from roamax.paper.framework.registry import EXPERIMENTS, run_experiment
from roamax.paper.framework.results import write_page
from roamax.paper.framework.summary import summary
from roamax.paper.framework.swag import swag
from roamax.parallel.workers import hired
from roamax.report.table import latex, markdown
from roamax.samplers.learned import _network
from roamax.sampling.draws import Draws
from roamax.tasks import TaskSpec

ADAM = {"learning_rate": 3e-3, "weight_decay": 5e-4}
SGMCMC = {"epsilon_squared": 1e-4, "momentum_decay": 0.1, "weight_decay": 5e-4, "temperature": 1.0}
TUNED = {
    "Adam": ADAM,
    "Muon": ADAM,
    "Adam DE": {**ADAM, "members": 2},
    "snapshots": {**ADAM, "cycles": 2},
    "SWAG": {**ADAM, "scale": 0.5},
    "DE": {"learning_rate": 0.05, "momentum_decay": 0.1, "weight_decay": 5e-4, "members": 2},
    **dict.fromkeys(("SGHMC", "PX-SGHMC", "SMS-UBU", "SMILE"), SGMCMC),
    "cSGMCMC": {**SGMCMC, "cycles": 2, "exploration_ratio": 0.5},
}


def tiny(label, data, model, options):
    spec = TaskSpec(data, model, options, halve=data != "imdb", batch_size=8)
    # `transfer` searches for what a problem does not have.
    hyper = {name: settings for name, settings in TUNED.items() if name != "Adam"}
    return Problem(label, spec, burn_in=4, draws=4, thinning=4, members=2, hyper=hyper)


TINY = {
    "fashion_mnist": tiny("Fashion-MNIST", "fashion_mnist", "mlp", {"hidden": [3]}),
    "cifar10": tiny("CIFAR-10", "cifar10", "mlp", {"hidden": [3]}),
    "cifar100": tiny("CIFAR-100", "cifar100", "mlp", {"hidden": [3]}),
    "tiny_imagenet": tiny("Tiny-ImageNet", "tiny_imagenet", "mlp", {"hidden": [3]}),
    "imdb": tiny("IMDB", "imdb", "cnn_lstm", {"vocabulary": 50, "embedding": 2, "filters": 2, "units": 2, "length": 9}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of noise in the published shapes, weights of every learned sampler, and a home for chains."""
    home = tmp_path_factory.mktemp("experiments")
    rng = np.random.default_rng(0)
    shapes = {"fashion_mnist": (28, 28, 1), "mnist": (28, 28, 1), "notmnist": (28, 28, 1), "cifar10": (32, 32, 3),
              "svhn": (32, 32, 3), "tiny_imagenet_32": (32, 32, 3)}  # fmt: skip
    for name, shape in shapes.items():
        arrays = {
            f"x_{part}": rng.integers(0, 256, (size, *shape), np.uint8) for part, size in (("train", 60), ("test", 20))
        }
        labels = {f"y_{part}": np.arange(size) % 10 for part, size in (("train", 60), ("test", 20))}
        np.savez(home / f"{name}.npz", **arrays, **labels)
    texts = {f"x_{part}": rng.integers(0, 50, (size, 400), np.uint16) for part, size in (("train", 60), ("test", 20))}
    sentiments = {f"y_{part}": np.arange(size) % 2 for part, size in (("train", 60), ("test", 20))}
    np.savez(home / "imdb.npz", **texts, **sentiments)
    np.savez(home / "hmc_cifar10_reference.npz", probs=rng.dirichlet(np.ones(10), 20))
    for name, (record, _) in LEARNED.items():
        assert record.name in SamplerName.__args__
        meta_params = make_family(TrainConfig(sampler=record.name), 0.001).init(jax.random.key(1))
        flat = {key.replace("/", "."): leaf for key, leaf in trees.named_leaves(meta_params).items()}
        files.write_bytes(home / f"{name}.safetensors", files.pack_tensors(flat))
    return home


@pytest.fixture
def laboratory(folder, monkeypatch):
    """A function that runs an experiment at the tiny scale."""
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    monkeypatch.setitem(SCALES, "tiny", TINY)
    monkeypatch.setattr(corruption, "IMAGES", 4)
    monkeypatch.setattr(corruption.corruptions, "KINDS", ("gaussian_noise", "contrast"))
    monkeypatch.setattr(ood, "IMAGES", 10)
    monkeypatch.setattr(cost, "ROUNDS", 2)
    monkeypatch.setattr(convergence, "DRAWS", 4)
    monkeypatch.setattr(meta_sgmcmc, "BATCH_SIZE", 8)
    monkeypatch.setattr(meta_loss, "OUTER_STEPS", 3)
    monkeypatch.setattr(meta_sgmcmc, "STEPS", (4, 2))
    monkeypatch.setattr(meta_sgmcmc, "DRAWS", 4)
    monkeypatch.setattr(hmc_fidelity, "NUTS", {"burn_in": 10, "num_samples": 8, "num_chains": 2})
    small = hmc_fidelity.SMALL
    monkeypatch.setattr(hmc_fidelity, "SMALL", small._replace(burn_in=4, draws=4, thinning=4, members=2))
    sine = regression_1d.SMALL.problem._replace(burn_in=4, draws=4, thinning=2)
    tiny = {"problem": sine, "member_steps": 4, "adaptation_steps": 2, "draws": (4, 6)}
    monkeypatch.setattr(regression_1d, "SMALL", regression_1d.SMALL._replace(**tiny))
    monkeypatch.setattr(augmentation, "TEMPERATURES", {"DE": (0.0,), "L2E": (1.0, 0.01)})
    monkeypatch.setattr(search, "AXES", {name: axes[:1] for name, axes in search.AXES.items()})
    weights = {name: folder / f"{name}.safetensors" for name in LEARNED}

    def run(name, out, chains=folder / "chains", **options):
        return run_experiment(name, out, scale="tiny", chains=chains, seeds=2, weights=weights,
                              workers=1, progress=False, **options)  # fmt: skip

    return run


# These share their chains, and so little has to be compiled; `make torture` runs all. There are no data of CIFAR-100.
SOON = {
    "image-classification": ("cifar10", "cifar100"),
    "multimodality": ("cifar10",),
    "ood": ("cifar10",),
    "convergence": ("cifar10", "cifar100"),
    "update-analysis": ("cifar10",),
}


@pytest.fixture(scope="module")
def finished():
    """The results of experiments by their names."""
    return {}


@pytest.fixture
def experiment(laboratory, folder, finished):
    """A function that returns an experiment's results and folder; it is run once for all tests."""

    def run(name):
        out = folder / "out" / name
        if name not in finished:
            finished[name] = laboratory(name, out, problems=SOON.get(name, ()))
        return finished[name], out

    return run


@pytest.mark.parametrize(
    "name",
    [
        name if name in SOON else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.timeout(900)])
        for name in EXPERIMENTS
    ],
)
def test_an_experiment_writes_its_files_and_goes_on(name, experiment):
    results, out = experiment(name)
    assert results["tables"]
    for key, stored in results["tables"].items():
        table = Comparison.from_json(stored)
        assert any(math.isfinite(value.mean) for row in table.rows.values() for value in row.values())
        assert (out / f"{key}.md").read_text().count("\n") >= 3
        assert r"\toprule" in (out / f"{key}.tex").read_text()
    for key in results["figures"]:
        assert (out / f"{key}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{key}.pdf").read_bytes().startswith(b"%PDF")
    stored = json.loads((out / "results.json").read_text())
    assert (stored["experiment"], stored["made_by"]["seed"]) == (name, 0)
    assert stored["seeds"] == [0, 1][: {"cost": 0, "meta-loss": 1, "tune": 1, "update-analysis": 1}.get(name)]


def test_what_is_there_is_not_run_again_and_what_is_missing_is_said(experiment, laboratory, tmp_path, monkeypatch):
    first, _ = experiment("image-classification")
    assert any("roamax data fetch cifar100" in note for note in first["notes"])
    monkeypatch.setattr("roamax.sampling.chains.segment", None)  # a chain that is not there could not be run now
    again = laboratory("image-classification", tmp_path / "again", problems=SOON["image-classification"])
    assert again["tables"] == first["tables"]


def test_what_was_measured_needs_no_chains(experiment, laboratory, tmp_path, monkeypatch):
    first, out = experiment("multimodality")
    shutil.copytree(out, tmp_path / "multimodality")
    monkeypatch.setattr("roamax.sampling.chains.segment", None)
    options = {"scale": "tiny", "seeds": 2, "problems": ["cifar10"]}
    assert plan_queue(tmp_path, names=["multimodality"], methods=["DE"], **options) == []
    again = laboratory("multimodality", tmp_path / "multimodality", tmp_path / "none", problems=["cifar10"])
    assert again["tables"] == first["tables"]
    kept = files.read_json(out / "records.json").values()
    spent = {path: one for answers in kept for answer in answers.values() for path, one in answer["seconds"].items()}
    assert 0 < sum(spent.values()) / 60 <= again["minutes"] + 0.05
    assert not (tmp_path / "none").exists()
    # Another seed has no records.
    assert plan_queue(tmp_path, names=["multimodality"], methods=["DE"], **options | {"seed": 1})[0]["chains"] == 1


def test_records_hold_what_json_can_and_what_is_no_number(tmp_path):
    value = {"NLL": 0.1 + 0.2, "KLD": math.nan, "curve": [1, -math.inf], "name": "Adam"}
    found = {"kept": value, "array": np.ones(2), "alone": math.inf}
    answers = {name: Answer(value, None, {name: Seconds(0.0, 2.0)}) for name, value in found.items()}
    answers["again"] = Answer(None, "no weights", {}, is_final=False)
    answers["diverged"] = Answer(None, "it diverged", {})
    Records(tmp_path / "records.json").add(scores, answers)
    known = Records(tmp_path / "records.json").of(scores)
    assert {name: repr(answer.value) for name, answer in known.items()} == {
        "alone": "inf", "diverged": "None", "kept": repr(value)
    }  # fmt: skip
    assert known["kept"].seconds == {"kept": (2.0, 2.0)}
    json.loads((tmp_path / "records.json").read_text(), parse_constant=pytest.fail)


def test_a_queue_shares_chains_says_what_is_left_and_outlives_a_failure(laboratory, folder, monkeypatch):
    names, lines = ("image-classification", "ood", "multimodality"), []

    def fail(lab):
        lab.measure(lab.problems("cifar10"), ["DE"], scores)
        raise InputError("no such images")

    monkeypatch.setattr(ood, "run", fail)
    # The other tests have two seeds: chains of the third are missing.
    options = {"names": names, "scale": "tiny", "seeds": 3, "problems": ("cifar10",), "methods": ("DE",)}
    planned = plan_queue(folder, **options)
    results = run_queue(folder, report=lines.append, progress=False, workers=1, **options)
    assert plan_queue(folder, **options) == []
    assert list(results) == ["image-classification", "multimodality"]
    assert lines[2] == "ood failed: no such images"
    left = [int(re.search(r": (\d+) chains left in the queue", lines[place])[1]) for place in (0, 1, 3)]
    assert left == [sum(row["chains"] for row in planned), 0, 0]
    assert [(row["experiment"], row["hours"] > 0) for row in planned] == [("image-classification", True)]


def test_a_plan_counts_all_steps_of_members_and_of_cycles(laboratory, tmp_path, monkeypatch):
    monkeypatch.setattr("roamax.paper.framework.queue.step_timer", lambda *_: lambda: 3600.0)
    options = {"scale": "tiny", "seeds": 2, "problems": ["cifar10"], "methods": ["DE", "cSGMCMC", "L2E"]}
    rows = plan_queue(tmp_path / "new", names=["image-classification"], **options)
    assert [(row["chains"], row["hours"]) for row in rows] == [(2, 2 * SCALES["tiny"]["cifar10"].steps)] * 3
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("wanted", ["digits", "mnist", "regression_1d_gap"])
def test_a_plan_leaves_out_problems_that_only_other_experiments_have(wanted, laboratory, tmp_path, monkeypatch):
    monkeypatch.setattr("roamax.paper.framework.queue.step_timer", lambda *_: lambda: 3600.0)
    monkeypatch.setattr("roamax.paper.hmc_fidelity._own_nuts", lambda _: (np.zeros((1, 10)), {}))
    names = ["hmc-fidelity", "meta-sgmcmc", "regression-1d"]
    rows = plan_queue(tmp_path / "new", names=names, scale="tiny", seeds=1, problems=[wanted], methods=["L2E"])
    homes = {"digits": "hmc-fidelity", "mnist": "meta-sgmcmc", "regression_1d_gap": "regression-1d"}
    assert {row["experiment"] for row in rows} == {homes[wanted]}
    assert all(row["chain"].startswith(wanted.replace("_", "-")) for row in rows)


def test_a_plan_trains_no_sampler(laboratory, tmp_path, monkeypatch):
    monkeypatch.setattr("roamax.meta.train", lambda *_, **__: pytest.fail("a plan trains"))
    assert plan_queue(tmp_path / "new", names=["meta-loss"], scale="tiny") == []


@pytest.mark.parametrize(("option", "value"), [
    ("seeds", 0), ("seed", -1), ("draws", 0), ("workers", 0), ("methods", ["Foo"]), ("problems", ["foo"]),
    ("names", ["foo"]), ("scale", "foo"), ("weights", {"Foo": Path("foo")}),
])  # fmt: skip
def test_a_queue_refuses_what_an_experiment_refuses(option, value, tmp_path):
    with pytest.raises(InputError, match=f"`{option}` must"):
        run_queue(tmp_path / "new", **{"names": ["cost"], option: value})
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_exact_chains_that_were_continued_resume(laboratory, tmp_path):
    first, again = (laboratory("regression-1d", tmp_path / name) for name in ("first", "again"))
    assert again["tables"]["bands"] == first["tables"]["bands"]


def test_chains_in_other_processes_are_the_same_and_their_time_counts_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    found, spared = [], []
    for count, home in ((1, "here"), (2, "apart"), (1, "apart")):
        with hired("local", None, count, False) as workers:
            lab = Lab("tiny", tmp_path / home, (0, 1), workers=workers, progress=False)
            setups = [lab.setup(TINY["fashion_mnist"], name) for name in ("L2E",)]
            found.append([[record["NLL"] for record in records] for records in lab.look(scores, setups)])
            lab.look(scores, setups)
            spared.append(sum(lab.spared.values()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)
    assert found[2] == found[1]
    assert spared[:2] == [0, 0]
    assert spared[2] > 0


def test_weights_that_are_missing_leave_their_method_out(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    monkeypatch.setattr("roamax.pretrained.names", list)
    lab = Lab("tiny", tmp_path)
    assert lab.look(Chain.validation_nll, [lab.setup(TINY["fashion_mnist"], "Meta-SGMCMC")]) == [[]]
    assert lab.notes == [
        "Fashion-MNIST, Meta-SGMCMC: `weights` must be given for Meta-SGMCMC, for this version ships none."
    ]
    with pytest.raises(InputError, match="`method` must be"):
        method("L2F", TINY["fashion_mnist"], None, {})


@pytest.mark.parametrize("name", ["roam", "cSGMCMC"])
def test_chains_of_other_lengths_have_other_folders(name, folder, monkeypatch):
    # Both have cycles of 2,000 steps and ten draws: two per cycle in the longer one.
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    problem = CPU["mnist_mlp"]._replace(task=TINY["fashion_mnist"].task)
    homes = {
        prepare(Setup(problem.lasting(2000 * cycles), name, {**TUNED.get(name, {}), "cycles": cycles}), 0, folder)[-1]
        for cycles in (1, 5)
    }
    assert len(homes) == 2


def test_every_method_takes_the_same_number_of_gradients(folder, monkeypatch):
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    task = TINY["fashion_mnist"].task.build()
    in_starts = {"starts": 4, "averaging": 0.3, "weight_decay": 5e-4}
    hyper = {**TUNED, "L2E": {}, "roam": {}, methods.ROAM_TUNED: in_starts}
    for problem in (*CPU.values(), CPU["imdb"].lasting(10_000)):
        gradients = {name: method(name, problem, task, hyper[name]).gradient_evaluations(task) for name in hyper}
        assert gradients == dict.fromkeys(hyper, problem.steps)


@pytest.mark.parametrize("name", [*search.AXES, "Meta-SGMCMC", "Kinetic L2E"])
def test_methods_that_differ_in_numbers_share_a_program(name, folder, monkeypatch):
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    problem = TINY["fashion_mnist"]
    own = problem.hyper.get(name, {axis.name: axis.default for axis in search.AXES.get(name, ())})
    longer = {axis: 2 * value for axis, value in own.items() if axis in ("learning_rate", "epsilon_squared")}
    hypers = {**own, "weight_decay": 5e-4}, {**own, **longer, "weight_decay": 5e-2}
    tasks = [task_of(problem, hyper).build() for hyper in hypers]
    made = [method(name, problem, task, hyper) for task, hyper in zip(tasks, hypers, strict=True)]
    assert made[0].sampler.step.func is made[1].sampler.step.func
    monkeypatch.setattr(methods, "shared", lambda sampler, *_: sampler)
    alone = [method(name, problem, task, hyper).sampler for task, hyper in zip(tasks, hypers, strict=True)]
    key, position = jax.random.key(0), tasks[0].init(jax.random.key(1))
    batch = jax.tree.map(lambda array: array[:8], tasks[0].train)
    ends = []
    for sampler in (made[0].sampler, made[1].sampler, *alone):
        state = sampler.init(key, position)
        for step in range(2):
            state, _ = jax.jit(sampler.step)(jax.random.fold_in(key, step), state, batch)
        ends.append(jax.flatten_util.ravel_pytree(state.position)[0])
    np.testing.assert_allclose(ends[:2], ends[2:], rtol=1e-4, atol=1e-6)
    assert np.any(ends[0] != ends[1])


def test_cpu_seconds_of_several_machines_are_told_apart():
    one, other = {"CPU s": 1.0, "processor": "A"}, {"CPU s": 2.0, "processor": "B"}
    assert list(transfer.machines({("MNIST", "Adam"): [one, one], ("MNIST", "roam"): [one]})) == []
    (said,) = transfer.machines({("MNIST", "Adam"): [one], ("MNIST", "roam"): [other], ("MNIST", "L2E"): [{}]})
    assert "of 3 kinds of machines" in said
    assert "A: MNIST, Adam; B: MNIST, roam; an earlier one, not named: MNIST, L2E." in said


def test_the_papers_scale_has_the_papers_numbers(folder, monkeypatch):
    monkeypatch.setenv("ROAMAX_DATA", str(folder))
    problem = PAPER["cifar10"]
    assert (problem.burn_in, problem.thinning, problem.draws) == (100 * 320, 50 * 320, 100)
    assert problem.hyper["cSGMCMC"]["epsilon_squared"] == 1e-6
    assert PAPER["tiny_imagenet"].draws == 10
    # L2E has the weights that were trained as the paper says, with their own step.
    settings = method("L2E", problem, TINY["fashion_mnist"].task.build(), problem.hyper["L2E"]).sampler.settings
    weights = pretrained.load("l2e-paper")
    assert (settings["step_size"], settings["friction"]) == (weights.card["step_size"], 0.05)
    assert settings["weights"] == _network.checksum(weights.meta_params)


def test_a_long_run_has_300_epochs_the_papers_settings_and_members_that_share_its_steps():
    problem = LONG["cifar10"]
    assert (problem.steps, problem.draws, problem.thinning) == (300 * 320, 100, 2 * 320)
    assert problem.hyper["cSGMCMC"] == {**PAPER["cifar10"].hyper["cSGMCMC"], "cycles": 15}
    assert problem.hyper["DE"] == {"learning_rate": 0.1, "momentum_decay": 0.1, "weight_decay": 1e-3}


ROWS = {
    ("ACC", "A"): {"DE": Value(0.90, 0.01), "L2E": Value(0.92, 0.01)},
    ("NLL", "A"): {"DE": Value(0.30, 0.2), "L2E": Value(0.31, 0.2)},
}
PRINTED = {
    ("ACC", "A"): {"DE": Value(0.8), "L2E": Value(0.9)},
    ("NLL", "A"): {"DE": Value(0.3), "L2E": Value(0.2)},
    ("NLL", "B"): {"DE": Value(0.3), "L2E": Value(0.2)},
}
TABLE = Comparison(
    "T", ("Metric", "Data_set"), ("DE", "L2E"), ROWS, PRINTED, better={"ACC": "max", "NLL": "min"}, digits=2
)


def test_a_table_shows_ours_and_the_papers_and_says_which_orderings_hold():
    assert markdown(TABLE.table()).splitlines()[2:] == [
        "| ACC | A | 0.90 ± 0.01 | **0.92 ± 0.01** |",
        "| ACC | A, paper | 0.80 | **0.90** |",
        "| NLL | A | **0.30 ± 0.20** | 0.31 ± 0.20 |",
        "| NLL | A, paper | 0.30 | **0.20** |",
        "| NLL | B | – | – |",
        "| NLL | B, paper | 0.30 | **0.20** |",
    ]
    assert r"\textbf{0.92}$\scriptstyle{\pm0.01}$" in latex(TABLE.table())
    assert r"Data\_set" in latex(TABLE.table())
    sentence = TABLE.orderings()
    assert sentence.startswith("1 of the 2 orderings")
    assert "1 cannot be told from the noise" in sentence
    assert Comparison.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


def test_methods_in_rows_are_compared_within_a_data_set():
    rows = {
        ("A", "DE"): {"ACC": Value(0.9, 0.0)},
        ("A", "L2E"): {"ACC": Value(0.8, 0.0)},
        ("B", "DE"): {"ACC": Value(0.1, 0.0)},
    }
    table = Comparison("T", ("Data", "Method"), ("ACC",), rows, rows, compared="rows", better={"ACC": "max"}, digits=1)
    assert "| A | DE | **0.9 ± 0.0** |" in markdown(table.table())
    assert "| B | DE | 0.1 ± 0.0 |" in markdown(table.table())
    assert table.orderings().startswith("1 of the 1 orderings")


def test_a_difference_within_the_noise_is_level():
    assert exceeds(Value(0.4, 0.03), Value(0.3, 0.04)) is True
    assert exceeds(Value(0.3, 0.03), Value(0.4, 0.04)) is False
    assert exceeds(Value(0.34, 0.03), Value(0.3, 0.04)) == "level"
    assert exceeds(Value(0.3, 0.03), Value(0.4)) is False
    assert exceeds(Value(0.3), Value(0.4)) == "level"  # One seed does not tell the noise.
    assert exceeds(None, Value(0.4)) is None


def test_transfer_says_where_l2e_stands():
    others = {"roam": Value(0.1), "DE": Value(0.3, 0.03), "SGHMC": Value(math.inf)}
    rows = {
        (label, name): {"NLL": value}
        for label, ours in (("A", 0.2), ("B", 0.34), ("C", 0.36))
        for name, value in {"L2E": Value(ours, 0.04), **others}.items()
    }
    assert list(transfer.standing(rows)) == [
        "NLL of L2E, below the best tuned method: A (DE).",
        "NLL of L2E, level with the best tuned method: B (DE).",
        "NLL of L2E, above the best tuned method: C (DE).",
        "NLL of roam, below the best tuned method: A (DE); B (DE); C (DE).",
    ]
    said = list(transfer.seen(Lab("cpu", Path()), [CPU["mnist_mlp"], CPU["imdb"], CPU["regression"]]))
    assert said[0].endswith("train_size=50000: MNIST, MLP (as mnist-half).")
    assert said[1] == "Data that L2E had not seen: IMDB; 1-D regression."
    assert said[2].endswith(" networks: MNIST, MLP (as mnist-half); 1-D regression (as regression_1d).")
    assert said[3] == "Data that roam had not seen: IMDB."
    # Longer runs have other weights of L2E, trained on more networks.
    assert " networks: Fashion-MNIST " in next(transfer.seen(Lab("long", Path()), [LONG["fashion_mnist"]]))


def test_a_task_at_several_lengths_has_its_curves():
    problems = [CPU[name].lasting(steps) for steps in (10_000, 2000) for name in ("mnist_mlp", "cifar10_cnn")]
    tasks = transfer.by_task(problems)
    assert [[problem.steps for problem in group] for group in tasks.values()] == [[2000, 10_000]] * 2
    rows = {(problem.label, "roam"): {"NLL": Value(0.1, 0.01), "CPU s": Value(problem.steps)} for problem in problems}
    axes = transfer.curves(tasks, rows).axes
    assert [axis.get_title() for axis in axes] == ["MNIST, MLP", "CIFAR-10, CNN", "", ""]
    assert all(list(axis.lines[0].get_xdata()) == [2000, 10_000] for axis in axes)


def test_the_nll_at_equal_time_is_between_those_of_two_lengths(monkeypatch):
    short, long = problems = [CPU["mnist_mlp"].lasting(steps) for steps in (2000, 10_000)]

    def row(nll, seconds):
        return {"NLL": Value(nll), "CPU s": Value(seconds)}

    rows = {
        (short.label, "roam"): row(0.05, 4.0),
        (long.label, "roam"): row(0.04, 40.0),
        (short.label, "Adam"): row(0.08, 2.0),
        (long.label, "Adam"): row(0.06, 8.0),
        (short.label, "Muon"): row(0.01, 4.0),
    }
    monkeypatch.setattr(standing, "problems", lambda: problems)
    monkeypatch.setattr(standing, "kept", lambda table: rows)
    _, _, *lines = standing.equal_time_table().splitlines()
    # After roam's longer run nobody's time is known, and that of Muon is known at one length only.
    assert lines == ["| MNIST, MLP | 2,000 | 4 | 0.0500 | Adam 0.0700 | – | – |"]


def test_the_search_climbs_beyond_its_start_and_ends_between_two_worse_values():
    axes = (
        search.Axis("temperature", (0.0, 0.1, 1.0), 0.0),
        search.Axis("rate", (1.0, 2.0, 4.0, 8.0, 16.0), 2.0, True),
    )

    def nll(hyper):
        return math.inf if hyper["rate"] > 8 else abs(hyper["rate"] - 8) + abs(hyper["temperature"] - 0.1)

    trials = []
    while points := search.next_points(axes, {"temperature": 0.0, "rate": 2.0}, trials):
        trials += [search.Trial(point, nll(point)) for point in points]
    assert min(trials, key=lambda trial: trial.nll).hyper == {"temperature": 0.1, "rate": 8.0}
    assert [trial.hyper["temperature"] for trial in trials[:3]] == [0.0, 0.1, 1.0]
    assert [trial.hyper["rate"] for trial in trials[3:]] == [1.0, 4.0, 8.0, 16.0]


def test_the_search_of_l2e_starts_from_its_card():
    card = pretrained.load("l2e").card
    start = search._start(L2E_TUNED, None)
    assert start["epsilon_squared"] == pytest.approx(card["step_size"] ** 2, rel=0.3)
    assert (start["momentum_decay"], start.keys()) == (card["friction"], {axis.name for axis in search.AXES[L2E_TUNED]})


def test_what_is_tuned_is_what_a_search_over_all_axes_found():
    kept = json.loads((Path(__file__).parents[1] / "results" / "tune" / "results.json").read_text())
    found = {
        (key, steps, name): hyper
        for key, lengths in kept["data"]["tuned"].items()
        for steps, methods in lengths.items()
        for name, hyper in methods.items()
    }
    assert found
    for (key, steps, name), hyper in found.items():
        assert TUNED_SETTINGS[key][steps][name] == hyper
        problem = CPU[key].lasting(int(steps))
        trials = kept["data"]["trials"][f"{problem.label}, {name}"]
        assert min(trials, key=lambda trial: trial["nll"])["hyper"] == hyper
        assert search.is_tuned(problem, name)
        for axis in search.AXES[name]:
            assert not axis.climbed or hyper[axis.name] not in (axis.values[0], axis.values[-1])
    assert not search.is_tuned(CPU["cifar10"], "SGHMC")


def test_a_hundred_draws_tell_independent_ones_from_a_random_walk():
    rows = convergence.references().rows
    assert rows[("independent draws",)]["cR̂ < 1.1"].mean > 0.99
    assert rows[("random walk",)]["cR̂ < 1.1"].mean < 0.4
    assert rows[("independent draws",)]["ESS per draw"].mean == pytest.approx(0.9, abs=0.05)


def test_swag_draws_from_the_gaussian_of_its_snapshots():
    rng = np.random.default_rng(0)
    snapshots = rng.normal([1.0, -2.0], [0.5, 2.0], (1, 40, 2)).astype(np.float32)
    draws = Draws.from_positions({"w": snapshots})
    sampled = swag(jax.random.key(0), draws, num_samples=20_000, scale=1.0).positions["w"][0]
    np.testing.assert_allclose(sampled.mean(axis=0), snapshots[0].mean(axis=0), atol=0.05)
    np.testing.assert_allclose(sampled.std(axis=0), snapshots[0].std(axis=0), rtol=0.03)
    # Half of the covariance is shared, so half of the correlation is kept.
    both = np.corrcoef(snapshots[0].T)[0, 1], np.corrcoef(sampled.T)[0, 1]
    np.testing.assert_allclose(both[1], both[0] / 2, atol=0.03)
    mean = swag(jax.random.key(0), draws, num_samples=5, scale=0.0).positions["w"]
    np.testing.assert_allclose(mean, snapshots.mean(axis=1, keepdims=True), rtol=1e-6)


def test_tuning_never_sees_test_labels(tmp_path, monkeypatch):
    """Labels of the training data follow from the images; those of the test set are wrong, which is the trap.

    A step that is too short to learn anything is the best on the test set, and the worst on validation data.
    """
    monkeypatch.setenv("ROAMAX_DATA", str(tmp_path))
    monkeypatch.setattr(search, "AXES", {"Adam": (search.Axis("learning_rate", (1e-6, 0.01), 0.01),)})
    y = np.arange(300) % 10
    x = np.full((300, 4, 4, 1), 20, np.uint8)
    x.reshape(300, 16)[np.arange(300), y] = 255
    found, best = {}, {}
    for name, shift in (("honest", 0), ("trap", 5)):
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:100], y_test=(y[:100] + shift) % 10)
        spec = TaskSpec(name, "mlp", {"hidden": [8]}, batch_size=32)
        problem = Problem(name, spec, burn_in=100, draws=4, thinning=25, members=2, hyper={})
        lab = Lab("cpu", tmp_path / "chains", (0,), progress=False)
        found[name] = search.search(lab, problem, ("Adam",))
        best[name] = lab.look(
            scores, [lab.setup(problem, method, **trials[0].hyper) for method, trials in found[name].items()]
        )
    assert found["trap"] == found["honest"]
    assert best["honest"][0][0]["NLL"] < math.log(10) < best["trap"][0][0]["NLL"]


def test_the_page_holds_every_table_and_figure(experiment, tmp_path):
    converged, modes = (experiment(name)[1] for name in ("convergence", "multimodality"))
    page = tmp_path / "docs" / "results.md"
    written = write_page([converged, modes], page)
    text = page.read_text()
    assert all(f"results/{path.name}" in text for path in written)
    assert (converged / "convergence.md").read_text().strip() in text
    assert "Not measured here" in text
    assert 'method="tfp"' in text
    assert "| random walk |" in text
    settings = json.loads((converged / "results.json").read_text())["settings"]
    assert settings["CIFAR-10, cSGMCMC"] == TUNED["cSGMCMC"]
    assert "Geyer" not in text
    measured = Comparison.from_json(json.loads((modes / "results.json").read_text())["tables"]["geometry"])
    l2e, cyclical = (measured.rows["CIFAR-10", name]["cosine"] for name in ("L2E", "cSGMCMC"))
    words = {True: "holds", False: "does not hold", "level": "cannot be told from the noise"}
    verdict = words[exceeds(cyclical, l2e)]
    assert f"- Draws are less alike with L2E than with cSGMCMC (CIFAR-10, cosine): {verdict} here." in text
    assert f"| CIFAR-10, cosine | – | {l2e.mean:.3g} vs. {cyclical.mean:.3g} | {verdict} |" in text


def test_neither_the_reference_nor_the_largest_kld_is_marked_as_the_best():
    rows = printed(("L2E", "DE", "HMC"), {("ACC", "a"): (0.8, 0.7, 0.9), ("KLD", "a"): (0.1, 0.2, 0.3)})
    table = Comparison("t", ("metric", "data"), ("L2E", "DE", "HMC"), rows, better={"ACC": "max", "KLD": "max"}).table()
    assert [[cell.is_best for cell in row[2:]] for row in table.rows] == [[True, False, False], [False] * 3]
    assert [cell.text for cell in table.rows[1][2:]] == ["0.100", "0.200", "0.300"]


def test_chains_that_wander_like_random_walks_are_not_compared():
    known = convergence.references()
    near, far = (
        {(convergence.SHARE, "A"): {"L2E": Value(share)}, ("ESS/s", "A"): {"L2E": Value(9.0)}} for share in (0.9, 0.0)
    )
    assert convergence.untestable(near, known) == convergence.untestable({}, known) == ""
    assert "none has converged" in convergence.untestable(far, known)


def test_the_summary_compares_the_papers_leader_with_the_best_other_method():
    names = ("DE", "L2E", "HMC", "SGHMC")

    def table(de, l2e, **more):
        sides = (printed(names, {("NLL", "A"): row}) for row in ((de, l2e, 0.2, 9.0), (0.5, 0.4, 0.1, 0.6)))
        return Comparison("T", ("Metric", "Data"), names, *sides, better={"NLL": "min"}, **more).to_json()

    # HMC is the reference and leads nothing.
    tables = {
        "holds": table((0.9, 0.1), (0.7, 0.1)),
        "does not hold": table((0.6, 0.05), (0.7, 0.05)),
        "cannot be told from the noise": table((0.6, 0.1), (0.55, 0.1)),
        "not testable": table(0.9, 0.7, untestable="too short"),
    }
    sections = {name: {"tables": {"t": stored}, "scale": "cpu"} for name, stored in tables.items()}
    claim = Claim("c", False).to_json()
    text = summary({**sections, "other": {"tables": {}, "claims": [claim], "scale": "long"}})
    assert "Verdicts on 5 claims of the paper: does not hold 2, holds 1, cannot" in text
    assert "| L2E is best in NLL | [holds](#holds) | cpu | A | 0.4 vs. 0.5 | 0.7 vs. 0.9 | holds |" in text
    assert "| 0.7 vs. 0.6 | does not hold |" in text
    assert "| 0.55 vs. 0.6 | cannot be told from the noise |" in text
    assert "| 0.7 vs. 0.9 | not testable |" in text
    assert "| c | [other](#other) | long | – | – | – | does not hold |" in text
    assert summary({}) == ""


def rows_of(text):
    """The cells of each row of the only table of a text in Markdown, with plain spaces."""
    table = [line.strip("| ").split(" | ") for line in text.replace("\u00a0", " ").splitlines() if line[:1] == "|"]
    return table[2:]


def by_data_set(text):
    """The rows of the summary's table of every claim by data set."""
    return rows_of(text.partition("## Every claim by data set")[2])


def test_the_summary_begins_with_a_line_per_claim_and_the_numbers_of_its_longest_run():
    def section(scale, *claims):
        return {"tables": {}, "claims": [claim.to_json() for claim in claims], "scale": scale}

    low, high = Value(0.5, 0.01), Value(0.6, 0.01)
    text = summary(
        {
            "short": section("cpu", above("b", high, low, "X"), above("b", high, low, "Y"), Claim("c", False)),
            "whole": section("paper", above("b", low, Value(0.501, 0.01), "X")),
        }
    )
    assert rows_of(text.partition("##")[0]) == [
        ["b", "[short](#short), [whole](#whole)", "X", "–", "0.5 vs. 0.501", "holds 2, level 1"],
        ["c", "[short](#short)", "–", "–", "–", "does not hold"],
    ]


def test_a_statement_about_several_data_sets_is_one_row_of_the_summary():
    here = [Value(0.5, 0.01), Value(0.6, 0.01), None]
    claims = [above("b", here[0], here[1], "X"), below("b", here[0], here[1], "Y"), above("b", here[0], here[2], "Z")]
    stored = [json.loads(json.dumps(claim.to_json())) for claim in claims if claim.holds is not None]
    text = summary({"s": {"tables": {}, "claims": stored, "scale": "cpu"}})
    pairs = "0.5 vs. 0.6"
    assert by_data_set(text) == [["b", "[s](#s)", "cpu", "X<br>Y", "–", pairs, "does not hold<br>holds"]]


def test_the_summary_has_a_line_for_each_data_set_and_verdict():
    paper = printed(("ACC", "NLL"), {("A", "L2E"): (0.9, 0.1), ("A", "DE"): (0.8, 0.2), ("B", "L2E"): (0.9, 0.1),
                                     ("B", "DE"): (0.8, 0.2)})  # fmt: skip
    good, bad = ((0.9, 0.01), (0.1, 0.01)), ((0.7, 0.01), (0.2, 0.01))
    ours = {("A", "L2E"): good, ("A", "DE"): bad, ("B", "L2E"): (bad[0], good[1]), ("B", "DE"): (good[0], bad[1])}
    better = {"ACC": "max", "NLL": "min"}
    rows = printed(("ACC", "NLL"), ours)
    table = Comparison("t", ("Data set", "Method"), ("ACC", "NLL"), rows, paper, compared="rows", better=better)
    (row,) = by_data_set(summary({"s": {"tables": {"t": table.to_json()}, "scale": "cpu"}}))
    assert row == [
        "L2E is best in NLL, ACC", "[s](#s)", "cpu", "A: NLL, ACC<br>B: ACC<br>B: NLL",
        "0.1 vs. 0.2<br>0.9 vs. 0.8<br>0.1 vs. 0.2", "0.1 vs. 0.2<br>0.7 vs. 0.9<br>0.1 vs. 0.2",
        "holds<br>does not hold<br>holds",
    ]  # fmt: skip


def test_the_page_says_what_was_not_run(tmp_path):
    folder = Path(__file__).parents[1] / "results" / "text"
    hours = tmp_path / "hours.json"
    chains = {"experiment": "text", "chain": "IMDB-DE", "chains": 3, "hours": 1234.4}
    files.write_json(hours, [chains, {**chains, "chain": "IMDB-L2E", "hours": 10}])
    write_page([folder], tmp_path / "page.md", hours)
    text = (tmp_path / "page.md").read_text()
    assert "which take 1,244 hours on one core" in text
    assert "| text | IMDB-DE | 3 | 1,234 |" in text
    assert text.index("Verdicts on") < text.index("## What was not run") < text.index("## How it was measured")
    write_page([folder], tmp_path / "page.md")
    assert "not run" not in (tmp_path / "page.md").read_text().partition("## text")[0]
    files.write_json(hours, [{"experiment": "text"}])
    with pytest.raises(FileError, match="--plan --json"):
        write_page([folder], tmp_path / "page.md", hours)


def test_claims_of_older_results_are_made_from_their_tables(tmp_path):
    kept = json.loads((Path(__file__).parents[1] / "results" / "text" / "results.json").read_text())
    rows = printed(("L2E", "DE"), {("ACC", "A"): ((0.9, 0.01), (0.8, 0.01))})
    table = Comparison("t", ("Metric", "Data set"), ("L2E", "DE"), rows).to_json()
    older = {"tables": {"t": table}, "orderings": {}, "claims": {"L2E is more accurate than DE on A": True}}
    for name in ("image-classification", "text", "meta-loss"):
        (tmp_path / name).mkdir()
        files.write_json(tmp_path / name / "results.json", {**kept, **older, "experiment": name})
    write_page([tmp_path / "image-classification", tmp_path / "text"], tmp_path / "page.md")
    assert by_data_set((tmp_path / "page.md").read_text())[:2] == [
        ["L2E is more accurate than DE", "[image-classification](#image-classification)", "cpu", "A", "–",
         "0.9 vs. 0.8", "holds"],
        ["L2E is more accurate than DE on A", "[text](#text)", "cpu", "–", "–", "–", "holds"],
    ]  # fmt: skip
    with pytest.raises(FileError, match="was not written by"):
        write_page([tmp_path / "meta-loss"], tmp_path / "page.md")


def test_the_page_of_results_is_what_the_kept_results_make(tmp_path):
    root = Path(__file__).parents[1]
    shutil.copytree(root / "docs" / "results", tmp_path / "results")
    hours = root / "docs" / "hours.json"
    folders = [path.parent for path in root.glob("results/*/results.json")]
    write_page(folders, tmp_path / "results.md", hours if hours.exists() else None)
    assert (tmp_path / "results.md").read_text() == (root / "docs" / "results.md").read_text()


def test_total_variation_is_the_papers_a_mean_over_classes():
    chain: Any = SimpleNamespace(average=np.log([[0.5, 0.25, 0.25]]), labels=np.array([0]))
    found = hmc_fidelity._closeness(chain, np.log([[0.25, 0.5, 0.25]]))
    assert found["Total Var"] == pytest.approx(0.25 / 3)
