"""Sentiment of texts, by a convolution and an LSTM over words.

With IMDB in the data directory (`roamax data fetch imdb`) it learns from film reviews; without, from made-up texts,
which are positive if they have more good words than bad ones. Texts are rows of word numbers, 0 for padding.

    python examples/text.py
"""

import sys

import jax
import numpy as np

import roamax
from roamax.errors import FileError


def made_up_texts(num=2000, length=20, vocabulary=200, seed=0):
    """Return texts of random words, half of them good (1 to 20) or bad (21 to 40); unclear texts are left out."""
    rng = np.random.default_rng(seed)
    has_feeling = rng.random((num, length)) < 0.5
    x = np.where(has_feeling, rng.integers(1, 41, (num, length)), rng.integers(41, vocabulary, (num, length)))
    margin = (x <= 20).sum(axis=1) - ((x > 20) & (x <= 40)).sum(axis=1)
    is_clear = np.abs(margin) >= 3
    return x[is_clear].astype(np.int32), (margin[is_clear] > 0).astype(np.int32)


def load(quick):
    try:
        if quick:
            raise FileError("made-up texts are quicker")
        imdb = roamax.data.load("imdb")
        return (imdb.x_train[:5000, :100], imdb.y_train[:5000]), (imdb.x_test[:2000, :100], imdb.y_test[:2000]), 20_000
    except FileError:
        x, y = made_up_texts()
        return (x[:-300], y[:-300]), (x[-300:], y[-300:]), 200


def main(quick=False):
    train, (x_test, y_test), vocabulary = load(quick)
    num_data = len(train[0])
    model = roamax.models.get("cnn_lstm", vocabulary=vocabulary, embedding=16, filters=16, kernel=3, pool=2, units=16)
    prior = roamax.priors.gaussian(variance=0.3)
    posterior = roamax.Posterior(roamax.categorical(model.apply), prior, num_data)
    sampler = roamax.sghmc(posterior, **roamax.from_learning_rate(0.3, momentum_decay=0.1, num_data=num_data))
    draws = roamax.sample(
        jax.random.key(0),
        sampler,
        lambda key: model.init(key, train[0][:1]),
        train,
        batch_size=50,
        burn_in=300 if quick else 2000,
        num_samples=5 if quick else 20,
        thinning=20 if quick else 50,
    )
    probs = roamax.predict(model.apply, draws, x_test)
    doubtful = np.sort(probs.max(axis=1))[: len(probs) // 5].max()
    print(f"accuracy {roamax.metrics.accuracy(probs, y_test):.3f}, NLL {roamax.metrics.nll(probs, y_test):.3f}")
    print(f"a fifth of the texts are predicted with less confidence than {doubtful:.2f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
