"""The samplers as PyTorch optimizers: replace the optimizer, and a training loop becomes a sampler.

    import roamax.torch

    optimizer = roamax.torch.SGHMC(model.parameters(), num_data=len(train_set), lr=0.1)
    draws = []
    for epoch in range(100):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if epoch >= 50 and optimizer.collect:
            draws.append(copy.deepcopy(model.state_dict()))

The loss is the *mean* over the batch, as usual in PyTorch; `num_data` scales it to the full data. `weight_decay` is the
Gaussian prior, weight_decay * |theta|^2 / 2 added to the mean loss. Average the probabilities of the draws, not their
logits.

Requires the extra `roamax[torch]`.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("roamax.torch needs PyTorch: pip install 'roamax[torch]'.", name="torch") from error

from roamax.torch.l2e import L2E
from roamax.torch.optimizer import SamplingOptimizer
from roamax.torch.sghmc import SGHMC, Cyclical

__all__ = ["L2E", "SGHMC", "Cyclical", "SamplingOptimizer"]
