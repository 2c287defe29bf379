"""A PyTorch training loop that samples: only the line that makes the optimizer changes.

The loss stays the mean over a batch; `num_data` scales it to the posterior, and `weight_decay` is the Gaussian prior.
Copies of the parameters are the draws, and the prediction is the mean of their softmax.

    python examples/pytorch_loop.py
"""

import copy
import sys

import torch
from torch.nn.functional import cross_entropy

import roamax
import roamax.torch


def main(quick=False):
    torch.manual_seed(0)
    data = roamax.data.load("digits")
    x, x_test = (torch.tensor(images / 255).float().flatten(1) for images in (data.x_train, data.x_test))
    y = torch.tensor(data.y_train).long()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    # Before: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer = roamax.torch.SGHMC(model.parameters(), num_data=len(x), lr=0.1, weight_decay=5e-4)

    draws, (burn_in, epochs) = [], (20, 30) if quick else (50, 150)
    for epoch in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        if epoch >= burn_in and epoch % 2 == 0:
            draws.append(copy.deepcopy(model.state_dict()))

    with torch.no_grad():
        probs = []
        for draw in draws:
            model.load_state_dict(draw)
            probs.append(model(x_test).softmax(dim=1))
    for name, predicted in {"last draw": probs[-1], f"{len(draws)} draws": torch.stack(probs).mean(dim=0)}.items():
        accuracy = roamax.metrics.accuracy(predicted.numpy(), data.y_test)
        print(f"{name}: accuracy {accuracy:.3f}, NLL {roamax.metrics.nll(predicted.numpy(), data.y_test):.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
