"""The contests with other libraries."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import Contest, Mark
from benchmarks.work import BATCH, SETTINGS, Work, in_scan, network, turns
from roamax.samplers.sghmc import sghmc

SMALL_CNN = {"channels": 16, "depth": 2}


def missing(package: str) -> bool:
    """Return whether a package is not installed."""
    return importlib.util.find_spec(package) is None


def against_posteriors() -> Contest:
    """Compare a step of SGHMC with that of posteriors, updated in place, and with PyTorch's SGD as a lower bound."""
    steps, work = 20, network("cnn", (28, 28, 1), **SMALL_CNN)
    contestants = {
        "roamax": in_scan(sghmc(work.posterior, **SETTINGS), work.position, work.batch, steps),
        "posteriors": posteriors_sghmc(torch_cnn(depth=2), steps),
        "PyTorch SGD": torch_sgd(torch_cnn(depth=2), steps),
    }
    return Contest("step of SGHMC against posteriors in place, CNN 16-16-dense on 28x28, batch 128", contestants,
                   Mark("roamax", "posteriors", at_most=1.0), work=steps)  # fmt: skip


def against_blackjax() -> Contest:
    """Compare a step of SGHMC with that of blackjax in a scan, on the same network with XLA's convolutions."""
    from blackjax.sgmcmc.diffusions import sghmc as diffusion

    steps, work = 2, network("cnn", (28, 28, 1), **SMALL_CNN)
    move: Any = diffusion(alpha=SETTINGS["friction"])
    forward = _plain_cnn(work)

    def log_density(params: Any) -> jax.Array:
        x, y = work.batch
        log_probs = jax.nn.log_softmax(forward(params, x))
        likelihood = jnp.take_along_axis(log_probs, y[:, None], axis=1).mean() * work.posterior.num_data
        return likelihood + work.posterior.log_prior(params)

    @jax.jit
    def run(state: Any, key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            gradient = jax.grad(log_density)(state[0])
            with jax.numpy_dtype_promotion("standard"):
                return move(key, *state, gradient, SETTINGS["step_size"]), None

        return jax.lax.scan(step, state, jax.random.split(key, steps))[0]

    start = (work.position, jax.tree.map(jnp.zeros_like, work.position))
    contestants = {
        "roamax": in_scan(sghmc(work.posterior, **SETTINGS), work.position, work.batch, steps),
        "blackjax": turns(run, start),
    }
    return Contest("step of SGHMC against blackjax in scan, the same network", contestants,
                   Mark("roamax", "blackjax", at_most=0.2), work=steps)  # fmt: skip


def torch_cnn(depth: int, bottleneck: int | None = None) -> Any:
    """Return the zoo's CNN of 16 channels in PyTorch."""
    from torch import nn

    layers: list[Any] = []
    for layer in range(depth):
        layers += [nn.Conv2d(16 if layer else 1, 16, 3, padding=1), nn.ReLU()]
    width = 16 * 14 * 14
    layers += [nn.MaxPool2d(2), nn.Flatten()]
    if bottleneck is not None:
        layers.append(nn.Linear(width, bottleneck))
        width = bottleneck
    return nn.Sequential(*layers, nn.Linear(width, 10))


def torch_sgd(model: Any, steps: int) -> Callable[[], None]:
    """Return a turn of SGD with momentum in PyTorch, a lower bound for its samplers."""
    import torch

    x, y = _torch_batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def turn() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    return turn


def posteriors_sghmc(model: Any, steps: int) -> Callable[[], None]:
    """Return a turn of SGHMC in posteriors, which updates its state in place."""
    import torch
    from posteriors.sgmcmc import sghmc as peer  # pyright: ignore[reportMissingImports]

    batch = _torch_batch()

    def log_posterior(params: Any, batch: Any) -> tuple[Any, Any]:
        x, y = batch
        logits = torch.func.functional_call(model, params, x)
        prior = sum((leaf**2).sum() for leaf in params.values())
        return -50_000 * torch.nn.functional.cross_entropy(logits, y) - 5 * prior, logits.detach()

    transform = peer.build(log_posterior, lr=SETTINGS["step_size"], alpha=SETTINGS["friction"])
    kept = {"state": transform.init({name: leaf.detach() for name, leaf in model.named_parameters()})}

    def turn() -> None:
        for _ in range(steps):
            kept["state"], _ = transform.update(kept["state"], batch, inplace=True)

    return turn


def _torch_batch() -> tuple[Any, Any]:
    import torch

    return torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))


def _plain_cnn(work: Work) -> Callable[[Any, jax.Array], jax.Array]:
    """Return the forward pass of the zoo's small CNN with `jax.lax` convolutions, on the same parameters."""

    def forward(params: Any, x: jax.Array) -> jax.Array:
        for layer in range(SMALL_CNN["depth"]):
            weights = params[f"conv{layer}"]
            x = jax.lax.conv_general_dilated(
                x, weights["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + weights["bias"].reshape(1, 1, 1, -1))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        output = params["output"]
        return x.reshape(len(x), -1) @ output["kernel"] + output["bias"].reshape(1, -1)

    return forward
