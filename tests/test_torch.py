"""The samplers as PyTorch optimizers: step for step the same as in JAX, on the same inputs and noise."""

import copy
import functools
import io
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax.errors import InputError
from roamax.numerics.trees import normal_like
from roamax.samplers.learned import _network
from roamax.samplers.learned._groups import Groups
from roamax.samplers.learned.l2e import WIDTHS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.extras

NUM_DATA, BATCH, WEIGHT_DECAY, STEPS = 50, 10, 0.01, 7
SHAPES = {"bias": (1,), "conv": (3, 2, 5, 3), "dense": (13, 17), "scale": (), "wide": (65,)}


def optimizers():
    from roamax.torch import L2E, SGHMC, Cyclical

    return L2E, SGHMC, Cyclical


def weights():
    mlp = _network.init_mlp(jax.random.key(3), WIDTHS)
    return jax.tree.map(lambda leaf: leaf + 0.1, mlp)


def sum_of_squares(params, x):
    """A loss of each example that every parameter has a part in."""
    total = sum((leaf**2).sum() * (i + 1) + leaf.sum() for i, leaf in enumerate(params.values()))
    return (x[:, 0] - 0.1 * total) ** 2 + x[:, 1] * params["scale"]


def initial():
    rng = np.random.default_rng(0)
    return {name: (0.3 * rng.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}


def batches():
    return np.random.default_rng(1).normal(size=(STEPS, BATCH, 2)).astype(np.float32)


def jax_steps(make_sampler, noise_of):
    """The positions of the JAX sampler after each step, and the noise it used at its start and in each step."""
    prior = roamax.priors.gaussian(weight_decay=WEIGHT_DECAY, num_data=NUM_DATA)
    posterior = roamax.Posterior(lambda params, x: -sum_of_squares(params, x), prior, NUM_DATA)
    sampler = make_sampler(posterior)
    state = sampler.init(jax.random.key(0), jax.tree.map(jnp.asarray, initial()))
    positions, noises = [], [jax.tree.map(np.asarray, noise_of(jax.random.key(0), state.position))]
    for i, x in enumerate(batches()):
        key = jax.random.key(100 + i)
        noises.append(jax.tree.map(np.asarray, noise_of(key, state.position)))
        state, _ = jax.jit(sampler.step)(key, state, jnp.asarray(x))
        positions.append(jax.tree.map(np.asarray, state.position))
    return positions, noises


def torch_steps(make_optimizer, noises):
    """The same of the PyTorch one, which is given that noise."""
    params = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in initial().items()}
    optimizer = make_optimizer(params.values())
    names = {parameter: name for name, parameter in params.items()}
    positions = []
    for x, noise in zip(batches(), noises[1:], strict=True):
        optimizer._noise = lambda members, noise=noise: [
            torch.tensor((noise if optimizer.state[p] else noises[0])[names[p]]) for p in members
        ]
        optimizer.zero_grad()
        sum_of_squares(params, torch.tensor(x)).mean().backward()
        optimizer.step()
        positions.append({name: p.detach().numpy().copy() for name, p in params.items()})
    return positions


def assert_same(found, expected):
    moved = max(np.abs(expected[-1][name] - initial()[name]).max() for name in SHAPES)
    assert moved > 0.01
    for one, other in zip(found, expected, strict=True):
        for name in SHAPES:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-5, err_msg=name)


def packed_noise(key, position):
    layout = Groups.of(position)
    return layout.unpack(layout.noise(key))


L2E_SETTINGS = {"step_size": 0.05, "friction": 0.5, "output_scale": 0.3}


@functools.cache
def l2e_steps(passes):
    return jax_steps(lambda posterior: roamax.l2e(posterior, weights(), passes=passes, **L2E_SETTINGS), packed_noise)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("bucket", [1, 100, 2**20])
def test_l2e_steps_as_in_jax(passes, bucket, monkeypatch):
    from roamax.torch import l2e as module

    monkeypatch.setattr(module, "BUCKET", bucket)
    monkeypatch.setattr(module, "COLUMNS", {"cpu": 50})
    expected, noises = l2e_steps(passes)
    options = {"num_data": NUM_DATA, "weight_decay": WEIGHT_DECAY, "weights": weights(), "passes": passes}
    options |= L2E_SETTINGS
    found = torch_steps(lambda params: optimizers()[0](params, **options), noises)
    assert_same(found, expected)


def test_sghmc_steps_as_in_jax():
    settings = roamax.from_learning_rate(0.01, 0.2, NUM_DATA)
    expected, noises = jax_steps(lambda posterior: roamax.sghmc(posterior, temperature=0.5, **settings), normal_like)
    options = {"lr": 0.01, "momentum_decay": 0.2, "temperature": 0.5, "weight_decay": WEIGHT_DECAY}
    found = torch_steps(lambda params: optimizers()[1](params, num_data=NUM_DATA, **options), noises)
    assert_same(found, expected)


def test_cyclical_steps_as_in_jax_and_tells_when_to_draw():
    cycle = {"cycle_length": 3, "exploration_ratio": 0.4}
    settings = roamax.from_learning_rate(0.01, 0.2, NUM_DATA)
    samplers, made = [], []

    def make_sampler(posterior):
        samplers.append(roamax.cyclical(posterior, **settings, **cycle))
        return samplers[0]

    def make_optimizer(params):
        options = {"lr": 0.01, "momentum_decay": 0.2, "weight_decay": WEIGHT_DECAY, **cycle}
        made.append(optimizers()[2](params, num_data=NUM_DATA, **options))
        return made[0]

    expected, noises = jax_steps(make_sampler, normal_like)
    assert_same(torch_steps(make_optimizer, noises), expected)

    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = optimizers()[2]([parameter], num_data=NUM_DATA, **cycle)
    told = []
    for _ in range(STEPS):
        parameter.grad = torch.zeros(2)
        optimizer.step()
        told.append(optimizer.collect)
    assert told == [samplers[0].collect(step) for step in range(1, STEPS + 1)]
    assert set(told) == {True, False}


def test_the_module_is_there_when_it_is_named():
    code = "import roamax, sys; assert 'torch' not in sys.modules; print(roamax.torch.SGHMC.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "SGHMC\n"


def test_at_temperature_zero_sghmc_is_sgd():
    def run(make):
        parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = make([parameter])
        for _ in range(20):
            optimizer.zero_grad()
            (parameter**2 * torch.tensor([1.0, 3.0])).mean().backward()
            optimizer.step()
        return parameter.detach()

    ours = run(lambda params: optimizers()[1](params, num_data=1000, lr=0.05, temperature=0.0, weight_decay=0.1))
    sgd = run(lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.1))
    torch.testing.assert_close(ours, sgd)


def network_and(kind, dtype=torch.float32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(dtype)
    L2E, SGHMC, Cyclical = optimizers()
    options = {
        L2E: {"weights": weights(), "step_size": 0.01, "friction": 0.5},
        SGHMC: {},
        Cyclical: {"cycle_length": 4, "exploration_ratio": 0.5},
    }
    return model, kind(model.parameters(), num_data=100, **options[kind])


def train(model, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(16, 4, generator=generator).to(next(model.parameters()).dtype)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_state_goes_on_to_the_same_bits(which, dtype):
    kind = optimizers()[which]
    model, optimizer = network_and(kind, dtype)
    train(model, optimizer, 5)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    whole = train(model, optimizer, 6, seed=1)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    torch.manual_seed(99)
    model, optimizer = network_and(kind, dtype)
    train(model, optimizer, 2, seed=7)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    copied_model, copied = copy.deepcopy((model, optimizer))
    assert torch.equal(train(model, optimizer, 6, seed=1), whole)
    assert torch.equal(train(copied_model, copied, 6, seed=1), whole)


def test_noise_follows_the_generator_and_the_global_seed():
    def end(seed, generator=None):
        torch.manual_seed(seed)
        parameter = torch.nn.Parameter(torch.zeros(5))
        optimizer = optimizers()[1]([parameter], num_data=10, generator=generator)
        parameter.grad = torch.zeros(5)
        optimizer.step()
        return parameter.detach()

    assert torch.equal(end(0), end(0))
    assert not torch.equal(end(0), end(1))
    given = [end(seed, torch.Generator().manual_seed(3)) for seed in (0, 1)]
    assert torch.equal(*given)


def test_sghmc_has_the_variance_of_its_posterior():
    """N = 10 data with loss theta^2 / 2 and weight decay 1: U = 10 theta^2, so the variance is 1 / 20."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(4000))
    optimizer = optimizers()[1]([parameter], num_data=10, lr=0.02, momentum_decay=0.1, weight_decay=1.0)
    for _ in range(400):
        optimizer.zero_grad()
        (0.5 * parameter.square()).sum().backward()
        optimizer.step()
    assert parameter.var().item() == pytest.approx(1 / 20, rel=0.08)


def test_groups_closures_frozen_parameters_and_schedulers():
    kind = optimizers()[1]
    fast, slow, frozen = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    groups = [{"params": [fast, frozen]}, {"params": [slow], "lr": 1e-6}]
    optimizer = kind(groups, num_data=10, lr=0.01, temperature=0.0, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (fast + slow).square().mean()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(4.0)
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.001, 1e-7])
    assert torch.equal(frozen, torch.ones(3))
    assert (1 - fast).mean() > 1000 * (1 - slow).mean() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_data": 0}, "`num_data` must be a finite number > 0; got 0."),
        ({"lr": -1.0}, "`lr` must be a finite number > 0; got -1.0."),
        ({"momentum_decay": 1.5}, "`momentum_decay` must be in (0, 1]; got 1.5."),
        ({"temperature": float("nan")}, "`temperature` must be a finite number >= 0; got nan."),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(InputError) as caught:
        optimizers()[1]([torch.nn.Parameter(torch.zeros(2))], **{"num_data": 10, **change})
    assert str(caught.value) == message


def test_bad_weights_and_states_are_named(tmp_path):
    L2E, SGHMC, _ = optimizers()
    params = [torch.nn.Parameter(torch.zeros(2))]
    with pytest.raises(InputError, match="`weights` must hold layer0/b"):
        L2E(params, num_data=10, weights={"layer0": {}})
    with pytest.raises(roamax.errors.FileError, match=r"none\.safetensors"):
        L2E(params, num_data=10, weights=tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="`state_dict` must be that of a sampler"):
        SGHMC(params, num_data=10).load_state_dict(torch.optim.SGD(params).state_dict())


def test_a_weights_file_and_its_card_are_read(tmp_path):
    from roamax.host import files

    tensors = {name.replace("/", "."): leaf for name, leaf in roamax.numerics.trees.named_leaves(weights()).items()}
    path = tmp_path / "mine.safetensors"
    files.write_bytes(path, files.pack_tensors(tensors))
    files.write_json(path.with_suffix(".json"), {"step_size": 0.25, "output_scale": 0.5})
    group = optimizers()[0]([torch.nn.Parameter(torch.zeros(2))], num_data=10, weights=path).param_groups[0]
    assert (group["step_size"], group["friction"], group["output_scale"]) == (0.25, 0.05, 0.5)
