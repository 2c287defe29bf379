"""A flax.linen network on handwritten digits: several chains, their calibration and their mixing.

`roamax.models.from_linen` turns a module into two pure functions, `init` and `apply`. R-hat of parameters says little
about neural networks, in which many parameters give the same function: look at the outputs instead.

    python examples/flax_linen.py
"""

import sys

import flax.linen as nn
import jax

import roamax


class Network(nn.Module):
    """Any module whose only state is its parameters."""

    @nn.compact
    def __call__(self, x):
        x = x.reshape(len(x), -1)
        for width in (64, 64):
            x = nn.silu(nn.Dense(width)(x))
        return nn.Dense(10)(x)


def main(quick=False):
    data = roamax.data.load("digits")
    num_data = len(data.x_train)
    model = roamax.models.from_linen(Network())
    prior = roamax.priors.gaussian(weight_decay=5e-4, num_data=num_data)
    posterior = roamax.Posterior(roamax.categorical(model.apply), prior, num_data)
    sampler = roamax.sghmc(posterior, **roamax.from_learning_rate(0.1, momentum_decay=0.1, num_data=num_data))
    draws = roamax.sample(
        jax.random.key(0),
        sampler,
        lambda key: model.init(key, data.x_train[:1]),
        (data.x_train, data.y_train),
        batch_size=128,
        burn_in=300 if quick else 5000,
        num_samples=5 if quick else 25,
        thinning=20 if quick else 200,
        num_chains=2,
    )
    scores = roamax.metrics.summary(roamax.predict_draws(model.apply, draws, data.x_test), data.y_test)
    print("average of all draws: " + ", ".join(f"{name} {value:.3f}" for name, value in scores.items()))
    outputs = roamax.diagnostics.function_space(model.apply, draws, data.x_test[:20])
    mixed = roamax.diagnostics.summary(outputs)
    print(f"outputs: effective sample size {mixed['ess_mean']:.1f}, R-hat under 1.1 for {mixed['rhat_share']:.0%}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
