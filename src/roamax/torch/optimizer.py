"""The base class of PyTorch samplers: scale, prior, noise, and a state that resumes exactly."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch

from roamax.errors import DivergenceError, check

Group = dict[str, Any]
GUARD_STEPS = 50
"""The number of steps between two checks for divergence: rare enough not to hold up a GPU."""


class SamplingOptimizer(torch.optim.Optimizer, ABC):
    """A `torch.optim.Optimizer` that updates parameters as a sampler does.

    With g the gradient of the mean loss over a batch, grad U = N (g + weight_decay * theta), where N is `num_data`. For
    another prior, set `weight_decay=0` and add -log p(theta) / N to the loss.

    Noise is drawn from `generator`, on its device; by default, on the device of each parameter, wherever the model has
    moved, from generators seeded by PyTorch's default one, and so by `torch.manual_seed`. Their state is part of
    `state_dict`, so that a run resumes bit for bit. Settings may differ between parameter groups and may be changed
    between steps. The momentum starts from its stationary distribution, N(0, T I).

    Every `GUARD_STEPS` steps, and when `collect` is read, the parameters are checked: a `DivergenceError` says which
    tensor is no longer finite.

    Args:
        params: Parameters or parameter groups.
        defaults: Settings for groups that do not have their own.
        generator: The source of noise.
    """

    _positive: tuple[str, ...] = ("num_data",)
    _not_negative: tuple[str, ...] = ("weight_decay", "temperature")
    _copied: tuple[str, ...] = ("_noise_source",)

    def __init__(self, params: Iterable[Any], defaults: Group, generator: torch.Generator | None):
        super().__init__(params, {**defaults, "steps": 0})
        self._noise_source = NoiseSource(generator)

    @property
    def collect(self) -> bool:
        """Whether the parameters after the last step may be kept as a draw."""
        if self.ends_in_draw:
            self.guard()
        return self.ends_in_draw

    @property
    def ends_in_draw(self) -> bool:
        return True

    def guard(self) -> None:
        """Raise a `DivergenceError` if a parameter is no longer finite."""
        for number, group in enumerate(self.param_groups):
            for place, parameter in enumerate(group["params"]):
                if not torch.isfinite(parameter.detach()).all():
                    raise DivergenceError(
                        f"the chain diverged: parameter {place} of group {number}, of shape {tuple(parameter.shape)}, "
                        f"was not finite after step {group['steps']}. Try a smaller `lr` than {group['lr']:g}."
                    )

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
                self._follow(members)
                self._move(group, members)
            group["steps"] += 1
        if self.param_groups[0]["steps"] % GUARD_STEPS == 0:
            self.guard()
        return loss

    def _follow(self, members: list[torch.Tensor]) -> None:
        """Bring the state of parameters to the device that they have moved to."""
        for parameter in members:
            state = self.state[parameter]
            for name, value in state.items():
                if value.device != parameter.device:
                    state[name] = value.to(parameter.device)

    @abstractmethod
    def _move(self, group: Group, members: list[torch.Tensor]) -> None:
        """Update `members`, the parameters of a group that have a gradient."""

    def _noise(self, members: list[torch.Tensor]) -> list[torch.Tensor]:
        """Draw independent standard normal numbers in the shape of each tensor."""
        return [self._noise_source.normal_like(p) for p in members]

    def _first_momenta(
        self, members: list[torch.Tensor], temperature: float
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Draw momenta from their stationary law, N(0, T I), for the parameters that have no state yet."""
        new = [p for p in members if not self.state[p]]
        drawn = self._noise(new) if temperature > 0 else [torch.zeros_like(p) for p in new]
        return [(p, math.sqrt(temperature) * momentum) for p, momentum in zip(new, drawn, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer and of its noise generators."""
        return {**super().state_dict(), "generator": self._noise_source.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another optimizer, to resume from it."""
        check("generator" in state_dict, "state_dict", "be that of a sampler of roamax.torch", sorted(state_dict))
        super().load_state_dict(state_dict)
        self._noise_source.load(state_dict["generator"], self.param_groups[0]["params"][0].device)
        # PyTorch has cast the state to the parameters' dtype; restore state of higher precision.
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        members = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, members, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                self.state[parameter][name] = value.to(parameter.device, copy=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in self._copied}}


class NoiseSource:
    """Normal numbers from a given generator, or from one generator per device, made when a device is first seen."""

    def __init__(self, generator: torch.Generator | None):
        self._given = generator
        self._seed = int(torch.randint(2**63 - 1, ())) if generator is None else 0
        self._generators: dict[str, torch.Generator] = {}

    def normal_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Draw standard normal numbers in the shape, the dtype and on the device of a tensor."""
        generator = self._on(tensor.device)
        drawn = torch.empty(tensor.shape, dtype=tensor.dtype, device=generator.device).normal_(generator=generator)
        return drawn.to(tensor.device)

    def _on(self, device: torch.device) -> torch.Generator:
        if self._given is not None:
            return self._given
        name = str(device)
        if name not in self._generators:
            self._generators[name] = torch.Generator(device).manual_seed(self._seed + len(self._generators))
        return self._generators[name]

    def state(self) -> dict[str, Any]:
        """Return the seed, and the state of each generator by its device."""
        if self._given is not None:
            return {"given": self._given.get_state()}
        return {"seed": self._seed, **{name: made.get_state() for name, made in self._generators.items()}}

    def load(self, state: dict[str, Any] | torch.Tensor, device: torch.device) -> None:
        """Take over a state; one of an older version has a single generator, that of the parameters' `device`."""
        states: dict[str, Any] = (
            dict(state) if isinstance(state, dict) else {"given" if self._given else str(device): state}
        )
        self._seed = states.pop("seed", self._seed)
        self._generators = {}
        for name, saved in states.items():
            if self._given is not None or name == "given":
                self._on(device).set_state(saved.cpu())
            elif torch.device(name).type in ("cpu", device.type):
                self._on(torch.device(name)).set_state(saved.cpu())


def gradients(members: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of those parameters that have one."""
    return [parameter.grad for parameter in members if parameter.grad is not None]
