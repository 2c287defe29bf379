"""The scikit-learn estimators, with their defaults, vs. those of scikit-learn, NGBoost and Laplace approximations.

The defaults of `BayesianClassifier` and `BayesianRegressor` were chosen on 60 % of the rows of each data set that ships
with scikit-learn, by validation within them. Test rows are half of the other 40 %, a different half for each seed; all
other rows are for training. Two more regressions are generated: Friedman's first (noise 1), and a sine whose noise
grows from 0.05 to 0.5, `wave`. Baselines see standardised inputs (and perceptrons standardised targets), once with
scikit-learn's defaults and once with their regularisation chosen by 3-fold cross-validation of the same score. A
regression baseline without a predictive distribution gets a Gaussian around its mean, with the standard deviation of
the residuals in 5-fold cross-validation of the training rows; boosting has its quantiles for intervals. NLL in nats per
example, mean ± standard deviation; coverage and width are those of 90 % intervals, width in standard deviations of the
target. Libraries that are not installed are left out.
"""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from scipy.stats import norm
from sklearn import datasets
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.peers import missing
from benchmarks.timing import seconds_of
from roamax import BayesianClassifier, BayesianRegressor
from roamax.evaluation import metrics
from roamax.host import files

CLASSES = ("iris", "wine", "breast_cancer", "digits")
REAL = ("diabetes", "friedman", "wave")
STRENGTHS = np.logspace(-3, 3, 7)
LEVELS, INTERVAL = (0.05, 0.95), ("coverage", "width")
DECAYS = [1e-4, 1e-2, 1e-1, 1.0]


def wave():
    """Return a sine whose noise grows with the input."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (400, 1))
    return x, np.sin(6 * x[:, 0]) + (0.05 + 0.45 * x[:, 0]) * rng.standard_normal(400)


GENERATED = {"friedman": partial(datasets.make_friedman1, 400, noise=1.0, random_state=0), "wave": wave}


def splits(name, seed):
    """Return training and test rows; see the top of this file."""
    x, y = GENERATED[name]() if name in GENERATED else getattr(datasets, f"load_{name}")(return_X_y=True)
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
        "BayesianClassifier, T = 1": BayesianClassifier(random_state=seed, temperature=1.0),
        "BayesianClassifier, SGHMC": BayesianClassifier(sampler="sghmc", random_state=seed),
        "MLPClassifier": perceptron,
        "MLPClassifier, CV": tuned(perceptron, {"mlpclassifier__alpha": DECAYS}, "neg_log_loss"),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=seed),
        "LogisticRegression": logistic,
        "LogisticRegression, CV": tuned(logistic, {"logisticregression__C": STRENGTHS}, "neg_log_loss"),
    }


def regressors(seed):
    ridge = make_pipeline(StandardScaler(), Ridge())
    perceptron = make_pipeline(
        StandardScaler(), TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
    )
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    decays = {"transformedtargetregressor__regressor__alpha": DECAYS}
    found = {
        "BayesianRegressor": BayesianRegressor(random_state=seed),
        "BayesianRegressor, T = 0.05": BayesianRegressor(random_state=seed, temperature=0.05),
        "BayesianRegressor, SGHMC": BayesianRegressor(sampler="sghmc", random_state=seed),
        "BayesianRegressor, heteroscedastic": BayesianRegressor("mlp_heteroscedastic", random_state=seed),
        "GaussianProcess": make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)),
        "HistGradientBoosting": Boosting(seed),
        "MLPRegressor": perceptron,
        "MLPRegressor, CV": tuned(perceptron, decays, "neg_mean_squared_error"),
        "Ridge": ridge,
        "Ridge, CV": tuned(ridge, {"ridge__alpha": STRENGTHS}, "neg_mean_squared_error"),
    }
    if not missing("ngboost"):
        found["NGBoost"] = NaturalBoosting(seed)
    if not missing("laplace"):
        found["Laplace, MLP of 100"] = Laplace(seed)
    return found


class Boosting(RegressorMixin, BaseEstimator):
    """Histogram gradient boosting for the mean, and for the two ends of an interval."""

    def __init__(self, seed=0):
        self.seed = seed

    def fit(self, x, y):
        ends = [{"loss": "quantile", "quantile": level} for level in LEVELS]
        makes = [HistGradientBoostingRegressor(random_state=self.seed, **loss) for loss in ({}, *ends)]
        self.fitted_ = [made.fit(x, y) for made in makes]
        return self

    def predict(self, x):
        return self.fitted_[0].predict(x)

    def predict_interval(self, x):
        return np.stack([made.predict(x) for made in self.fitted_[1:]], axis=1)


class NaturalBoosting(RegressorMixin, BaseEstimator):
    """NGBoost with its defaults."""

    def __init__(self, seed=0):
        self.seed = seed

    def fit(self, x, y):
        from ngboost import NGBRegressor  # pyright: ignore[reportMissingImports]

        self.fitted_ = NGBRegressor(random_state=self.seed, verbose=False).fit(x, y)
        return self

    def predict(self, x, return_std=False):
        found = self.fitted_.pred_dist(x)
        return (found.loc, found.scale) if return_std else found.loc


class Laplace(RegressorMixin, BaseEstimator):
    """A Laplace approximation around an MLP by Adam; the last layer, its prior and noise by marginal likelihood."""

    def __init__(self, seed=0):
        self.seed = seed

    def fit(self, x, y):
        import torch
        from laplace import Laplace as Approximation  # pyright: ignore[reportMissingImports]

        torch.manual_seed(self.seed)
        self.scalers_ = StandardScaler().fit(x), StandardScaler().fit(y[:, None])
        data = [torch.tensor(s.transform(v)).float() for s, v in zip(self.scalers_, (x, y[:, None]), strict=True)]
        model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 100), torch.nn.ReLU(), torch.nn.Linear(100, 1))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=128, shuffle=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
        for _ in range(200):
            for inputs, targets in loader:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
        self.fitted_ = Approximation(model, "regression", subset_of_weights="last_layer", hessian_structure="full")
        self.fitted_.fit(loader)
        precision, noise = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        outer = torch.optim.Adam([precision, noise], lr=1e-1)
        for _ in range(100):
            outer.zero_grad()
            (-self.fitted_.log_marginal_likelihood(precision.exp(), noise.exp())).backward()
            outer.step()
        return self

    def predict(self, x, return_std=False):
        import torch

        mean, variance = self.fitted_(torch.tensor(self.scalers_[0].transform(x)).float())
        std = (variance.flatten() + self.fitted_.sigma_noise.detach() ** 2).sqrt().detach().numpy()
        mean = self.scalers_[1].inverse_transform(mean.detach().numpy())[:, 0]
        return (mean, std * self.scalers_[1].scale_[0]) if return_std else mean


def score_classifier(estimator, x, y, x_test, y_test):
    seconds = seconds_of(lambda: estimator.fit(x, y), time.process_time)
    probabilities = estimator.predict_proba(x_test)
    return {
        "nll": metrics.nll(probabilities, y_test),
        "accuracy": metrics.accuracy(probabilities, y_test),
        "seconds": seconds,
    }


def score_regressor(estimator, x, y, x_test, y_test):
    seconds = seconds_of(lambda: estimator.fit(x, y), time.process_time)
    best = getattr(estimator, "best_estimator_", estimator)
    try:
        mean, std = best.predict(x_test, return_std=True)
    except TypeError:
        mean = best.predict(x_test)
        std = np.full(len(mean), np.std(y - cross_val_predict(clone(best), x, y, cv=5)))
    ends = mean[:, None] + std[:, None] * norm.ppf(LEVELS)
    if hasattr(best, "predict_interval"):
        ends = best.predict_interval(x_test)
    return {
        "nll": metrics.gaussian_nll(mean, std, y_test),
        "rmse": metrics.rmse(mean, y_test),
        "coverage": float(np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1]))),
        "width": float(np.mean(ends[:, 1] - ends[:, 0]) / np.std(y)),
        "seconds": seconds,
    }


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
    rows = ["| data | estimator | NLL | accuracy or RMSE | coverage | width | CPU s |", "| --- " * 7 + "|"]
    for name, table in results.items():
        best = min(np.mean(scores["nll"]) for scores in table.values())
        for label, scores in table.items():
            nll = f"{np.mean(scores['nll']):.3f} ± {np.std(scores['nll']):.3f}"
            other = np.mean(scores.get("accuracy") or scores["rmse"])
            nll = f"**{nll}**" if np.mean(scores["nll"]) == best else nll
            interval = " | ".join(f"{np.mean(scores[part]):.2f}" if part in scores else "" for part in INTERVAL)
            rows.append(f"| {name} | {label} | {nll} | {other:.4g} | {interval} | {np.mean(scores['seconds']):.1f} |")
    return "\n".join(rows)


Data = Literal["iris", "wine", "breast_cancer", "digits", "diabetes", "friedman", "wave"]


def compare(
    data: tuple[Data, ...] = (*CLASSES, *REAL),
    seeds: int = 5,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
) -> None:
    """Compare the estimators, with their defaults, with those of other libraries.

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
