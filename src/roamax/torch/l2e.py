"""L2E as a PyTorch optimizer, with the weights files of the JAX sampler."""

# PyTorch's own optimizers use the `_foreach` functions, the only way to update many tensors in one call.
# pyright: reportPrivateImportUsage=false

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roamax import pretrained
from roamax.errors import check
from roamax.samplers.learned import _network, l2e
from roamax.samplers.learned._groups import STABILISER
from roamax.torch.optimizer import Group, SamplingOptimizer, gradients
from roamax.types import MetaParams

BUCKET = 2**20
"""Tensors are updated together up to this many numbers: few calls for small tensors, bounded memory for large."""
COLUMNS = {"cpu": 2**12}
"""How many numbers the network takes at once; on a CPU, few enough for the hidden units to stay in cache."""
GRADIENT, THETA, MOMENTUM, AVERAGES = 0, 1, 2, slice(3, 9)
"""The rows of the features."""


class L2E(SamplingOptimizer):
    """`roamax.l2e`: SGHMC whose kinetic energy is learned, with the same weights as the JAX sampler.

        r     <- r - epsilon [grad U(theta) + alpha(theta, r) + C beta(theta, r)] + N(0, 2 C epsilon T)
        theta <- theta + epsilon beta(theta, r)

        optimizer = roamax.torch.L2E(model.parameters(), num_data=60_000, weight_decay=5e-4)

    Args:
        params: Parameters or parameter groups.
        num_data: N, the number of training examples.
        weights: "pretrained", one of `roamax.pretrained.names()`, a safetensors file, or the weights themselves as
            nested dictionaries of arrays.
        lr: The learning rate, epsilon = sqrt(lr / num_data) as in `SGHMC`; PyTorch's schedulers may change it.
        step_size: epsilon, in place of `lr`; with neither, it comes, like `friction` and `output_scale`, from the
            weights' card.
        friction: C.
        output_scale: The factor of alpha and beta.
        temperature: T; 1 samples the posterior.
        weight_decay: The Gaussian prior, relative to the mean loss.
        passes: The number of network evaluations per step; 1 reuses beta from the first line in the second.
        generator: The source of noise; None is one seeded by PyTorch's default generator.
    """

    _positive = ("num_data", "lr", "friction", "output_scale")
    _copied = ("_noise_source", "_layers")

    def __init__(
        self,
        params: Iterable[Any],
        *,
        num_data: int,
        weights: MetaParams | str | Path = "pretrained",
        lr: float | None = None,
        step_size: float | None = None,
        friction: float | None = None,
        output_scale: float | None = None,
        temperature: float = 1.0,
        weight_decay: float = 5e-4,
        passes: int = 2,
        generator: torch.Generator | None = None,
    ):
        found = pretrained.resolve(weights, "l2e", "weights")
        _network.check_mlp(found.meta_params, l2e.WIDTHS, found.source)
        defaults = found.settings(l2e.DEFAULTS, step_size=step_size, friction=friction, output_scale=output_scale)
        check(lr is None or step_size is None, "lr", "be left out where `step_size` is given", lr)
        epsilon = defaults.pop("step_size")
        defaults["lr"] = epsilon**2 * num_data if lr is None else lr
        defaults |= {"num_data": num_data, "temperature": temperature, "weight_decay": weight_decay, "passes": passes}
        super().__init__(params, defaults, generator)
        pretrained.cards.warn_if_far(found, num_data, None)
        self._layers = [_Layer.read(found.meta_params[f"layer{i}"]) for i in range(len(l2e.WIDTHS) - 1)]

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with their own settings."""
        super().add_param_group(param_group)
        passes = self.param_groups[-1]["passes"]
        check(passes in (1, 2), "passes", "be 1 or 2", passes)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another optimizer, to resume from it."""
        groups = state_dict.get("param_groups", [])
        # States used to hold epsilon.
        renamed = [
            {"lr": group["step_size"] ** 2 * group["num_data"], **group} if "step_size" in group else group
            for group in groups
        ]
        super().load_state_dict({**state_dict, "param_groups": renamed})

    def _move(self, group: Group, members: list[torch.Tensor]) -> None:
        for bucket in _buckets(members):
            self._move_together(group, bucket)

    def _move_together(self, group: Group, members: list[torch.Tensor]) -> None:
        friction, num_data = group["friction"], group["num_data"]
        epsilon = math.sqrt(group["lr"] / num_data)
        sizes = [p.numel() for p in members]
        features = self._features(group, members)
        scaled = features * _inverse_rms(features, sizes)
        noise = math.sqrt(2 * friction * epsilon * group["temperature"])
        base = features[MOMENTUM] - epsilon * num_data * features[GRADIENT]
        if noise > 0:
            base += noise * _flat(self._noise(members), features.dtype)
        kick, drift = (-epsilon, -epsilon * friction), (0.0, epsilon)
        if group["passes"] == 1:
            kicked, moved = self._network(scaled, [kick, drift], group)
            momentum = base + kicked
        else:
            momentum = base + self._network(scaled, [kick], group)[0]
            scaled[MOMENTUM] = momentum * _inverse_rms(momentum[None], sizes)[0]
            moved = self._network(scaled, [drift], group)[0]
        torch._foreach_copy_([self.state[p]["momentum"].view(-1) for p in members], list(momentum.split(sizes)))
        theta = (features[THETA] + moved).split(sizes)
        torch._foreach_copy_(members, [part.view_as(p) for part, p in zip(theta, members, strict=True)])

    def _features(self, group: Group, members: list[torch.Tensor]) -> torch.Tensor:
        """Update the running averages, and return the nine features of every parameter, (9, numbers)."""
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in members) else torch.float32
        for p, momentum in self._first_momenta(members, group["temperature"]):
            averages = torch.zeros(len(l2e.DECAYS), *p.shape, dtype=dtype, device=p.device)
            self.state[p].update(momentum=momentum.to(dtype), averages=averages)
        features = torch.empty(l2e.WIDTHS[0], sum(p.numel() for p in members), dtype=dtype, device=members[0].device)
        features[THETA] = _flat(members, dtype)
        features[GRADIENT] = _flat(gradients(members), dtype)
        features[GRADIENT] += group["weight_decay"] * features[THETA]
        features[MOMENTUM] = _flat([self.state[p]["momentum"] for p in members], dtype)
        averages = [self.state[p]["averages"].view(len(l2e.DECAYS), -1) for p in members]
        decays = features.new_tensor(l2e.DECAYS)[:, None]
        features[AVERAGES] = decays * torch.cat(averages, dim=1) + (1 - decays) * features[GRADIENT]
        torch._foreach_copy_(averages, list(features[AVERAGES].split([p.numel() for p in members], dim=1)))
        return features

    def _network(self, scaled: torch.Tensor, moves: list[tuple[float, float]], group: Group) -> torch.Tensor:
        """Return for each move its combination of alpha and beta, (moves, numbers)."""
        first, second, last = (layer.to(scaled) for layer in self._layers)
        # Alpha and beta are combined in the last layer, never computed individually.
        mix = group["output_scale"] * scaled.new_tensor(moves)
        weight, bias = mix @ last.weight, mix @ last.bias
        results = []
        for columns in scaled.split(COLUMNS.get(scaled.device.type, BUCKET), dim=1):
            hidden = torch.addmm(first.bias, first.weight, columns).relu_()
            hidden = torch.addmm(second.bias, second.weight, hidden).relu_()
            results.append(torch.addmm(bias, weight, hidden))
        return torch.cat(results, dim=1)


class _Layer:
    """A dense layer for column vectors: weight (outputs, inputs) and bias (outputs, 1)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor):
        self.weight, self.bias = weight, bias

    @classmethod
    def read(cls, layer: Any) -> "_Layer":
        weight, bias = (torch.tensor(np.asarray(layer[name], np.float32)) for name in ("w", "b"))
        return cls(weight.T.contiguous(), bias[:, None])

    def to(self, like: torch.Tensor) -> "_Layer":
        return _Layer(self.weight.to(like), self.bias.to(like))


def _buckets(members: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield runs of tensors on the same device, of up to `BUCKET` numbers or one tensor."""
    bucket: list[torch.Tensor] = []
    for p in members:
        if bucket and (p.device != bucket[0].device or sum(q.numel() for q in bucket) + p.numel() > BUCKET):
            yield bucket
            bucket = []
        bucket.append(p)
    yield bucket


def _flat(tensors: Iterable[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1).to(dtype) for tensor in tensors])


def _inverse_rms(rows: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """Return 1 / sqrt(mean square + 1e-5) over the tensor that each number of `rows` (k, numbers) belongs to."""
    parts = rows.split(sizes, dim=1)
    scales = [torch.rsqrt(part.square().mean(dim=1, keepdim=True) + STABILISER).expand(part.shape) for part in parts]
    return torch.cat(scales, dim=1)
