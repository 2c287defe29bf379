"""Tasks, which bind data, model, prior and batch size into a posterior, an `init` and an `apply`."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roamax import likelihoods, priors
from roamax.errors import check, whole
from roamax.host.machine import check_not_forked
from roamax.models import Model
from roamax.numerics.trees import leading_length
from roamax.posterior import Posterior
from roamax.types import Batch, Key, Params


class Task(NamedTuple):
    """An inference problem, ready for any sampler.

    The sampler sees `train`; `valid` is held out for the meta-loss and for tuning; `test` is for reports only. Each is
    a pair `(x, y)`.
    """

    name: str
    posterior: Posterior
    init: Callable[[Key], Params]
    apply: Callable[[Params, jax.Array], jax.Array]
    train: Batch
    valid: Batch
    test: Batch
    batch_size: int

    @property
    def is_regression(self) -> bool:
        """Whether targets are real numbers rather than classes."""
        return not _are_classes(self.test[1])


def make_task(
    name: str,
    model: Model,
    train: Batch,
    valid: Batch,
    test: Batch,
    *,
    weight_decay: float = 5e-4,
    log_prior: Callable[[Params], jax.Array] | None = None,
    batch_size: int = 128,
) -> Task:
    """Make a task from your own arrays.

    Integer targets are classes, under the softmax of the model's logits; floating-point targets are real, under a
    Gaussian whose mean and scale the model returns.

    Tasks with the same model, shapes and prior share their functions and have equal posteriors, so that a function
    compiled with these as static arguments serves all of them.

    Args:
        name: The name of the task.
        model: The network.
        train: The pair `(x, y)` that the sampler sees.
        valid: The pair held out for the meta-loss and for tuning.
        test: The pair for reports.
        weight_decay: The prior N(0, 1 / (num_data * weight_decay)) on every parameter, unless `log_prior` is given.
        log_prior: The prior as a log-density of the parameters.
        batch_size: Examples per batch.

    Returns:
        The task.
    """
    check_not_forked()
    parts = {part: _as_pair(pair, part) for part, pair in (("train", train), ("valid", valid), ("test", test))}
    x, y = parts["train"]
    num_data = len(x)
    batch_size = whole(batch_size, "batch_size", 1, num_data)
    _check_alike(parts)
    init = _initialiser(model, x.shape[1:], x.dtype)
    check_targets, likelihood = (_check_classes, _categorical) if _are_classes(y) else (_check_real, _gaussian)
    targets = {f"y_{part}": y for part, (_, y) in parts.items()}
    check_targets(targets, _outputs(model, init, x.shape[1:], x.dtype))
    target = Posterior(likelihood(model.apply), log_prior or _weight_decay_prior(weight_decay, num_data), num_data)
    return Task(name, target, init, model.apply, parts["train"], parts["valid"], parts["test"], batch_size)


def _as_pair(pair: Batch, part: str) -> tuple[jax.Array, jax.Array]:
    check(isinstance(pair, list | tuple) and len(pair) == 2, part, "be a pair (x, y)", type(pair).__name__)
    x, y = (jnp.asarray(array) for array in pair)
    leading_length({f"x_{part}": x, f"y_{part}": y}, part)
    return x, y.astype(jnp.int32) if _are_classes(y) else y


def _are_classes(y: jax.Array) -> bool:
    return bool(jnp.issubdtype(y.dtype, jnp.integer))


def _check_alike(parts: Mapping[str, tuple[jax.Array, jax.Array]]) -> None:
    for part, pair in parts.items():
        for letter, array, like in zip("xy", pair, parts["train"], strict=True):
            alike = array.shape[1:] == like.shape[1:] and array.dtype == like.dtype
            rule = f"hold {like.dtype} of shape {like.shape[1:]}, as in training"
            check(alike, f"{letter}_{part}", rule, f"{array.dtype} of shape {array.shape[1:]}")


def _check_classes(targets: Mapping[str, jax.Array], logits: Any) -> None:
    shapes = jax.tree.map(lambda array: array.shape, logits)
    rule = "give logits of shape (n, classes) for targets that are whole numbers"
    check(getattr(logits, "ndim", None) == 2, "model", rule, shapes)
    for name, y in targets.items():
        check(y.ndim == 1, name, "hold one label per example, shape (n,)", y.shape)
        labels = np.asarray(y)
        low, high = int(labels.min()), int(labels.max())
        classes = logits.shape[1]
        check(low >= 0 and high < classes, name, f"hold labels in [0, {classes})", low if low < 0 else high)


def _check_real(targets: Mapping[str, jax.Array], output: Any) -> None:
    shapes = jax.tree.map(lambda array: array.shape, output)
    rule = "give a mean and a scale for targets that are real numbers"
    check(isinstance(output, tuple) and len(output) == 2, "model", rule, shapes)
    for name, y in targets.items():
        expected = output[0].shape[1:]
        check(y.shape[1:] == expected, name, f"hold targets of shape {expected} as the model gives", y.shape[1:])


# Cached, so that similar tasks share their functions, and jit reuses what it has compiled.
_categorical = functools.cache(likelihoods.categorical)
_gaussian = functools.cache(likelihoods.gaussian)


@functools.cache
def _weight_decay_prior(weight_decay: float, num_data: int) -> Callable[[Params], jax.Array]:
    return priors.gaussian(weight_decay=weight_decay, num_data=num_data)


@functools.cache
def _initialiser(model: Model, shape: tuple[int, ...], dtype: Any) -> Callable[[Key], Params]:
    return lambda key: model.init(key, jnp.zeros((1, *shape), dtype))


@functools.cache
def _outputs(model: Model, init: Callable[[Key], Params], shape: tuple[int, ...], dtype: Any) -> Any:
    params = jax.eval_shape(init, jax.random.key(0))
    return jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((1, *shape), dtype))
