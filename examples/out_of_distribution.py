"""Detect out-of-distribution inputs by the confidence of predictions.

A network learns the digits 0 to 4 and is then shown 5 to 9. A single network is often confidently wrong; draws
disagree, so their average is less confident. The score is the area under the ROC curve: 1/2 by chance, 1 at best.

    python examples/out_of_distribution.py
"""

import sys

import jax

import roamax


def main(quick=False):
    data = roamax.data.load("digits")
    known_train, known_test = data.y_train < 5, data.y_test < 5
    train = data.x_train[known_train], data.y_train[known_train]
    known, unknown = data.x_test[known_test], data.x_test[~known_test]
    num_data = len(train[0])

    model = roamax.models.get("mlp", num_classes=5, hidden=[64])
    prior = roamax.priors.gaussian(weight_decay=5e-4, num_data=num_data)
    posterior = roamax.Posterior(roamax.categorical(model.apply), prior, num_data)
    cycle = 200 if quick else 2000
    settings = roamax.from_learning_rate(0.3, momentum_decay=0.1, num_data=num_data)
    sampler = roamax.cyclical(posterior, **settings, cycle_length=cycle, exploration_ratio=0.8)
    draws = roamax.sample(
        jax.random.key(0), sampler, lambda key: model.init(key, known[:1]), train, batch_size=64,
        num_samples=3 if quick else 20,  # one draw per cycle, at its end
    )  # fmt: skip

    for name, positions in {"one draw": [draws[0, 0]], f"{len(draws)} draws": draws}.items():
        known_probs, unknown_probs = (roamax.predict(model.apply, positions, x) for x in (known, unknown))
        auroc = roamax.metrics.ood_auroc(known_probs, unknown_probs)
        accuracy = roamax.metrics.accuracy(known_probs, data.y_test[known_test])
        print(f"{name}: accuracy {accuracy:.3f} on known digits, AUROC {auroc:.3f} vs. unknown ones")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
