"""Tasks: the posterior they stand for, what they hold out, and what compiles once."""

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roamax import models, priors, tasks
from roamax.errors import InputError
from roamax.tasks import Task, TaskDistribution, TaskSpec, make_task

KEY = jax.random.key(0)


def labelled(n, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, classes, n)


def linear(**options):
    return models.get("mlp", hidden=(), num_classes=3, **options)


@pytest.fixture
def folder(tmp_path):
    """Two data sets alike in all but their numbers: pixel [0, 0] and [0, 1] of an image tell its row."""
    for name, seed in (("first", 0), ("second", 1)):
        rng = np.random.default_rng(seed)
        arrays = {}
        for part, n in (("train", 300), ("test", 50)):
            x = rng.integers(0, 256, (n, 6, 8), dtype=np.uint8)
            x[:, 0, 0], x[:, 0, 1] = np.divmod(np.arange(n), 256)
            arrays[f"x_{part}"], arrays[f"y_{part}"] = x, np.arange(n) % 3
        np.savez(tmp_path / f"{name}.npz", **arrays)
    np.savez(tmp_path / "only_test.npz", x_test=arrays["x_test"], y_test=arrays["y_test"])
    return tmp_path


def rows(x):
    return (np.asarray(x)[:, 0, 0, 0].astype(int) * 256 + np.asarray(x)[:, 0, 1, 0]).tolist()


def test_energy_is_the_sum_of_losses_and_weight_decay():
    train = labelled(40)
    task = make_task("own", linear(), train, labelled(5), labelled(5), weight_decay=0.01, batch_size=10)
    params = task.init(KEY)
    x, y = train[0][:10], train[1][:10]
    logits = x @ np.asarray(params["output"]["kernel"]) + np.asarray(params["output"]["bias"])
    loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(10), y]
    square = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(params))
    constant = 0.5 * 15 * math.log(2 * math.pi / (40 * 0.01))
    expected = 40 * loss.mean() + 0.5 * 40 * 0.01 * square + constant
    assert float(task.posterior.energy(params, (jnp.asarray(x), jnp.asarray(y, jnp.int32)))) == pytest.approx(
        expected, rel=1e-5
    )


def test_own_prior_and_real_targets():
    rng = np.random.default_rng(0)
    pair = rng.normal(size=(20, 2)).astype(np.float32), rng.normal(size=20).astype(np.float32)
    prior = priors.laplace(scale=2.0)
    model = models.get("mlp_regression", hidden=(), noise_scale=0.5)
    task = make_task("own", model, pair, pair, pair, log_prior=prior, batch_size=20)
    params = task.init(KEY)
    mean, _ = task.apply(params, pair[0])
    log_density = -0.5 * ((pair[1] - mean) / 0.5) ** 2 - math.log(0.5 * math.sqrt(2 * math.pi))
    expected = -float(jnp.sum(log_density)) - float(prior(params))
    assert float(task.posterior.energy(params, task.train)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": (np.zeros((9, 4), np.float32), np.full(9, 3))}, "`y_train` must hold labels in [0, 3); got 3."),
        ({"test": (np.zeros((2, 4), np.float32), np.array([0, -1]))}, "`y_test` must hold labels in [0, 3); got -1."),
        ({"batch_size": 41}, "`batch_size` must be a whole number in [1, 40]; got 41."),
        ({"batch_size": 0}, "`batch_size` must be a whole number in [1, 40]; got 0."),
        ({"train": (np.zeros((0, 4), np.float32), np.zeros(0, int))}, "`train` must not be empty; got length 0."),
        ({"valid": (np.zeros((3, 4), np.float32), np.zeros(2, int))},
         "`valid` must hold arrays of one leading length; got 'x_valid': 3, 'y_valid': 2."),
        ({"valid": (np.zeros((2, 5), np.float32), np.zeros(2, int))},
         "`x_valid` must hold float32 of shape (4,), as in training; got float32 of shape (5,)."),
        ({"train": np.zeros((40, 4))}, "`train` must be a pair (x, y); got ndarray."),
        ({"weight_decay": 0.0}, "`weight_decay` must be a finite number > 0; got 0.0."),
        ({"model": models.get("mlp_regression")},
         "`model` must give logits of shape (n, classes) for targets that are whole numbers; got ((1,), (1,))."),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(change, message):
    good = {"model": linear(), "train": labelled(40), "valid": labelled(5), "test": labelled(5), "batch_size": 8}
    with pytest.raises(InputError) as error:
        make_task("own", **{**good, **change})
    assert str(error.value) == message


def test_targets_must_fit_a_regression_model():
    pair = np.zeros((4, 2), np.float32), np.zeros((4, 1), np.float32)
    with pytest.raises(InputError, match=r"`y_train` must hold targets of shape \(\) as the model gives; got \(1,\)\."):
        make_task("own", models.get("mlp_regression"), pair, pair, pair, batch_size=4)


def test_a_spec_survives_json():
    spec = TaskSpec("mnist", "mlp", {"hidden": (32, 16)}, halve=True, train_size=100, seed=3)
    again = TaskSpec(**json.loads(json.dumps(dataclasses.asdict(spec))))
    assert again == spec
    assert hash(again) == hash(spec)
    orders = ({"depth": 1, "channels": 4}, {"channels": 4, "depth": 1})
    assert len({TaskSpec("mnist", "cnn", options) for options in orders}) == 1
    assert spec.name == "mnist-half/mlp:hidden=32x16:train_size=100:seed=3"
    with pytest.raises(InputError, match="`options` must be JSON-serialisable"):
        TaskSpec("mnist", "mlp", {"hidden": object()})


def test_held_out_data_are_never_trained_on(folder):
    spec = TaskSpec("first", "mlp", {"hidden": [4]}, valid_size=60, batch_size=16)
    task = spec.build(folder)
    train, valid = rows(task.train[0]), rows(task.valid[0])
    assert len(valid) == 60
    assert sorted(train + valid) == list(range(300))
    np.testing.assert_array_equal(task.train[1], np.array(train) % 3)
    np.testing.assert_array_equal(task.valid[1], np.array(valid) % 3)
    assert task.posterior.num_data == 240
    assert rows(task.test[0]) == list(range(50))
    # By the seed alone; a smaller training set is taken from the same side.
    assert rows(dataclasses.replace(spec, model="cnn", options={"channels": 2}).build(folder).valid[0]) == valid
    assert rows(dataclasses.replace(spec, seed=1).build(folder).valid[0]) != valid
    few = dataclasses.replace(spec, train_size=30, test_size=7).build(folder)
    assert rows(few.valid[0]) == valid
    assert len(few.train[0]) == 30
    assert set(rows(few.train[0])) <= set(train)
    assert rows(few.test[0]) == sorted(rows(few.test[0]))
    assert len(few.test[0]) == 7


def test_halved_images_are_means(folder):
    spec = TaskSpec("first", "mlp", {"hidden": [4]}, batch_size=16)
    whole, half = spec.build(folder), dataclasses.replace(spec, halve=True).build(folder)
    x = np.asarray(whole.train[0]).astype(float)
    means = (x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]) / 4
    assert half.train[0].shape[1:] == (3, 4, 1)
    assert half.train[0].dtype == jnp.uint8
    assert np.abs(np.asarray(half.train[0]) - means).max() <= 0.5
    with pytest.raises(InputError, match="`halve` must be for images of even height and width"):
        TaskSpec("regression_1d", "mlp_regression", halve=True).build(folder)


def test_specs_of_one_shape_compile_once(folder):
    traces = []

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def step(posterior, init, key, batch):
        traces.append(posterior)
        return posterior.energy_and_grad(init(key), batch)

    def energy(task):
        return float(step(task.posterior, task.init, KEY, jax.tree.map(lambda leaf: leaf[:16], task.train))[0])

    spec = TaskSpec("first", "mlp", {"hidden": [4]}, batch_size=16)
    first = energy(spec.build(folder))
    second = energy(dataclasses.replace(spec, data="second").build(folder))
    assert first != second
    assert len(traces) == 1
    energy(dataclasses.replace(spec, options={"hidden": [5]}).build(folder))
    energy(dataclasses.replace(spec, weight_decay=1e-3).build(folder))
    assert len(traces) == 3


def test_tasks_on_the_same_data_share_them(folder):
    spec = TaskSpec("first", "mlp", {"hidden": [4]}, batch_size=16)
    assert spec.build(folder).train[0] is dataclasses.replace(spec, options={"hidden": [5]}).build(folder).train[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_size": 500}, "`train_size` must be a whole number in [1, 270]; got 500."),
        ({"data": "only_test"}, "`data` must have a training set; got only_test."),
        ({"data": "firts"}, "`name` must be a known name; got 'firts': did you mean 'first'?"),
        ({"model": "mpl"}, "`model` must be a known name; got 'mpl': did you mean 'mlp'?"),
    ],
)
def test_a_bad_spec_is_one_line(folder, change, message):
    with pytest.raises(InputError) as error:
        TaskSpec(**{"data": "first", "model": "mlp", "batch_size": 16, **change}).build(folder)
    assert str(error.value) == message


def test_regression_from_a_spec():
    task = TaskSpec("regression_1d", "mlp_regression", {"hidden": [8]}).build()
    mean, scale = task.apply(task.init(KEY), task.test[0])
    assert mean.shape == scale.shape == task.test[1].shape
    assert jnp.isfinite(task.posterior.energy(task.init(KEY), task.train))


def test_the_distributions_are_the_ones_described():
    paper = tasks.get("paper")
    settings = {
        (spec.data, *(spec.options.get(key, False) for key in ("channels", "depth", "residual"))) for spec in paper
    }
    data_sets = ("mnist", "fashion_mnist", "emnist_balanced", "bloodmnist")
    assert settings == {(d, c, n, r) for d in data_sets for c in (4, 8, 16) for n in range(1, 6) for r in (False, True)}
    assert len(paper) == 120
    small = list(tasks.get("small"))
    assert {(spec.data, spec.options["channels"]) for spec in small} == {("fashion_mnist", 4)}
    assert {spec.options["depth"] for spec in small} == {1, 2}
    assert len(tasks.get("cpu")) == 38
    assert sum(not spec.halve for spec in tasks.get("cpu")) == 2
    assert tasks.names() == ["paper", "small", "cpu", "smoke"]
    with pytest.raises(InputError, match="`tasks` must be a known name; got 'papre': did you mean 'paper'"):
        tasks.get("papre")


def test_sampling_is_seeded_and_reaches_all():
    small = tasks.get("small")
    drawn = [small.sample(key) for key in jax.random.split(KEY, 40)]
    assert drawn == [small.sample(key) for key in jax.random.split(KEY, 40)]
    assert {spec.name for spec in drawn} == set(small.names())
    assert small[small.names()[1]] == small[1]


def test_smoke_tasks_need_no_files_and_can_be_learned(tmp_path):
    def objective(params, task):
        return task.posterior.energy(params, task.train) / task.posterior.num_data

    for spec in tasks.get("smoke"):
        task = tasks.build(spec, tmp_path)

        @jax.jit
        def learn(key, task=task):
            def step(params, _):
                grads = jax.grad(objective)(params, task)
                return jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, params, grads), None

            params, _ = jax.lax.scan(step, task.init(key), length=800)
            return jnp.argmax(task.apply(params, task.valid[0]), -1)

        assert np.mean(learn(KEY) == task.valid[1]) > 0.8


OWN = """
from roamax import models
from roamax.tasks import TaskDistribution, TaskSpec, make_task
import numpy as np

specs = [TaskSpec("digits", "mlp", {"hidden": [width]}) for width in (4, 8)]
distribution = TaskDistribution("mine", tuple(specs))
pair = np.zeros((6, 2), np.float32), np.arange(6) % 2
built = make_task("built", models.get("mlp", num_classes=2), pair, pair, pair, batch_size=3)
wrong = ["digits"]
twice = specs + specs

def function():
    return [*specs, built]
"""


def test_own_tasks_by_module_and_name(tmp_path, monkeypatch):
    (tmp_path / "own_tasks_module.py").write_text(OWN)
    (tmp_path / "broken_tasks_module.py").write_text("import a_module_that_is_missing")
    monkeypatch.chdir(tmp_path)
    assert len(tasks.get("own_tasks_module:specs")) == 2
    assert tasks.get("own_tasks_module:distribution").name == "mine"
    single = tasks.get("own_tasks_module:built")
    assert isinstance(tasks.build(single[0]), Task)
    assert tasks.get("own_tasks_module:function").names()[2] == "built"
    for name, message in (
        ("own_tasks_module:spec", "did you mean 'specs'"),
        ("own_tasks_modul:specs", "`tasks` must name a module that can be imported; got 'own_tasks_modul'"),
        ("own_tasks_module:wrong", "`tasks` must hold TaskSpec or Task; got str"),
        ("own_tasks_module:twice", "`tasks` must have distinct names"),
    ):
        with pytest.raises(InputError, match=message):
            tasks.get(name)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        tasks.get("broken_tasks_module:specs")
    with pytest.raises(InputError, match="`tasks` must hold at least one task"):
        TaskDistribution("none", ())
