"""SGHMC and its cyclical form as PyTorch optimizers."""

# PyTorch's own optimizers use the `_foreach` functions, the only way to update many tensors in one call.
# pyright: reportPrivateImportUsage=false

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import torch

from roamax.errors import check
from roamax.schedules import Cycle, CyclicalCosine
from roamax.torch.optimizer import Group, SamplingOptimizer, gradients


class _Momentum(SamplingOptimizer):
    """The step of SGHMC, for any schedule of learning rate and temperature."""

    _positive = ("num_data", "lr", "momentum_decay")

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with their own settings."""
        super().add_param_group(param_group)
        decay = self.param_groups[-1]["momentum_decay"]
        check(decay <= 1, "momentum_decay", "be in (0, 1]", decay)

    def _move(self, group: Group, members: list[torch.Tensor]) -> None:
        lr, temperature = self._settings(group)
        epsilon, decay = math.sqrt(lr / group["num_data"]), group["momentum_decay"]
        for p, momentum in self._first_momenta(members, temperature):
            self.state[p]["momentum"] = momentum
        momenta = [self.state[p]["momentum"] for p in members]
        scale = -epsilon * group["num_data"]
        torch._foreach_mul_(momenta, 1 - decay)
        torch._foreach_add_(momenta, gradients(members), alpha=scale)
        if group["weight_decay"] > 0:
            torch._foreach_add_(momenta, members, alpha=scale * group["weight_decay"])
        if temperature > 0:
            torch._foreach_add_(momenta, self._noise(members), alpha=math.sqrt(2 * decay * temperature))
        torch._foreach_add_(members, momenta, alpha=epsilon)

    def _settings(self, group: Group) -> tuple[float, float]:
        """Return the learning rate and temperature of the next step."""
        return group["lr"], group["temperature"]


class SGHMC(_Momentum):
    """`roamax.sghmc`, in the terms of SGD with momentum.

        r     <- (1 - a) r - epsilon grad U(theta) + N(0, 2 a T)
        theta <- theta + epsilon r

    with epsilon = sqrt(lr / num_data) and momentum decay a. At temperature 0 it *is*
    `torch.optim.SGD(params, lr, momentum=1 - a, weight_decay=weight_decay)`. PyTorch's schedulers may change `lr`.

        optimizer = roamax.torch.SGHMC(model.parameters(), num_data=60_000, lr=0.1, weight_decay=5e-4)

    Args:
        params: Parameters or parameter groups.
        num_data: N, the number of training examples.
        lr: The learning rate on the mean loss, as in SGD and `roamax.from_learning_rate`.
        momentum_decay: a, one minus the momentum of SGD.
        temperature: T; 1 samples the posterior, less predicts better where that is wide: see docs/pytorch.md.
        weight_decay: The Gaussian prior, relative to the mean loss.
        generator: The source of noise; None is one seeded by PyTorch's default generator.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        num_data: int,
        lr: float = 0.1,
        momentum_decay: float = 0.1,
        temperature: float = 0.05,
        weight_decay: float = 5e-4,
        generator: torch.Generator | None = None,
    ):
        defaults = {
            "num_data": num_data,
            "lr": lr,
            "momentum_decay": momentum_decay,
            "temperature": temperature,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults, generator)


class Cyclical(_Momentum):
    """`roamax.cyclical`: SGHMC with warm restarts.

    In each cycle the learning rate decays from `lr` to 0 along a cosine. The first `exploration_ratio` of a cycle runs
    at temperature 0, as SGD with momentum; the rest samples. After the last step of a cycle, `optimizer.collect` is
    True: the parameters are a draw.

        optimizer = roamax.torch.Cyclical(model.parameters(), num_data=60_000, lr=0.1, cycle_length=5_000)

    Args:
        params: Parameters or parameter groups.
        num_data: N, the number of training examples.
        cycle_length: The number of steps per cycle.
        lr: The learning rate on the mean loss at the start of a cycle.
        momentum_decay: One minus the momentum of SGD.
        exploration_ratio: The fraction of a cycle that runs at temperature 0.
        draws_per_cycle: The number of draws, spread evenly over the sampling part of a cycle.
        temperature: T in the rest of a cycle; 1 samples the posterior.
        weight_decay: The Gaussian prior, relative to the mean loss.
        generator: The source of noise; None is one seeded by PyTorch's default generator.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        num_data: int,
        cycle_length: int,
        lr: float = 0.1,
        momentum_decay: float = 0.1,
        exploration_ratio: float = 0.8,
        draws_per_cycle: int = 1,
        temperature: float = 1.0,
        weight_decay: float = 5e-4,
        generator: torch.Generator | None = None,
    ):
        defaults = {
            "num_data": num_data,
            "cycle_length": cycle_length,
            "lr": lr,
            "momentum_decay": momentum_decay,
            "exploration_ratio": exploration_ratio,
            "draws_per_cycle": draws_per_cycle,
            "temperature": temperature,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults, generator)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with their own settings."""
        super().add_param_group(param_group)
        _cycle(self.param_groups[-1])

    @property
    def ends_in_draw(self) -> bool:
        group = self.param_groups[0]
        return group["steps"] > 0 and _cycle(group).ends_in_draw(group["steps"])

    def _settings(self, group: Group) -> tuple[float, float]:
        lr = CyclicalCosine(group["lr"], group["cycle_length"])(group["steps"])
        return lr, 0.0 if _cycle(group).explores(group["steps"]) else group["temperature"]


def _cycle(group: Group) -> Cycle:
    cycle = Cycle(group["cycle_length"], group["exploration_ratio"])
    # In states saved before this setting existed, every step of the sampling part was a draw.
    return dataclasses.replace(cycle, draws=group.get("draws_per_cycle", cycle.sampling_steps))
