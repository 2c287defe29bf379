"""The scikit-learn estimators, with their defaults, vs. those of scikit-learn, on the data sets that ship with it.

The defaults of `BayesianClassifier` and `BayesianRegressor` were chosen on 60 % of the rows of each data set, by
validation within them. Test rows are half of the other 40 %, a different half for each seed; all other rows are for
training. Baselines see standardised inputs (and the multilayer perceptron standardised targets), once with
scikit-learn's defaults and once with their regularisation chosen by 3-fold cross-validation of the same score. A
regression baseline predicts a mean; its predictive distribution is a Gaussian around it whose standard deviation is
that of the residuals in 5-fold cross-validation of the training rows. NLL in nats per example, mean ± standard
deviation.
"""

import warnings
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from sklearn import datasets
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.timing import seconds_of
from roamax import BayesianClassifier, BayesianRegressor
from roamax.evaluation import metrics
from roamax.host import files

CLASSES = ("iris", "wine", "breast_cancer", "digits")
REAL = ("diabetes",)
STRENGTHS = np.logspace(-3, 3, 7)
DECAYS = [1e-4, 1e-2, 1e-1, 1.0]


def splits(name, seed):
    """Return training and test rows; see the top of this file."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    labels = y if name in CLASSES else None

    def halve(rows, share, seed):
        stratify = None if labels is None else labels[rows]
        return train_test_split(rows, test_size=share, random_state=seed, stratify=stratify)

    chosen, kept = halve(np.arange(len(y)), 0.4, 0)
    more, test = halve(kept, 0.5, seed)
    train = np.concatenate([chosen, more])
    return x[train], y[train], x[test], y[test]


def tuned(estimator, grid, scoring):
    return GridSearchCV(estimator, grid, scoring=scoring, cv=3)


def classifiers(seed):
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    perceptron = make_pipeline(StandardScaler(), MLPClassifier(random_state=seed))
    return {
        "BayesianClassifier": BayesianClassifier(random_state=seed),
        "MLPClassifier": perceptron,
        "MLPClassifier, CV": tuned(perceptron, {"mlpclassifier__alpha": DECAYS}, "neg_log_loss"),
        "LogisticRegression": logistic,
        "LogisticRegression, CV": tuned(logistic, {"logisticregression__C": STRENGTHS}, "neg_log_loss"),
    }


def regressors(seed):
    ridge = make_pipeline(StandardScaler(), Ridge())
    perceptron = make_pipeline(
        StandardScaler(), TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
    )
    decays = {"transformedtargetregressor__regressor__alpha": DECAYS}
    return {
        "BayesianRegressor": BayesianRegressor(random_state=seed),
        "MLPRegressor": perceptron,
        "MLPRegressor, CV": tuned(perceptron, decays, "neg_mean_squared_error"),
        "Ridge": ridge,
        "Ridge, CV": tuned(ridge, {"ridge__alpha": STRENGTHS}, "neg_mean_squared_error"),
    }


def score_classifier(estimator, x, y, x_test, y_test):
    seconds = seconds_of(lambda: estimator.fit(x, y))
    probabilities = estimator.predict_proba(x_test)
    return {
        "nll": metrics.nll(probabilities, y_test),
        "accuracy": metrics.accuracy(probabilities, y_test),
        "seconds": seconds,
    }


def score_regressor(estimator, x, y, x_test, y_test):
    seconds = seconds_of(lambda: estimator.fit(x, y))
    if isinstance(estimator, BayesianRegressor):
        mean, std = estimator.predict(x_test, return_std=True)
    else:
        best = getattr(estimator, "best_estimator_", estimator)
        mean = estimator.predict(x_test)
        std = np.full(len(mean), np.std(y - cross_val_predict(clone(best), x, y, cv=5)))
    return {"nll": metrics.gaussian_nll(mean, std, y_test), "rmse": metrics.rmse(mean, y_test), "seconds": seconds}


def measure(name, seeds):
    """Return the scores of each estimator, a list with one number per seed."""
    make, score = (classifiers, score_classifier) if name in CLASSES else (regressors, score_regressor)
    table = {}
    for seed in range(seeds):
        for label, estimator in make(seed).items():
            scores = table.setdefault(label, {})
            for key, value in score(estimator, *splits(name, seed)).items():
                scores.setdefault(key, []).append(value)
    return table


def as_markdown(results):
    rows = ["| data | estimator | NLL | accuracy or RMSE | seconds |", "| --- | --- | --- | --- | --- |"]
    for name, table in results.items():
        best = min(np.mean(scores["nll"]) for scores in table.values())
        for label, scores in table.items():
            nll = f"{np.mean(scores['nll']):.3f} ± {np.std(scores['nll']):.3f}"
            other = scores.get("accuracy") or scores["rmse"]
            nll = f"**{nll}**" if np.mean(scores["nll"]) == best else nll
            rows.append(f"| {name} | {label} | {nll} | {np.mean(other):.4g} | {np.mean(scores['seconds']):.1f} |")
    return "\n".join(rows)


Data = Literal["iris", "wine", "breast_cancer", "digits", "diabetes"]


def compare(
    data: tuple[Data, ...] = (*CLASSES, *REAL),
    seeds: int = 5,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
) -> None:
    """Compare the estimators, with their defaults, with those of scikit-learn.

    Example:
        python -m benchmarks estimators --seeds 5 --out estimators.json

    Args:
        data: The data sets.
        seeds: Number of seeds.
        out: A JSON file to write the numbers to; the table goes next to it, as Markdown.
    """
    # The perceptron's default number of epochs is too small for some of these data; that is part of its defaults.
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {}
    for name in data:
        results[name] = measure(name, seeds)
        print(as_markdown({name: results[name]}), flush=True)
    if out is not None:
        files.write_json(out, results)
        out.with_suffix(".md").write_text(as_markdown(results) + "\n")
