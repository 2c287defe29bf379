"""Tasks: data, model, prior and batch size bound into a posterior, an initial position and an `apply`."""

import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roamax import models, posterior, priors
from roamax.errors import InputError, check, lookup
from roamax.models import Model
from roamax.posterior import Posterior
from roamax.trees import leading_length
from roamax.types import Batch, Key, Params


class Task(NamedTuple):
    """One inference problem, ready for any sampler.

    `train` is what the sampler sees; `valid` is held out from it, for the meta-loss and for tuning;
    `test` is for reports only. Each is `(x, y)`.
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
        """Whether targets are real numbers instead of classes."""
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
    """A task from arrays `(x, y)` of one's own.

    Whole numbers in `y` are classes, under the softmax of the model's logits; other numbers are real targets, under
    the Gaussian whose mean and scale the model gives. The prior is N(0, 1 / (num_data * weight_decay)) on every
    parameter, or `log_prior`.

    Tasks with the same model, the same shapes and the same prior hold the same functions, and their posteriors are
    equal: what is compiled with these as static arguments and the data as arrays serves them all.
    """
    parts = {part: _as_pair(pair, part) for part, pair in (("train", train), ("valid", valid), ("test", test))}
    x, y = parts["train"]
    num_data = len(x)
    whole = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    check(whole and 1 <= batch_size <= num_data, "batch_size", f"be a whole number in [1, {num_data}]", batch_size)
    _check_alike(parts)
    init = _initialiser(model, x.shape[1:], x.dtype)
    check_targets, likelihood = (_check_classes, _categorical) if _are_classes(y) else (_check_real, _gaussian)
    targets = {f"y_{part}": y for part, (_, y) in parts.items()}
    check_targets(targets, _outputs(model, init, x.shape[1:], x.dtype))
    target = Posterior(likelihood(model.apply), log_prior or _weight_decay_prior(weight_decay, num_data), num_data)
    return Task(name, target, init, model.apply, parts["train"], parts["valid"], parts["test"], batch_size)


@dataclass(frozen=True)
class TaskSpec:
    """What a task is made of, by names and numbers: `dataclasses.asdict` gives JSON, `TaskSpec(**...)` takes it back.

    `data` is a name of `roamax.data`, `model` one of `roamax.models` with its `options`; the number of classes comes
    from the data. `halve` shrinks images to half their height and width by 2x2 means; `classes` are the labels to keep,
    None for all. The sizes None mean: a validation set as `roamax.data.split` has it, and all other data. `seed`
    decides which examples are held out and, where a size is given, which are taken.
    """

    data: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weight_decay: float = 5e-4
    batch_size: int = 128
    halve: bool = False
    train_size: int | None = None
    valid_size: int | None = None
    test_size: int | None = None
    seed: int = 0
    classes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        try:
            options = json.loads(json.dumps(dict(self.options), sort_keys=True))
        except (TypeError, ValueError) as error:
            raise InputError(f"`options` must be what JSON can hold; got {self.options}.") from error
        object.__setattr__(self, "options", options)
        if self.classes is not None:
            object.__setattr__(self, "classes", list(self.classes))

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def name(self) -> str:
        """Data, model, and all that differs from the defaults, such as `mnist-half/cnn:channels=4:residual`."""
        unusual = {entry.name: getattr(self, entry.name) for entry in fields(self)[3:]}
        unusual = {key: value for key, value in unusual.items() if value != getattr(TaskSpec, key)}
        half = "-half" if unusual.pop("halve", False) else ""
        described = [_describe(key, value) for key, value in {**self.options, **unusual}.items()]
        return ":".join([f"{self.data}{half}/{self.model}", *described])

    def build(self, data_dir: str | Path | None = None) -> Task:
        """The task, with its data loaded from the data directory."""
        from roamax import task_data

        sizes = task_data.Sizes(self.train_size, self.valid_size, self.test_size)
        arrays = task_data.load(self.data, data_dir, sizes, classes=self.classes, halve=self.halve, seed=self.seed)
        known = models.options(self.model)
        from_data = {key: value for key, value in arrays.model_options().items() if key in known}
        model = models.get(self.model, **{**from_data, **self.options})
        settings = {"weight_decay": self.weight_decay, "batch_size": self.batch_size}
        return make_task(self.name, model, arrays.train, arrays.valid, arrays.test, **settings)


@dataclass(frozen=True)
class TaskDistribution:
    """A finite list of tasks or task specs, each as likely as the others."""

    name: str
    tasks: tuple[TaskSpec | Task, ...]

    def __post_init__(self) -> None:
        check(len(self.tasks) > 0, "tasks", "hold at least one task", "none")
        for task in self.tasks:
            check(isinstance(task, TaskSpec | Task), "tasks", "hold TaskSpec or Task", type(task).__name__)
        twice = {name for name in self.names() if self.names().count(name) > 1}
        check(not twice, "tasks", "have a name of its own for each", f"{sorted(twice)} twice")

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[TaskSpec | Task]:
        return iter(self.tasks)

    def __getitem__(self, which: int | str) -> TaskSpec | Task:
        if isinstance(which, str):
            return lookup(dict(zip(self.names(), self.tasks, strict=True)), which, "task")
        return self.tasks[which]

    def names(self) -> list[str]:
        """The names of the tasks, in their order."""
        return [task.name for task in self.tasks]

    def sample(self, key: Key) -> TaskSpec | Task:
        """One of the tasks, drawn by `key`."""
        return self.tasks[int(jax.random.randint(key, (), 0, len(self.tasks)))]


def build(task: TaskSpec | Task, data_dir: str | Path | None = None) -> Task:
    """The task that a member of a `TaskDistribution` stands for."""
    return task if isinstance(task, Task) else task.build(data_dir)


def names() -> list[str]:
    """The task distributions that `get` knows."""
    from roamax import task_sets

    return list(task_sets.SETS)


def get(name: str) -> TaskDistribution:
    """A task distribution: one of `names`, or `my_module:my_tasks` for one's own.

    `my_tasks` is a TaskDistribution, a TaskSpec or Task, a list of these, or a function without arguments that
    returns one of them. The module is looked for in the current folder too.
    """
    from roamax import task_sets

    if ":" in name:
        return _own(name)
    return TaskDistribution(name, tuple(lookup(task_sets.SETS, name, "tasks")()))


def _describe(key: str, value: Any) -> str:
    if value is True:
        return key
    return f"{key}={'x'.join(map(str, value)) if isinstance(value, list) else value}"


def _own(name: str) -> TaskDistribution:
    sys.path.insert(0, os.getcwd())
    try:
        member = _member(*name.split(":", 1))
        found: Any = member() if callable(member) else member
    finally:
        sys.path.remove(os.getcwd())
    if isinstance(found, TaskDistribution):
        return found
    # A Task is a tuple too, but one task.
    if isinstance(found, Task) or not isinstance(found, list | tuple):
        return TaskDistribution(name, (found,))
    return TaskDistribution(name, tuple(found))


def _member(module_name: str, attribute: str) -> Any:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Another module than the one asked for is missing: that is the user's own import, and its message is better.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InputError(f"`tasks` must name a module that can be imported; got {module_name!r}.") from error
    public = {member: value for member, value in vars(module).items() if not member.startswith("_")}
    return lookup(public, attribute, f"tasks of {module_name}")


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
        check(y.ndim == 1, name, "hold one label an example, shape (n,)", y.shape)
        low, high = int(y.min()), int(y.max())
        classes = logits.shape[1]
        check(low >= 0 and high < classes, name, f"hold labels in [0, {classes})", low if low < 0 else high)


def _check_real(targets: Mapping[str, jax.Array], output: Any) -> None:
    shapes = jax.tree.map(lambda array: array.shape, output)
    rule = "give a mean and a scale for targets that are real numbers"
    check(isinstance(output, tuple) and len(output) == 2, "model", rule, shapes)
    for name, y in targets.items():
        expected = output[0].shape[1:]
        check(y.shape[1:] == expected, name, f"hold targets of shape {expected} as the model gives", y.shape[1:])


# Caches, so that tasks that are alike hold the same functions, and jit finds what it has compiled.
_categorical = functools.cache(posterior.categorical)
_gaussian = functools.cache(posterior.gaussian)


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
