"""Task distributions for meta-training: those that ship with the package, and custom ones."""

import importlib
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from roamax.errors import InputError, check, lookup
from roamax.tasks.spec import TaskSpec
from roamax.tasks.task import Task
from roamax.types import Key


@dataclass(frozen=True)
class TaskDistribution:
    """A uniform distribution over a finite list of tasks or task specs."""

    name: str
    tasks: tuple[TaskSpec | Task, ...]

    def __post_init__(self) -> None:
        check(len(self.tasks) > 0, "tasks", "hold at least one task", "none")
        for task in self.tasks:
            check(isinstance(task, TaskSpec | Task), "tasks", "hold TaskSpec or Task", type(task).__name__)
        twice = {name for name in self.names() if self.names().count(name) > 1}
        check(not twice, "tasks", "have distinct names", f"{sorted(twice)} twice")

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[TaskSpec | Task]:
        return iter(self.tasks)

    def __getitem__(self, which: int | str) -> TaskSpec | Task:
        if isinstance(which, str):
            return lookup(dict(zip(self.names(), self.tasks, strict=True)), which, "task")
        return self.tasks[which]

    def names(self) -> list[str]:
        """Return the names of the tasks, in order."""
        return [task.name for task in self.tasks]

    def sample(self, key: Key) -> TaskSpec | Task:
        """Draw one of the tasks."""
        return self.tasks[int(jax.random.randint(key, (), 0, len(self.tasks)))]


def build(task: TaskSpec | Task, data_dir: str | Path | None = None) -> Task:
    """Return the task that a member of a `TaskDistribution` describes.

    Args:
        task: A spec, or a task, which is returned as it is.
        data_dir: The data directory; None is `ROAMAX_DATA` or a folder in the user's cache.

    Returns:
        The task, with its data loaded.
    """
    return task if isinstance(task, Task) else task.build(data_dir)


def names() -> list[str]:
    """Return the names of the task distributions that ship with the package."""
    return list(SETS)


def get(name: str) -> TaskDistribution:
    """Return a task distribution by name.

    Args:
        name: One of `names()`, or `my_module:my_tasks` for your own: a TaskDistribution, a TaskSpec or Task, a list of
            these, or a function without arguments that returns one of them. The module may be in the current folder.

    Returns:
        The distribution.
    """
    if ":" in name:
        return _own(name)
    return TaskDistribution(name, tuple(lookup(SETS, name, "tasks")()))


def _own(name: str) -> TaskDistribution:
    sys.path.insert(0, os.getcwd())
    try:
        member = _member(*name.split(":", 1))
        found: Any = _called(member, name) if callable(member) else member
    finally:
        sys.path.remove(os.getcwd())
    if isinstance(found, TaskDistribution):
        return found
    # A Task is a tuple, too.
    if isinstance(found, Task) or not isinstance(found, list | tuple):
        return TaskDistribution(name, (found,))
    return TaskDistribution(name, tuple(found))


def _called(function: Callable[..., Any], name: str) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise InputError(f"`tasks` must name tasks, or a function without arguments; got {name!r}.") from error
    return function()


def _member(module_name: str, attribute: str) -> Any:
    is_dotted = all(part.isidentifier() for part in module_name.split("."))
    check(
        is_dotted and attribute.isidentifier(),
        "tasks",
        "be a name, or module:attribute",
        repr(f"{module_name}:{attribute}"),
    )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the missing module is not the one asked for but one that it imports, the original message is better.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InputError(f"`tasks` must name a module that can be imported; got {module_name!r}.") from error
    public = {member: value for member, value in vars(module).items() if not member.startswith("_")}
    return lookup(public, attribute, f"tasks of {module_name}")


def paper() -> Iterator[TaskSpec]:
    """Yield the paper's 120 tasks: four data sets, channels {4, 8, 16}, depth 1 to 5, residual or not."""
    data_sets = ("mnist", "fashion_mnist", "emnist_balanced", "bloodmnist")
    for data, channels, depth, residual in itertools.product(data_sets, (4, 8, 16), range(1, 6), (False, True)):
        yield _cnn(data, channels, depth, residual)


def small() -> Iterator[TaskSpec]:
    """Yield the small distribution of the paper's ablation: one data set, four channels, depth 1 and 2."""
    for depth, residual in itertools.product((1, 2), (False, True)):
        yield _cnn("fashion_mnist", 4, depth, residual)


def cpu() -> Iterator[TaskSpec]:
    """Yield 38 tasks small enough for two cores: three data sets at 14x14, each with three MLPs and five CNNs.

    MLPs cost a fraction of a CNN, and what is learned on them transfers; CNNs add weight sharing, depth and shortcuts.
    The smallest of both are repeated with few examples: samplers trained on large data only let parameters grow without
    bound on small data, which makes predictions overconfident. Two narrow MLPs at 28x28 have many inputs per unit,
    which requires short steps. Grey data sets have equal sizes, so that each network compiles once for both.
    """
    sizes = {"mnist": 50_000, "fashion_mnist": 50_000, "bloodmnist": 10_000}
    for data, train_size in sizes.items():
        for hidden in ([32], [64], [32, 32]):
            yield TaskSpec(data, "mlp", {"hidden": hidden}, halve=True, train_size=train_size)
        for channels, depth, residual in ((4, 1, False), (8, 1, True), (8, 2, False), (4, 2, True), (4, 3, True)):
            yield _cnn(data, channels, depth, residual, halve=True, train_size=train_size)
        for hidden, few in (([32], 500), ([32], 2000), ([32, 32], 2000)):
            yield TaskSpec(data, "mlp", {"hidden": hidden}, halve=True, train_size=few)
        yield _cnn(data, 4, 1, residual=False, halve=True, train_size=2000)
    for data, hidden in (("fashion_mnist", 16), ("bloodmnist", 8)):
        yield TaskSpec(data, "mlp", {"hidden": [hidden]}, train_size=sizes[data])


def smoke() -> Iterator[TaskSpec]:
    """Yield two tiny MLPs on scikit-learn's digits: nothing to download, and steps take microseconds."""
    for hidden in ([16], [8, 8]):
        yield TaskSpec("digits", "mlp", {"hidden": hidden}, batch_size=32)


SETS: dict[str, Callable[[], Iterator[TaskSpec]]] = {"paper": paper, "small": small, "cpu": cpu, "smoke": smoke}


def _cnn(
    data: str, channels: int, depth: int, residual: bool, *, halve: bool = False, train_size: int | None = None
) -> TaskSpec:
    options = {"channels": channels, "depth": depth, **({"residual": True} if residual else {})}
    return TaskSpec(data, "cnn", options, halve=halve, train_size=train_size)
