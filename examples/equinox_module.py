"""An equinox network, sampled with custom schedules.

Every scalar setting of a sampler is a number or a function of the step, such as an optax schedule. Here the step size
decays, and the temperature rises from 0, which optimizes, to 1, which samples the posterior.

    python examples/equinox_module.py
"""

import sys

import equinox as eqx
import jax
import optax

import roamax


class Network(eqx.Module):
    """A network for a single example, as usual in equinox."""

    layers: eqx.nn.MLP

    def __init__(self, key):
        self.layers = eqx.nn.MLP(64, 10, width_size=64, depth=1, key=key)

    def __call__(self, x):
        return self.layers(x.reshape(-1))


def main(quick=False):
    data = roamax.data.load("digits")
    num_data, burn_in = len(data.x_train), 400 if quick else 10_000
    model = roamax.models.from_equinox(Network)
    prior = roamax.priors.gaussian(weight_decay=5e-4, num_data=num_data)
    posterior = roamax.Posterior(roamax.categorical(model.apply), prior, num_data)

    settings = roamax.from_learning_rate(0.1, momentum_decay=0.1, num_data=num_data)
    step_size = optax.cosine_decay_schedule(2 * settings["step_size"], burn_in, alpha=0.5)
    temperature = optax.linear_schedule(0.0, 1.0, burn_in // 2, transition_begin=burn_in // 2)
    sampler = roamax.sghmc(posterior, step_size=step_size, friction=settings["friction"], temperature=temperature)
    draws = roamax.sample(
        jax.random.key(0),
        sampler,
        lambda key: model.init(key, data.x_train[:1]),
        (data.x_train, data.y_train),
        batch_size=128,
        burn_in=burn_in,
        num_samples=5 if quick else 50,
        thinning=20 if quick else 200,
    )
    probs = roamax.predict(model.apply, draws, data.x_test)
    accuracy, error = roamax.metrics.accuracy(probs, data.y_test), roamax.metrics.ece(probs, data.y_test)
    print(f"accuracy {accuracy:.3f}, calibration error {error:.3f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
