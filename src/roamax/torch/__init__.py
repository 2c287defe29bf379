"""The samplers as PyTorch optimizers: replace the optimizer, and a training loop becomes a sampler.

    import roamax.torch

    draws = roamax.torch.sample(model, loader, num_samples=20)
    probabilities = roamax.torch.predict(model, draws, x)

or, in a training loop of your own, in place of `torch.optim.SGD`:

    optimizer = roamax.torch.SGHMC(model.parameters(), num_data=len(train_set), lr=0.1)

The loss is the *mean* over the batch, as usual in PyTorch; `num_data` scales it to the full data. `weight_decay` is the
Gaussian prior, weight_decay * |theta|^2 / 2 added to the mean loss. Average the probabilities of the draws, not their
logits.

Requires the extra `roamax[torch]`.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("roamax.torch needs PyTorch: pip install 'roamax[torch]'.", name="torch") from error

from roamax.sampling.draws import Draws
from roamax.torch.l2e import L2E
from roamax.torch.optimizer import SamplingOptimizer
from roamax.torch.sampling import predict, sample
from roamax.torch.sghmc import SGHMC, Cyclical

__all__ = ["L2E", "SGHMC", "Cyclical", "Draws", "SamplingOptimizer", "predict", "sample"]
