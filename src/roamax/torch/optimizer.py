"""The base class of PyTorch samplers: scale, prior, noise, and a state that resumes exactly."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch

from roamax.errors import check

Group = dict[str, Any]


class SamplingOptimizer(torch.optim.Optimizer, ABC):
    """A `torch.optim.Optimizer` that updates parameters as a sampler does.

    With g the gradient of the mean loss over a batch, grad U = N (g + weight_decay * theta), where N is `num_data`. For
    another prior, set `weight_decay=0` and add -log p(theta) / N to the loss.

    Noise is drawn from `generator`, on its device; by default, from a new generator seeded by PyTorch's default one,
    and so by `torch.manual_seed`. Its state is part of `state_dict`, so that a run resumes bit for bit. Settings may
    differ between parameter groups and may be changed between steps. The momentum starts from its stationary
    distribution, N(0, T I).

    Args:
        params: Parameters or parameter groups.
        defaults: Settings for groups that do not have their own.
        generator: The source of noise.
    """

    _positive: tuple[str, ...] = ("num_data",)
    _not_negative: tuple[str, ...] = ("weight_decay", "temperature")
    _copied: tuple[str, ...] = ("_generator",)

    def __init__(self, params: Iterable[Any], defaults: Group, generator: torch.Generator | None):
        super().__init__(params, {**defaults, "steps": 0})
        self._generator = self._new_generator() if generator is None else generator

    def _new_generator(self) -> torch.Generator:
        seed = int(torch.randint(2**63 - 1, ()))
        return torch.Generator(self.param_groups[0]["params"][0].device).manual_seed(seed)

    @property
    def collect(self) -> bool:
        """Whether the parameters after the last step may be kept as a draw."""
        return True

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with their own settings."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name in self._positive + self._not_negative:
            value, least = group[name], "> 0" if name in self._positive else ">= 0"
            good = math.isfinite(value) and (value > 0 if name in self._positive else value >= 0)
            check(good, name, f"be a finite number {least}", value)
        for parameter in group["params"]:
            check(parameter.is_floating_point(), "params", "hold floating-point tensors", parameter.dtype)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Take one step of the sampler with the current gradients.

        Args:
            closure: A function that computes the gradients and returns the loss; None if they are already there.

        Returns:
            The loss that `closure` returned, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            members = [parameter for parameter in group["params"] if parameter.grad is not None]
            if members:
                check(
                    not any(g.is_sparse for g in gradients(members)), "params", "have dense gradients", "a sparse one"
                )
                self._move(group, members)
            group["steps"] += 1
        return loss

    @abstractmethod
    def _move(self, group: Group, members: list[torch.Tensor]) -> None:
        """Update `members`, the parameters of a group that have a gradient."""

    def _noise(self, members: list[torch.Tensor]) -> list[torch.Tensor]:
        """Draw independent standard normal numbers in the shape of each tensor."""
        device = self._generator.device
        return [
            torch.empty(p.shape, dtype=p.dtype, device=device).normal_(generator=self._generator).to(p.device)
            for p in members
        ]

    def _first_momenta(
        self, members: list[torch.Tensor], temperature: float
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Draw momenta from their stationary law, N(0, T I), for the parameters that have no state yet."""
        new = [p for p in members if not self.state[p]]
        drawn = self._noise(new) if temperature > 0 else [torch.zeros_like(p) for p in new]
        return [(p, math.sqrt(temperature) * momentum) for p, momentum in zip(new, drawn, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer and of its noise generator."""
        return {**super().state_dict(), "generator": self._generator.get_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another optimizer, to resume from it."""
        check("generator" in state_dict, "state_dict", "be that of a sampler of roamax.torch", sorted(state_dict))
        super().load_state_dict(state_dict)
        self._generator.set_state(state_dict["generator"].cpu())
        # PyTorch has cast the state to the parameters' dtype; restore state of higher precision.
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        members = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, members, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                self.state[parameter][name] = value.to(parameter.device, copy=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in self._copied}}


def gradients(members: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of those parameters that have one."""
    return [parameter.grad for parameter in members if parameter.grad is not None]
