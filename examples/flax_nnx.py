"""Regression with a flax.nnx network that returns a mean and a scale: it should be uncertain where there are no data.

The data lie on [-5, -1] and [1, 4]. The predictive standard deviation has two parts: the noise of the data, as the
network learns it, and the disagreement of the draws. In the gap between, the second should grow.

    python examples/flax_nnx.py
"""

import sys

import jax
import numpy as np
from flax import nnx

import roamax


class Network(nnx.Module):
    """x -> mean and scale of y."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(1, 50, rngs=rngs)
        self.output = nnx.Linear(50, 2, rngs=rngs)

    def __call__(self, x):
        output = self.output(nnx.tanh(self.hidden(x)))
        return output[:, 0], nnx.softplus(output[:, 1]) + 0.01


def main(quick=False):
    data = roamax.data.load("regression_1d_gap")
    num_data = len(data.x_train)
    noise = 0.1 * np.random.default_rng(0).standard_normal(num_data).astype(np.float32)
    model = roamax.models.from_nnx(Network)
    posterior = roamax.Posterior(roamax.gaussian(model.apply), roamax.priors.gaussian(variance=1.0), num_data)
    # A Gaussian likelihood gets steeper as its scale is learned, which needs smaller steps than a classifier.
    sampler = roamax.sghmc(posterior, **roamax.from_learning_rate(1e-3, momentum_decay=0.1, num_data=num_data))
    draws = roamax.sample(
        jax.random.key(0),
        sampler,
        lambda key: model.init(key, data.x_train[:1]),
        (data.x_train, data.y_train + noise),
        batch_size=100,
        burn_in=2000 if quick else 50_000,
        num_samples=10 if quick else 100,
        thinning=50 if quick else 1000,
    )
    predicted = roamax.predict(model.apply, draws, data.x_test)
    x = data.x_test[:, 0]
    for name, here in {"where data are": np.abs(x) > 1, "in the gap": np.abs(x) < 0.5}.items():
        error = roamax.metrics.rmse(predicted.mean[here], data.y_test[here])
        print(f"{name}: error {error:.3f}, predictive standard deviation {predicted.std[here].mean():.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
