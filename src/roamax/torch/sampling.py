"""Run a PyTorch sampler over a loader, keep its draws, and average the predictions of the network over them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from roamax.errors import DivergenceError, check
from roamax.evaluation.predict import BATCH_SIZE, Normal
from roamax.host.progress import progress_bar
from roamax.sampling.draws import Draws
from roamax.torch.optimizer import SamplingOptimizer
from roamax.torch.sghmc import SGHMC, Cyclical

CYCLE_EPOCHS = 2
"""The default length of a cycle of `Cyclical`, in epochs."""
Loss = Callable[[Any, torch.Tensor], torch.Tensor]


def sample(
    model: torch.nn.Module,
    loader: Iterable[Any],
    sampler: Callable[..., SamplingOptimizer] = SGHMC,
    *,
    num_samples: int = 20,
    burn_in: int | None = None,
    thinning: int | None = None,
    num_chains: int = 1,
    loss: Loss = torch.nn.functional.cross_entropy,
    init: Callable[[torch.nn.Module], Any] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Draws:
    """Sample the parameters of a network, one chain after the other.

    Chains differ in their noise and in the order of a shuffled loader, both of which `torch.manual_seed` determines.
    Afterwards, the network holds the last position.

    Args:
        model: The network. It is trained in place, on the device that it is on, in training mode.
        loader: Batches (inputs, targets), such as a `torch.utils.data.DataLoader`, to be iterated once per epoch.
        sampler: `SGHMC`, `Cyclical`, `L2E`, or another function of parameters that returns a sampling optimizer.
        num_samples: The number of draws per chain.
        burn_in: The number of steps before the first draw may be taken; None takes as many as the draws do, or none
            for `Cyclical`.
        thinning: The number of steps per draw; None takes an epoch. `Cyclical` chooses its draws itself.
        num_chains: The number of chains.
        loss: The *mean* loss of a batch, a function of the network's outputs and the targets.
        init: A function that sets the network to the start of a chain, called before each; None starts all chains from
            the network as it is.
        progress: Whether to show a progress bar; None shows it on a terminal only.
        **settings: Settings of the sampler. By default, `num_data` is the length of the loader's data set, and the
            `cycle_length` of `Cyclical` is `CYCLE_EPOCHS` epochs.

    Returns:
        The draws: dictionaries of NumPy arrays by parameter name.

    Raises:
        DivergenceError: A parameter is no longer finite. The error's `draws` are those of the chains before.
    """
    length = len(loader) if hasattr(loader, "__len__") else None  # pyright: ignore[reportArgumentType]
    if sampler is Cyclical and length is not None:
        settings.setdefault("cycle_length", CYCLE_EPOCHS * length)
    if thinning is None:
        thinning = 1 if sampler is Cyclical else length
        check(thinning is not None, "thinning", "be given for a loader without a length", None)
        assert thinning is not None
    if burn_in is None:
        burn_in = 0 if sampler is Cyclical else num_samples * thinning
    for name, value, least in (("num_samples", num_samples, 1), ("burn_in", burn_in, 0), ("thinning", thinning, 1),
                               ("num_chains", num_chains, 1)):  # fmt: skip
        check(value == int(value) and value >= least, name, f"be a whole number >= {least}", value)
    if "num_data" not in settings:
        data: Any = getattr(loader, "dataset", None)
        check(hasattr(data, "__len__"), "num_data", "be given for a loader without a data set", None)
        settings["num_data"] = len(data)
    start = _copy(model)
    chains: list[list[dict[str, np.ndarray]]] = []
    steps: list[int] = []
    model.train()
    with progress_bar("sampling", num_chains * num_samples, show=progress, note="") as report:
        for chain in range(num_chains):
            _load(model, start)
            if init is not None:
                init(model)
            optimizer = sampler([p for p in model.parameters() if p.requires_grad], **settings)
            draws: list[dict[str, np.ndarray]] = []
            try:
                for step in _draw_steps(model, loader, loss, optimizer, burn_in, thinning):
                    draws.append(_copy(model))
                    steps = [*steps, step] if chain == 0 else steps
                    report(chain * num_samples + len(draws), f"chain {chain}, step {step}")
                    if len(draws) == num_samples:
                        break
            except DivergenceError as error:
                error.draws = _stacked(chains, steps) if chains else None
                raise
            chains.append(draws)
    return _stacked(chains, steps)


def _draw_steps(
    model: torch.nn.Module, loader: Iterable[Any], loss: Loss, optimizer: SamplingOptimizer, burn_in: int, thinning: int
) -> Iterator[int]:
    """Take steps; yield the number of steps taken whenever the position is a draw."""
    device = next(model.parameters()).device
    step, allowed = 0, 0
    while True:
        before = step
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss(model(_to(inputs, device)), _to(targets, device)).backward()
            optimizer.step()
            step += 1
            allowed += step > burn_in and optimizer.ends_in_draw
            if allowed == thinning:
                optimizer.guard()
                allowed = 0
                yield step
        check(step > before, "loader", "give batches in every epoch", "none")


@torch.no_grad()
def predict(
    model: torch.nn.Module,
    draws: Draws | Iterable[dict[str, np.ndarray]],
    x: Any,
    *,
    batch_size: int = BATCH_SIZE,
    statistics: Iterable[Any] | None = None,
) -> Any:
    """Compute the posterior predictive at inputs `x`, an average over all draws of all chains.

    Args:
        model: The network that the draws are of; its parameters, buffers and mode are the same afterwards.
        draws: The draws, or any iterable of parameters by name.
        x: The inputs, a tensor.
        batch_size: The number of inputs that go through the network at once.
        statistics: A loader of training batches, from which the running means and variances of batch normalisation are
            estimated anew for each draw. Networks that have such must be given it.

    Returns:
        For a network that returns logits, the mean of their softmax. For one that returns a pair of a mean and a scale,
        a `Normal`: by the law of total variance, its variance is the mean of scale^2 plus the variance of the means.
    """
    rule = "be a loader of training batches, because the network has batch normalisation"
    check(statistics is not None or not _has_batch_norm(model), "statistics", rule, None)
    device = next(model.parameters()).device
    total, count = None, 0
    with _restored(model):
        for params in draws:
            _load(model, params)
            if statistics is not None:
                torch.optim.swa_utils.update_bn(statistics, model, device=device)
            model.train(False)
            found = _join([model(part.to(device)) for part in x.split(batch_size)])
            total = _add(total, found, count)
            count += 1
    check(total is not None, "draws", "hold at least one draw", "none")
    assert total is not None
    if len(total) == 1:
        return total[0]
    mean, spread, noise = total
    return Normal(mean, (noise + spread / count).sqrt())


def _add(total: Any, found: Any, count: int) -> tuple[torch.Tensor, ...]:
    """Add a draw to the running mean of probabilities, or to Welford's moments of a mean and a scale."""
    if not isinstance(found, tuple):
        probabilities = found.softmax(dim=1)
        return (probabilities if total is None else total[0] + (probabilities - total[0]) / (count + 1),)
    mean, scale = found[0], found[1].expand_as(found[0]).square()
    if total is None:
        return mean, torch.zeros_like(mean), scale
    distance = mean - total[0]
    middle = total[0] + distance / (count + 1)
    return middle, total[1] + distance * (mean - middle), total[2] + (scale - total[2]) / (count + 1)


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], tuple):
        means, scales = zip(*parts, strict=True)
        return torch.cat(means), torch.cat([s.expand_as(m) for m, s in zip(means, scales, strict=True)])
    return torch.cat(parts)


def _has_batch_norm(model: torch.nn.Module) -> bool:
    return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())


def _named(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters by name, the same whether or not the network is compiled."""
    return {name.removeprefix("_orig_mod."): p for name, p in model.named_parameters()}


def _copy(model: torch.nn.Module) -> dict[str, np.ndarray]:
    # NumPy has no bfloat16; every one is a float32.
    values = {name: p.detach().cpu() for name, p in _named(model).items()}
    return {name: (v.float() if v.dtype == torch.bfloat16 else v).numpy().copy() for name, v in values.items()}


@torch.no_grad()
def _load(model: torch.nn.Module, params: dict[str, np.ndarray]) -> None:
    named = _named(model)
    check(named.keys() == params.keys(), "draws", f"have the parameters {', '.join(named)}", ", ".join(params))
    for name, parameter in named.items():
        value = torch.as_tensor(np.array(params[name]))
        check(value.shape == parameter.shape, "draws", f"have shape {tuple(parameter.shape)} in {name!r}",
              tuple(value.shape))  # fmt: skip
        parameter.copy_(value)


@contextmanager
def _restored(model: torch.nn.Module) -> Iterator[None]:
    """Put the parameters, buffers and mode of every module back in the end."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        model.load_state_dict(state)
        for module, mode in modes.items():
            module.training = mode


def _stacked(chains: list[list[dict[str, np.ndarray]]], steps: list[int]) -> Draws:
    names = chains[0][0]
    return Draws.from_positions(
        {name: np.stack([[draw[name] for draw in draws] for draws in chains]) for name in names}, steps
    )


def _to(batch: Any, device: torch.device) -> Any:
    return batch.to(device) if hasattr(batch, "to") else batch
