"""The scikit-learn estimators, in a pipeline and scored by cross-validation, with default settings.

The classifier's probabilities are averaged over draws; the regressor predicts the mean, standard deviation and
quantiles of its predictive distribution, and takes more draws with `partial_fit`.

    python examples/scikit_learn.py
"""

import sys

import numpy as np
from sklearn.datasets import load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

import roamax


def main(quick=False):
    fewer = {"burn_in": 300, "num_samples": 5, "thinning": 10, "num_chains": 2} if quick else {}
    x, y = load_wine(return_X_y=True)
    classifier = roamax.BayesianClassifier(random_state=0, **fewer)
    pipeline = make_pipeline(PCA(10, whiten=True), classifier)
    scores = cross_val_score(pipeline, x, y, cv=2 if quick else 5, scoring="neg_log_loss")
    print(f"wine: NLL {-scores.mean():.3f} in cross-validation")

    x, y = load_diabetes(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    regressor = roamax.BayesianRegressor(random_state=0, **fewer).fit(x_train, y_train)
    regressor.partial_fit(x_train, y_train)
    low, high = regressor.predict_quantiles(x_test, (0.05, 0.95)).T
    inside = np.mean((low < y_test) & (y_test < high))
    print(f"diabetes: R2 {regressor.score(x_test, y_test):.3f}; {inside:.0%} of the test set in 90 % intervals")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
