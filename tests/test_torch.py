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
# The tensors here are too small for a second thread, which would wait for a core in vain when tests run side by side.
torch.set_num_threads(1)

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
    # The native network in JAX rounds a layer to 13 bits.
    monkeypatch.setattr("roamax.samplers.learned._kernel.has_function", lambda *_: False)
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
    optimizer = optimizers()[1]([parameter], num_data=10, lr=0.02, temperature=1.0, weight_decay=1.0)
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
    assert (group["friction"], group["output_scale"]) == (0.05, 0.5)
    assert group["lr"] == pytest.approx(0.25**2 * 10)


def moons(rows=96):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 2, generator=generator)
    data = torch.utils.data.TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
    return data, torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)


def small_network(*layers):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 16), *layers, torch.nn.Tanh(), torch.nn.Linear(16, 2))


def test_sample_predict_and_files(tmp_path):
    from roamax.torch import Draws, predict, sample

    data, loader = moons()
    x, y = data.tensors
    model = small_network()
    draws = sample(model, loader, optimizers()[2], num_samples=10, num_chains=2, lr=0.5, cycle_length=30,
                   init=lambda model: [layer.reset_parameters() for layer in (model[0], model[2])])  # fmt: skip
    assert (draws.num_chains, draws.num_samples, draws.steps[:2]) == (2, 10, [30, 60])
    last = {name: p.detach().clone() for name, p in model.named_parameters()}
    probabilities = predict(model, draws, x, batch_size=40)
    # By hand, from the draws alone.
    expected = torch.zeros(len(x), 2)
    for draw in draws:
        tensors = {name: torch.tensor(value) for name, value in draw.items()}
        expected += torch.func.functional_call(model, tensors, x).softmax(1).detach() / len(draws)
    torch.testing.assert_close(probabilities, expected)
    assert (probabilities.argmax(1) == y).float().mean() > 0.85
    assert not np.allclose(draws[0, 0]["0.weight"], draws[1, 0]["0.weight"], atol=0.1)
    assert all(torch.equal(last[name], p) for name, p in model.named_parameters())
    np.testing.assert_array_equal(draws[1, 9]["2.bias"], model[2].bias.detach())

    draws.save(tmp_path / "run")
    again = Draws.load(tmp_path / "run")
    torch.testing.assert_close(predict(model, again, x, batch_size=40), probabilities)
    assert again.steps == draws.steps
    with pytest.raises(InputError, match="`folder` must not hold draws yet"):
        draws.save(tmp_path / "run")
    with pytest.raises(InputError, match=r"`draws` must have the parameters 0\.weight"):
        predict(small_network(torch.nn.Linear(16, 16)), draws, x)

    thinned = sample(model, loader, num_samples=2)
    assert thinned.steps == [9, 12]


def test_predictions_of_a_mean_and_a_scale_have_both_variances():
    from roamax.torch import predict

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(()))
            self.log_scale = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return self.slope * x[:, 0], self.log_scale.exp()

    slopes, scales = np.array([1.0, 2.0, 6.0], np.float32), np.array([0.5, 1.0, 2.0], np.float32)
    draws = [{"slope": a, "log_scale": np.log(s)} for a, s in zip(slopes, scales, strict=True)]
    found = predict(Line(), draws, torch.tensor([[1.0], [2.0]]))
    torch.testing.assert_close(found.mean, torch.tensor([3.0, 6.0]))
    expected = [np.sqrt(np.mean(scales**2) + np.var(slopes * x)) for x in (1, 2)]
    torch.testing.assert_close(found.std, torch.tensor(expected))


def test_batch_normalisation_is_estimated_for_each_draw():
    from roamax.torch import predict, sample

    data, loader = moons()
    model = small_network(torch.nn.BatchNorm1d(16))
    draws = sample(model, loader, num_samples=2, lr=0.5)
    with pytest.raises(InputError, match="`statistics` must be a loader of training batches"):
        predict(model, draws, data.tensors[0])
    before = model[1].running_mean.clone()
    found = predict(model, list(draws)[:1], data.tensors[0], statistics=loader)
    assert torch.equal(model[1].running_mean, before)
    assert model.training
    first = draws[0, 0]
    hidden = data.tensors[0] @ torch.tensor(first["0.weight"]).T + torch.tensor(first["0.bias"])
    scaled = (hidden - hidden.mean(0)) / (hidden.var(0) + 1e-5).sqrt()
    scaled = scaled * torch.tensor(first["1.weight"]) + torch.tensor(first["1.bias"])
    logits = scaled.tanh() @ torch.tensor(first["3.weight"]).T + torch.tensor(first["3.bias"])
    torch.testing.assert_close(found, logits.softmax(1), atol=0.02, rtol=0)


def test_divergence_is_one_line():
    from roamax.torch import sample

    _, loader = moons()
    with pytest.raises(roamax.errors.DivergenceError) as caught:
        sample(small_network(), loader, lr=1e38, num_samples=1)
    assert str(caught.value) == (
        "the chain diverged: parameter 0 of group 0, of shape (16, 2), was not finite after step 6. "
        "Try a smaller `lr` than 1e+38."
    )
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = optimizers()[1]([parameter], num_data=10)
    parameter.data.fill_(float("nan"))
    with pytest.raises(roamax.errors.DivergenceError):
        _ = optimizer.collect
    parameter.grad = torch.zeros(2)
    for _ in range(49):
        optimizer.step()
    with pytest.raises(roamax.errors.DivergenceError, match="after step 50"):
        optimizer.step()


def test_l2e_takes_a_learning_rate_and_schedulers():
    kind = optimizers()[0]
    options = {"num_data": 10, "weights": weights()}
    params = [torch.nn.Parameter(torch.zeros(2))]
    optimizer = kind(params, lr=0.4, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.25)
    params[0].grad = torch.ones(2)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    by_step_size = kind(params, step_size=0.1, **options)
    state = by_step_size.state_dict()
    assert state["param_groups"][0]["lr"] == pytest.approx(0.1)
    with pytest.raises(InputError, match="`lr` must be left out where `step_size` is given"):
        kind(params, lr=0.1, step_size=0.1, **options)
    # A state from before, with epsilon and one generator.
    old = {name: value for name, value in state["param_groups"][0].items() if name != "lr"} | {"step_size": 0.2}
    generator = torch.Generator().manual_seed(5).get_state()
    optimizer.load_state_dict({**state, "param_groups": [old], "generator": generator})
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4)
    expected = torch.empty(2).normal_(generator=torch.Generator().manual_seed(5))
    assert torch.equal(optimizer._noise(params)[0], expected)


def test_noise_is_drawn_where_the_parameters_are(monkeypatch):
    """A machine without a GPU: generators of other devices are made on the CPU, and their devices noted."""
    from roamax.torch.optimizer import NoiseSource

    made, real = [], torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device: made.append(str(device)) or real())
    source = NoiseSource(None)
    streams = [source._on(torch.device(name)) for name in ("cpu", "cuda:0", "cuda:1", "cpu")]
    assert made == ["cpu", "cuda:0", "cuda:1"]
    assert streams[0] is streams[3]
    assert len({stream.initial_seed() for stream in streams}) == 3
    assert set(source.state()) == {"seed", "cpu", "cuda:0", "cuda:1"}

    moved = torch.nn.Parameter(torch.zeros(2, device="meta"))
    optimizer = optimizers()[1]([moved], num_data=10)
    optimizer.state[moved]["momentum"] = torch.zeros(2)
    optimizer._follow([moved])
    assert optimizer.state[moved]["momentum"].device.type == "meta"
