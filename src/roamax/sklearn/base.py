"""The base class of classifier and regressor: arguments, sampling, and files."""

import math
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from roamax.data import archives
from roamax.errors import DivergenceError, check, finite, whole
from roamax.host.machine import cache_programs
from roamax.models import Model
from roamax.numerics import trees
from roamax.numerics.quick import jit_quickly
from roamax.posterior import Posterior
from roamax.samplers import registry
from roamax.sampling.draws import Draws
from roamax.sampling.named import draw_options
from roamax.sampling.runner import sample
from roamax.sklearn import build, saving
from roamax.sklearn.build import Defaults, Rows
from roamax.sklearn.scaling import Scaling
from roamax.tasks import Task, make_task
from roamax.types import Key, Sampler

CLASSIFICATION = Defaults(temperature=0.05, prior=6.0)
REGRESSION = Defaults(temperature=1.0, prior=1.0)
DEFAULT_SAMPLER, LEARNING_RATE = "psgld", 0.003
"""Chosen, with the default networks, by validation NLL: see benchmarks/estimators.py.

SGHMC did as well on classification, but for real targets with little noise its steps were too long in the steepest
directions, to which a preconditioner adapts.
"""
RETRIES = 4
"""How many times the learning rate is divided by four when a chain diverges."""

ROWS = 256, 1024
"""Numbers of inputs that predictions are compiled for."""


class BayesianEstimator(BaseEstimator, metaclass=ABCMeta):
    """A scikit-learn estimator that holds draws from the posterior of a neural network."""

    _defaults: Defaults
    n_features_in_: int
    feature_names_in_: np.ndarray

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
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.model = model
        self.sampler = sampler
        self.hidden = hidden
        self.prior = prior
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.sampler_options = sampler_options
        self.num_samples = num_samples
        self.burn_in = burn_in
        self.thinning = thinning
        self.num_chains = num_chains
        self.batch_size = batch_size
        self.standardize = standardize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Sample the posterior given inputs and targets, starting anew.

        Args:
            X: Inputs.
            y: Targets.
            sample_weight: How often each row counts; None counts each once.

        Returns:
            This estimator.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        x, y = self._read(X, y, reset=True)
        weight = self._weights(x, y, sample_weight)
        self._see_targets(y, weight, classes)
        self.input_scaling_ = Scaling.of(x, weight, self.standardize)
        self.input_shape_ = x.shape[1:]
        self.hidden_ = build.default_hidden(len(x)) if self.hidden is None else build.widths(self.hidden)
        self.draws_ = self._sample(x, y, weight, None)
        return self

    def _resume(self, X: Any, y: Any, sample_weight: Any) -> Self:
        x, y = self._read(X, y, reset=False)
        more = self._sample(x, y, self._weights(x, y, sample_weight), self.draws_)
        self.draws_ = Draws.concatenate([self.draws_, more])
        return self

    def _weights(self, x: np.ndarray, y: np.ndarray, sample_weight: Any) -> np.ndarray:
        weight: Any = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        check(bool(weight.sum() > 0), "sample_weight", "have a sum > 0", weight.sum())
        return weight

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        pair: Any = validate_data(self, X, y, reset=reset, **self._input_rules(), **self._target_rules())
        return pair

    def _input_rules(self) -> dict[str, Any]:
        # A custom network may take images, while scikit-learn requires one row of numbers per example.
        return {"dtype": (np.float64, np.float32), "allow_nd": self.model is not None}

    def _target_rules(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _see_targets(self, y: np.ndarray, weight: np.ndarray, classes: Any) -> None:
        """Learn the classes, or the scaling, of the targets."""

    @abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Return the targets in the form that the likelihood expects."""

    @abstractmethod
    def _network(self) -> Model:
        """Return the network for the data seen by `fit`."""

    def _sample(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, before: Draws | None) -> Draws:
        rows = Rows(self.input_scaling_.forward(x), self._targets(y), weight.astype(np.float32))
        if isinstance(self.sampler, str):
            rows = build.in_few_sizes(rows)
        batch_size = len(rows.x) if self.batch_size is None else min(whole(self.batch_size, "batch_size"), len(rows.x))
        prior = self._defaults.prior if self.prior is None else self.prior
        log_prior = prior if callable(prior) else build.default_prior(finite(prior, "prior", above=0))
        train = rows.x, rows.y
        task = make_task(
            type(self).__name__, self._network(), train, train, train, log_prior=log_prior, batch_size=batch_size
        )
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        key = _key_of(np.int32(seed), np.int32(0 if before is None else before.num_samples))
        options = self._sampler_options()
        cache_programs()
        problem = _Problem(task, rows, None if callable(prior) else float(prior))
        for _ in range(RETRIES):
            try:
                return self._run(key, problem, options, before)
            except DivergenceError as error:
                if options.get("learning_rate") is None or "step_size" in options:
                    raise
                # Just below a rate that diverges, chains survive but fit badly: the usual one is further away.
                options["learning_rate"] = min(options["learning_rate"] / 4, self._usual_rate() or math.inf)
                warnings.warn(f"{error.args[0]} Trying smaller steps, {options['learning_rate']:.2g}.", stacklevel=4)
        return self._run(key, problem, options, before)

    def _usual_rate(self) -> float | None:
        """Return the default learning rate of a sampler given by name; None if it has none."""
        if not isinstance(self.sampler, str):
            return None
        if self.sampler == DEFAULT_SAMPLER:
            return LEARNING_RATE
        return registry.find(self.sampler).learning_rate(self._defaults is REGRESSION)

    def _sampler_options(self) -> dict[str, Any]:
        """Return the settings for a sampler given by name."""
        name = self.sampler
        if not isinstance(name, str):
            return {}
        record = registry.find(name)
        options = {"learning_rate": self._usual_rate() if self.learning_rate is None else self.learning_rate}
        if self.temperature is not None:
            options["temperature"] = self.temperature
        elif record.draws != "member":  # Members of an ensemble are trained at temperature 0.
            options["temperature"] = self._defaults.temperature
        own = {} if self.sampler_options is None else self.sampler_options
        check(isinstance(own, Mapping), "sampler_options", "be settings by name", own)
        return {**options, **own}

    def _run(self, key: Key, problem: "_Problem", options: Mapping[str, Any], before: Draws | None) -> Draws:
        task, rows, prior = problem
        if options.get("learning_rate") is not None and self.sampler != DEFAULT_SAMPLER:
            # The mean loss is over the weights, not over the rows. Of pSGLD, the scale of the loss cancels.
            scale = len(rows.x) / float(rows.weight.sum())
            options = {**options, "learning_rate": options["learning_rate"] * scale}
        burn_in = whole(self.burn_in, "burn_in", 0) if before is None else 0
        num_samples, thinning = whole(self.num_samples, "num_samples"), whole(self.thinning, "thinning")
        steps, num_chains = burn_in + num_samples * thinning, whole(self.num_chains, "num_chains")
        # A sampler made elsewhere has its own posterior, of inputs and targets.
        is_made = isinstance(self.sampler, Sampler)
        plain = bool(np.all(rows.weight == 1))
        check(plain or not is_made, "sampler", "be a name or a function of a posterior for weights", "a roamax.Sampler")
        likelihood = build.weighted(task.posterior.log_likelihood)
        posterior = Posterior(likelihood, task.posterior.log_prior, task.posterior.num_data)
        sampler = build.build_sampler(self.sampler, posterior, task, prior, steps, num_samples, options)
        taken: dict[str, Any] = {"burn_in": burn_in, "thinning": thinning, "batch_size": task.batch_size}
        if isinstance(self.sampler, str):
            taken = draw_options(self.sampler, **taken)
        # Members of an ensemble start anew, and so does a chain that would do so on its way; others resume.
        settings = sampler.settings
        starts_anew = before is None or settings.get("restarts") or settings.get("cycles_per_start")

        def run(key: Key, start: Any, num_chains: int) -> Draws:
            return sample(
                key,
                sampler,
                start,
                task.train if is_made else tuple(rows),
                **taken,
                num_samples=num_samples,
                num_chains=num_chains,
                progress=bool(self.verbose),
            )

        if self.n_jobs is None:
            return run(key, task.init if starts_anew else before, num_chains)
        keys = [jax.random.fold_in(key, chain) for chain in range(num_chains)]
        starts = [task.init if starts_anew or before is None else before[c : c + 1] for c in range(num_chains)]
        jobs = (delayed(run)(key, start, 1) for key, start in zip(keys, starts, strict=True))
        chains: Any = Parallel(self.n_jobs, prefer="threads")(jobs)
        return Draws.concatenate(list(chains), along="chains")

    def _inputs(self, X: Any) -> tuple[np.ndarray, int]:
        """Return scaled inputs, padded to a size that is compiled, and their number before padding."""
        check_is_fitted(self)
        x: Any = validate_data(self, X, reset=False, **self._input_rules())
        return _filled_up(self.input_scaling_.forward(x)), len(x)

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder as JSON and safetensors, which are safe to load.

        Args:
            folder: The folder to write to.
        """
        check_is_fitted(self)
        arrays = {f"draws/{name}": leaf for name, leaf in trees.named_leaves(self.draws_.positions).items()}
        for name in self._scalings():
            arrays |= {f"{name}/{part}": array for part, array in getattr(self, name)._asdict().items()}
        facts = {"hidden": self.hidden_, "input_shape": self.input_shape_, "n_features_in": self.n_features_in_}
        if hasattr(self, "feature_names_in_"):
            facts["feature_names_in"] = self.feature_names_in_.tolist()
        params = self.get_params(deep=False)
        saving.write(folder, type(self).__name__, params, facts | self._target_facts(), arrays)

    @classmethod
    def load(cls, folder: str | Path, **objects: Any) -> Self:
        """Load the estimator that `save` wrote.

        Args:
            folder: The folder that `save` wrote.
            **objects: Arguments that cannot be saved, such as your own model.

        Returns:
            The fitted estimator.
        """
        params, facts, arrays = saving.read(folder, cls.__name__, objects)
        # Files whose fields have the right types may still describe no estimator.
        with archives.reading(Path(folder) / "estimator.json", "restore it, or save the estimator anew"):
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
            loaded.draws_ = saving.as_draws(folder, arrays, like)
        return loaded

    def _scalings(self) -> tuple[str, ...]:
        return ("input_scaling_",)

    @abstractmethod
    def _target_facts(self) -> dict[str, Any]:
        """Return what is known about the targets, as JSON values."""

    @abstractmethod
    def _take_target_facts(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `_target_facts`."""


@jit_quickly
def _key_of(seed: Any, number: Any) -> Key:
    return jax.random.fold_in(jax.random.key(seed), number)


class _Problem(NamedTuple):
    """A task, its weighted rows, and the scale of the default prior, or None."""

    task: Task
    rows: Rows
    prior: float | None


def check_finite(predicted: np.ndarray) -> np.ndarray:
    """Return predictions, the rows of which are inputs, or raise an `InputError` that names one that is not finite."""
    good = np.isfinite(predicted).all(axis=tuple(range(1, predicted.ndim)))
    rule = "hold inputs near enough to those of `fit` for finite predictions"
    check(bool(good.all()), "X", rule, f"row {int(np.argmin(good))} far away")
    return predicted


def _filled_up(x: np.ndarray) -> np.ndarray:
    """Pad with copies of the last row to one of few sizes, so that few programs serve all numbers of inputs."""
    rows = next((rows for rows in ROWS if len(x) <= rows), -(-len(x) // ROWS[-1]) * ROWS[-1])
    return x[np.minimum(np.arange(rows), len(x) - 1)]
