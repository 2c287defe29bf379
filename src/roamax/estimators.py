"""Bayesian neural networks as scikit-learn estimators: fit, then predictions averaged over draws from the posterior."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from roamax import estimator_files, estimator_parts, trees
from roamax.draws import Draws
from roamax.errors import DivergenceError, check
from roamax.estimator_parts import Scaling
from roamax.models import Model
from roamax.predict import Normal, predict, predict_draws
from roamax.samplers.named import BY_CYCLES, FULL_BATCH, one_draw_a_cycle
from roamax.sampling import sample
from roamax.tasks import Task, make_task
from roamax.types import Key, Sampler

RETRIES = 4
"""How often steps are made four times smaller when a chain diverges."""


class _BayesianEstimator(BaseEstimator, metaclass=ABCMeta):
    """What classifier and regressor share: their arguments, how chains are run, and files."""

    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        model: Model | str | None = None,
        sampler: str | Sampler | Callable[..., Sampler] = "sghmc",
        *,
        hidden: Sequence[int] | None = None,
        prior: float | Callable[..., Any] = 1.0,
        learning_rate: float | None = None,
        sampler_options: Mapping[str, Any] | None = None,
        num_samples: int = 25,
        burn_in: int = 1500,
        thinning: int = 60,
        num_chains: int = 4,
        batch_size: int | None = 128,
        standardize: bool = True,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.model = model
        self.sampler = sampler
        self.hidden = hidden
        self.prior = prior
        self.learning_rate = learning_rate
        self.sampler_options = sampler_options
        self.num_samples = num_samples
        self.burn_in = burn_in
        self.thinning = thinning
        self.num_chains = num_chains
        self.batch_size = batch_size
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Sample the posterior given inputs `X` and targets `y`, from scratch."""
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        x, y = self._read(X, y, reset=True)
        self._see_targets(y, classes)
        self.input_scaling_ = Scaling.of(x, self.standardize)
        self.input_shape_ = x.shape[1:]
        self.hidden_ = tuple(estimator_parts.default_hidden(len(x)) if self.hidden is None else self.hidden)
        self.draws_ = self._sample(x, y, None)
        return self

    def _go_on(self, X: Any, y: Any) -> Self:
        x, y = self._read(X, y, reset=False)
        self.draws_ = estimator_parts.joined(self.draws_, self._sample(x, y, self.draws_))
        return self

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        pair: Any = validate_data(self, X, y, reset=reset, **self._input_rules(), **self._target_rules())
        return pair

    def _input_rules(self) -> dict[str, Any]:
        # A network of one's own may take images; scikit-learn's rule is one row of numbers an example.
        return {"dtype": (np.float64, np.float32), "allow_nd": self.model is not None}

    def _target_rules(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _see_targets(self, y: np.ndarray, classes: Any) -> None:
        """Learn what the targets are like."""

    @abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the likelihood takes them."""

    @abstractmethod
    def _network(self) -> Model:
        """The network for the data that were seen."""

    def _sample(self, x: np.ndarray, y: np.ndarray, before: Draws | None) -> Draws:
        train = (self.input_scaling_.forward(x), self._targets(y))
        batch_size = len(x) if self.batch_size is None else min(self.batch_size, len(x))
        log_prior = estimator_parts.log_prior(self.prior)
        task = make_task(
            type(self).__name__, self._network(), train, train, train, log_prior=log_prior, batch_size=batch_size
        )
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        key = jax.random.fold_in(jax.random.key(seed), 0 if before is None else before.num_draws)
        lr = self.learning_rate or estimator_parts.default_learning_rate(self.sampler, task)
        for _ in range(RETRIES):
            try:
                return self._run(key, task, lr, before)
            except DivergenceError as error:
                if lr is None or "step_size" in (self.sampler_options or {}):
                    raise
                lr /= 4
                warnings.warn(f"{error.args[0]} Trying smaller steps, learning_rate={lr:.3g}.", stacklevel=4)
        return self._run(key, task, lr, before)

    def _run(self, key: Key, task: Task, lr: float | None, before: Draws | None) -> Draws:
        burn_in = self.burn_in if before is None else 0
        steps = burn_in + self.num_samples * self.thinning
        options = {"lr": lr, **(self.sampler_options or {})}
        sampler = estimator_parts.build_sampler(self.sampler, task, steps, self.num_samples, options)
        by_cycles = one_draw_a_cycle(sampler) if self.sampler in BY_CYCLES else None
        # Members of an ensemble start anew; chains go on from where they were.
        starts_anew = before is None or sampler.settings.get("restarts")
        return sample(
            key,
            sampler,
            task.init if starts_anew else before,
            task.train,
            batch_size=None if self.sampler in FULL_BATCH else task.batch_size,
            num_samples=self.num_samples,
            burn_in=0 if by_cycles else burn_in,
            thinning=by_cycles or self.thinning,
            num_chains=self.num_chains,
            progress=bool(self.verbose),
        )

    def _inputs(self, X: Any) -> tuple[np.ndarray, int]:
        """Inputs to predict at, as the network takes them, filled up to a round number; and how many there are."""
        check_is_fitted(self)
        x: Any = validate_data(self, X, reset=False, **self._input_rules())
        return estimator_parts.filled_up(self.input_scaling_.forward(x)), len(x)

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder: JSON and safetensors, nothing that could run when it is read."""
        check_is_fitted(self)
        arrays = {f"draws/{name}": leaf for name, leaf in trees.named_leaves(self.draws_.positions).items()}
        arrays |= {f"{name}/{part}": array for name in self._scalings() for part, array in
                   getattr(self, name)._asdict().items()}  # fmt: skip
        facts = {"hidden": self.hidden_, "input_shape": self.input_shape_, "n_features_in": self.n_features_in_}
        if hasattr(self, "feature_names_in_"):
            facts["feature_names_in"] = self.feature_names_in_.tolist()
        params = self.get_params(deep=False)
        estimator_files.write(folder, type(self).__name__, params, facts | self._target_facts(), arrays)

    @classmethod
    def load(cls, folder: str | Path, **objects: Any) -> Self:
        """The estimator that `save` wrote. Arguments that were objects of your own are given again, by name."""
        params, facts, arrays = estimator_files.read(folder, cls.__name__, objects)
        loaded = cls(**params)
        loaded.hidden_, loaded.input_shape_ = tuple(facts["hidden"]), tuple(facts["input_shape"])
        loaded.n_features_in_ = facts["n_features_in"]
        if "feature_names_in" in facts:
            loaded.feature_names_in_ = np.asarray(facts["feature_names_in"], object)
        for name in loaded._scalings():
            setattr(loaded, name, Scaling(arrays[f"{name}/mean"], arrays[f"{name}/scale"]))
        loaded._take_target_facts(facts)
        example = jax.ShapeDtypeStruct((1, *loaded.input_shape_), np.float32)
        like = jax.eval_shape(loaded._network().init, jax.random.key(0), example)
        leaves = [arrays[f"draws/{name}"] for name in trees.named_leaves(like)]
        loaded.draws_ = Draws.from_positions(jax.tree.unflatten(jax.tree.structure(like), leaves))
        return loaded

    def _scalings(self) -> tuple[str, ...]:
        return ("input_scaling_",)

    @abstractmethod
    def _target_facts(self) -> dict[str, Any]:
        """What is known of the targets, as JSON holds it."""

    @abstractmethod
    def _take_target_facts(self, facts: Mapping[str, Any]) -> None:
        """Take what `_target_facts` gave."""


class BayesianClassifier(ClassifierMixin, _BayesianEstimator):
    """A classifier whose probabilities are averaged over draws from the posterior of a neural network.

    classifier = BayesianClassifier(random_state=0).fit(X, y)
    classifier.predict_proba(X_new)
    """

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Take `num_samples` more draws of each chain, given `X` and `y`; the first call is `fit`.

        Chains go on from their last draws without burn-in, on the data given now: usually those of before. Scaling
        stays that of the first call. `classes` lists all labels there can be, where the first `y` lacks some.
        """
        return self._go_on(X, y) if hasattr(self, "draws_") else self._fit(X, y, classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        x, length = self._inputs(X)
        probabilities = predict(self._network().apply, self.draws_, x)[:length].astype(np.float64)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def sample_posterior(self, X: Any) -> np.ndarray:
        """The class probabilities of each draw, (draws of all chains, inputs, classes)."""
        x, length = self._inputs(X)
        return np.exp(predict_draws(self._network().apply, self.draws_, x)[:, :length])

    def _see_targets(self, y: np.ndarray, classes: Any) -> None:
        check_classification_targets(y)
        self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs at least 2 classes in `y`; got {len(self.classes_)} class.")

    def _targets(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        known = np.isin(y, self.classes_)
        if not known.all():
            raise ValueError(f"`y` must hold labels that `classes_` lists; got {y[~known][0]!r}.")
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _network(self) -> Model:
        return estimator_parts.network(self.model, self.hidden_, len(self.classes_), classes=True)

    def _target_facts(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "classes_dtype": self.classes_.dtype.str}

    def _take_target_facts(self, facts: Mapping[str, Any]) -> None:
        self.classes_ = np.asarray(facts["classes"], np.dtype(facts["classes_dtype"]))


class BayesianRegressor(RegressorMixin, _BayesianEstimator):
    """A regressor whose predictive distribution is a mixture over draws from the posterior of a neural network.

    regressor = BayesianRegressor(random_state=0).fit(X, y)
    mean, std = regressor.predict(X_new, return_std=True)
    """

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Take `num_samples` more draws of each chain, given `X` and `y`; the first call is `fit`.

        Chains go on from their last draws without burn-in, on the data given now: usually those of before. Scaling
        stays that of the first call.
        """
        return self._go_on(X, y) if hasattr(self, "draws_") else self._fit(X, y)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of the predictive distribution, and with `return_std` its standard deviation, noise included."""
        x, length = self._inputs(X)
        mean, std = self._in_units(predict(self._network().apply, self.draws_, x), length)
        return (mean, std) if return_std else mean

    def sample_posterior(self, X: Any) -> np.ndarray:
        """The mean function of each draw, (draws of all chains, inputs)."""
        return self._draw_moments(X).mean

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of the predictive distribution, which is a mixture and not a Gaussian: (inputs, quantiles)."""
        levels = np.asarray(quantiles, float)
        good = levels.ndim == 1 and bool(np.all((levels > 0) & (levels < 1)))
        check(good, "quantiles", "be a list of numbers in (0, 1)", quantiles)
        return estimator_parts.mixture_quantiles(*self._draw_moments(X), levels)

    def _draw_moments(self, X: Any) -> Normal:
        """Mean and standard deviation of each draw, (draws of all chains, inputs)."""
        x, length = self._inputs(X)
        apply = self._network().apply
        moments = [self._in_units(predict(apply, [position], x), length) for position in self.draws_]
        return Normal(*map(np.stack, zip(*moments, strict=True)))

    def _in_units(self, moments: Normal, length: int) -> Normal:
        scaling = self.target_scaling_
        return Normal(scaling.back(moments.mean[:length]), moments.std[:length].astype(np.float64) * scaling.scale)

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

    def _see_targets(self, y: np.ndarray, classes: Any) -> None:
        self.target_scaling_ = Scaling.of(y, self.standardize)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return self.target_scaling_.forward(y)

    def _network(self) -> Model:
        outputs = self.target_scaling_.mean.size
        return estimator_parts.network(self.model, self.hidden_, outputs, classes=False)

    def _scalings(self) -> tuple[str, ...]:
        return ("input_scaling_", "target_scaling_")

    def _target_facts(self) -> dict[str, Any]:
        return {}

    def _take_target_facts(self, facts: Mapping[str, Any]) -> None:
        pass
