"""Bayesian neural networks as scikit-learn estimators, with predictions averaged over draws from the posterior."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import entr
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from roamax.errors import check, finite
from roamax.evaluation.predict import Normal, predict, predict_draws
from roamax.models import Model
from roamax.sklearn import build
from roamax.sklearn.base import CLASSIFICATION, DEFAULT_SAMPLER, REGRESSION, BayesianEstimator, check_finite
from roamax.sklearn.scaling import Scaling
from roamax.types import Sampler


class Uncertainty(NamedTuple):
    """The uncertainty of predictions in two parts: from noise in the data, and from not knowing the network."""

    aleatoric: np.ndarray
    epistemic: np.ndarray


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """A classifier that averages probabilities over draws from the posterior of a neural network.

        classifier = BayesianClassifier(random_state=0).fit(X, y)
        classifier.predict_proba(X_new)

    Inputs are standardised internally; labels may be of any type. All settings have defaults. After `fit`, `draws_`
    holds the draws and `classes_` the labels.

    Args:
        model: A network: a `roamax.models.Model` (which may take images) or one of `roamax.models.names()`; None is an
            MLP.
        sampler: The name of a sampler, such as "psgld"; a `roamax.Sampler`; or a function that returns one for a
            `roamax.Posterior`.
        hidden: The widths of the MLP, or one width; None chooses them by the number of examples.
        prior: The log-density as a function of the parameters, or the scale of `roamax.priors.fan_in_gaussian`; None
            is 6.
        temperature: The temperature of the posterior, for samplers given by name. None is 0.05, which predicted best on
            validation data; 1 is Bayes' rule.
        learning_rate: The learning rate on the mean loss, for samplers given by name that take one. A chain that
            diverges is run again, with a warning, at a quarter of it.
        sampler_options: Further arguments of a sampler given by name.
        num_samples: Draws per chain. A sampler in cycles takes them there and an ensemble one per member, within the
            same number of steps.
        burn_in: Steps before the first draw.
        thinning: Steps between draws.
        num_chains: Chains run in parallel.
        batch_size: Examples per step; None is all data.
        standardize: Whether to standardise inputs (and real targets).
        class_weight: Weights of the classes, by label, or "balanced": the total weight of each class is the same.
        n_jobs: How many chains run at a time, each in its own thread; the draws do not depend on the number. None runs
            all chains in one program, which is faster on few cores.
        random_state: The seed, as in scikit-learn.
        verbose: Whether to show progress.
    """

    _defaults = CLASSIFICATION

    def __init__(
        self,
        model: Model | str | None = None,
        sampler: str | Sampler | Callable[..., Sampler] = DEFAULT_SAMPLER,
        *,
        hidden: int | Sequence[int] | None = None,
        prior: float | Callable[..., Any] | None = None,
        temperature: float | None = None,
        learning_rate: float | None = None,
        sampler_options: Mapping[str, Any] | None = None,
        num_samples: int = 25,
        burn_in: int = 1500,
        thinning: int = 60,
        num_chains: int = 4,
        batch_size: int | None = 128,
        standardize: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        super().__init__(
            model, sampler, hidden=hidden, prior=prior, temperature=temperature, learning_rate=learning_rate,
            sampler_options=sampler_options, num_samples=num_samples, burn_in=burn_in, thinning=thinning,
            num_chains=num_chains, batch_size=batch_size, standardize=standardize, n_jobs=n_jobs,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.class_weight = class_weight

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take `num_samples` more draws per chain, given `X` and `y`; the first call is `fit`.

        Chains resume from their last draws, without burn-in, on the data given now, which are usually the same as
        before. Those of a sampler that starts anew on its way, such as `roam`, do so here too. The scaling stays that
        of the first call.

        Args:
            X: Inputs.
            y: Labels.
            classes: All possible labels, needed only if the first `y` lacks some.
            sample_weight: How often each row counts; None counts each once.

        Returns:
            This estimator.
        """
        if hasattr(self, "draws_"):
            return self._resume(X, y, sample_weight)
        return self._fit(X, y, sample_weight, classes)

    def _weights(self, x: np.ndarray, y: np.ndarray, sample_weight: Any) -> np.ndarray:
        weight = super()._weights(x, y, sample_weight)
        return weight if self.class_weight is None else weight * compute_sample_weight(self.class_weight, y)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        Args:
            X: Inputs.

        Returns:
            Probabilities of shape (inputs, classes), in the order of `classes_`.
        """
        x, length = self._inputs(X)
        probabilities = check_finite(predict(self._network().apply, self.draws_, x)[:length].astype(np.float64))
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each input.

        Args:
            X: Inputs.

        Returns:
            Labels.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def sample_posterior(self, X: Any) -> np.ndarray:
        """Return the class probabilities of each draw.

        Args:
            X: Inputs.

        Returns:
            Probabilities of shape (draws of all chains, inputs, classes).
        """
        x, length = self._inputs(X)
        found = np.exp(predict_draws(self._network().apply, self.draws_, x)[:, :length])
        check_finite(np.moveaxis(found, 1, 0))
        return found

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Return how much of the uncertainty more data could not, and could, take away.

        Args:
            X: Inputs.

        Returns:
            In nats per input: the mean entropy of the draws' predictions, and their mutual information with the draw.
            Both together are the entropy of `predict_proba`.
        """
        draws = self.sample_posterior(X).astype(np.float64)
        aleatoric = entr(draws).sum(axis=2).mean(axis=0)
        return Uncertainty(aleatoric, np.maximum(entr(draws.mean(axis=0)).sum(axis=1) - aleatoric, 0.0))

    def _see_targets(self, y: np.ndarray, weight: np.ndarray, classes: Any) -> None:
        check_classification_targets(y)
        self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs at least 2 classes in `y`; got {len(self.classes_)} class.")

    def _targets(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        known = np.isin(y, self.classes_)
        if not known.all():
            raise ValueError(f"`y` must hold labels that `classes_` lists; got {y[~known].tolist()[0]!r}.")
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _network(self) -> Model:
        return build.network(self.model, self.hidden_, len(self.classes_), classes=True)

    def _target_facts(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "classes_dtype": self.classes_.dtype.str}

    def _take_target_facts(self, facts: Mapping[str, Any]) -> None:
        self.classes_ = np.asarray(facts["classes"], np.dtype(facts["classes_dtype"]))


class BayesianRegressor(RegressorMixin, BayesianEstimator):
    """A regressor that predicts with a mixture over draws from the posterior of a neural network.

        regressor = BayesianRegressor(random_state=0).fit(X, y)
        mean, std = regressor.predict(X_new, return_std=True)

    Each draw gives a Gaussian with a learned noise scale. Inputs and targets are standardised internally; `y` may have
    several columns. Arguments are those of `BayesianClassifier` but `class_weight`, except that `prior` and
    `temperature` default to 1 and a custom `model` returns a mean and a scale. With `model="mlp_heteroscedastic"` the
    scale of the noise depends on the inputs.
    """

    _defaults = REGRESSION

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take `num_samples` more draws per chain, given `X` and `y`; the first call is `fit`.

        Chains resume from their last draws, without burn-in, on the data given now, which are usually the same as
        before. Those of a sampler that starts anew on its way, such as `roam`, do so here too. The scaling stays that
        of the first call.

        Args:
            X: Inputs.
            y: Targets.
            sample_weight: How often each row counts; None counts each once.

        Returns:
            This estimator.
        """
        return self._resume(X, y, sample_weight) if hasattr(self, "draws_") else self._fit(X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of the predictive distribution.

        Args:
            X: Inputs.
            return_std: Whether to return the standard deviation, including noise, as well.

        Returns:
            The mean, or the mean and the standard deviation.
        """
        x, length = self._inputs(X)
        mean, std = self._in_units(predict(self._network().apply, self.draws_, x), length)
        return (mean, std) if return_std else mean

    def sample_posterior(self, X: Any) -> np.ndarray:
        """Return the mean function of each draw.

        Args:
            X: Inputs.

        Returns:
            Means of shape (draws of all chains, inputs).
        """
        return self._draw_moments(X).mean

    def predict_quantiles(self, X: Any, quantiles: float | Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Return quantiles of the predictive distribution, a mixture of Gaussians.

        Args:
            X: Inputs.
            quantiles: Levels in (0, 1), or one level.

        Returns:
            Quantiles of shape (inputs, quantiles), or (inputs,) for one level.
        """
        levels = np.asarray(quantiles, float)
        good = levels.ndim <= 1 and bool(np.all((levels > 0) & (levels < 1)))
        check(good, "quantiles", "be a number, or a list of numbers, in (0, 1)", quantiles)
        found = mixture_quantiles(*self._draw_moments(X), np.atleast_1d(levels))
        return found if levels.ndim else found[..., 0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return the central interval that holds a new target, noise included, with this probability.

        Args:
            X: Inputs.
            coverage: The probability, in (0, 1).

        Returns:
            The ends of the intervals, of shape (inputs, 2).
        """
        coverage = finite(coverage, "coverage", above=0, below=1)
        return self.predict_quantiles(X, (0.5 - coverage / 2, 0.5 + coverage / 2))

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Return how much of the uncertainty more data could not, and could, take away.

        Args:
            X: Inputs.

        Returns:
            As standard deviations, in the units of the targets: that of the noise, and that of the mean functions of
            the draws. The squares of both together are that of `predict(X, return_std=True)`.
        """
        means, stds = self._draw_moments(X)
        return Uncertainty(np.sqrt(np.mean(stds**2, axis=0)), means.std(axis=0))

    def _draw_moments(self, X: Any) -> Normal:
        """Return mean and standard deviation of each draw, (draws of all chains, inputs)."""
        x, length = self._inputs(X)
        apply = self._network().apply
        moments = [self._in_units(predict(apply, [position], x), length) for position in self.draws_]
        return Normal(*map(np.stack, zip(*moments, strict=True)))

    def _in_units(self, moments: Normal, length: int) -> Normal:
        scaling = self.target_scaling_
        std = moments.std[:length].astype(np.float64) * scaling.scale
        return Normal(*map(check_finite, (scaling.back(moments.mean[:length]), std)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _target_rules(self) -> dict[str, Any]:
        return {"multi_output": True, "y_numeric": True}

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        x, y = super()._read(X, y, reset)
        y = y.astype(np.float64, copy=False)
        return x, y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y

    def _see_targets(self, y: np.ndarray, weight: np.ndarray, classes: Any) -> None:
        self.target_scaling_ = Scaling.of(y, weight, self.standardize)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return self.target_scaling_.forward(y)

    def _network(self) -> Model:
        outputs = self.target_scaling_.mean.size
        return build.network(self.model, self.hidden_, outputs, classes=False)

    def _scalings(self) -> tuple[str, ...]:
        return ("input_scaling_", "target_scaling_")

    def _target_facts(self) -> dict[str, Any]:
        return {}

    def _take_target_facts(self, facts: Mapping[str, Any]) -> None:
        pass


def mixture_quantiles(means: np.ndarray, stds: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Compute quantiles, (..., levels), of mixtures of Gaussians along the first axis, by bisecting their CDF."""
    from scipy.special import ndtr, ndtri

    # A quantile of a mixture lies between the smallest and the largest quantile of its components.
    own = means[..., None] + stds[..., None] * ndtri(levels)
    low, high = own.min(axis=0), own.max(axis=0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = np.mean(
            [ndtr((middle - m[..., None]) / s[..., None]) for m, s in zip(means, stds, strict=True)], axis=0
        )
        low, high = np.where(below < levels, middle, low), np.where(below < levels, high, middle)
    return 0.5 * (low + high)
