"""Task specs: JSON-serialisable descriptions of tasks."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from roamax import models
from roamax.errors import InputError, as_seed, check, finite, flag, whole
from roamax.tasks import arrays
from roamax.tasks.task import Task, make_task


@dataclass(frozen=True)
class TaskSpec:
    """A JSON-serialisable description of a task: `TaskSpec(**dataclasses.asdict(spec))` equals `spec`.

    Args:
        data: The name of a data set, as in `roamax.data.names()`.
        model: The name of a network, as in `roamax.models.names()`.
        options: Options of the network; the number of classes comes from the data.
        weight_decay: The Gaussian prior, relative to the mean loss.
        batch_size: Examples per batch.
        halve: Whether to halve the height and width of images by averaging 2x2 blocks.
        train_size: The number of training examples; None is all of them.
        valid_size: The number of examples to hold out; None is the default of `roamax.data.split`.
        test_size: The number of test examples; None is all of them.
        seed: Decides which examples are held out and, if a size is given, which are used.
        classes: The labels to keep; None is all of them.
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
            raise InputError(f"`options` must be JSON-serialisable; got {self.options}.") from error
        checked = {
            "options": options,
            "weight_decay": finite(self.weight_decay, "weight_decay", above=0),
            "batch_size": whole(self.batch_size, "batch_size"),
            "halve": flag(self.halve, "halve"),
            "seed": as_seed(self.seed),
        }
        for name in ("data", "model"):
            check(isinstance(getattr(self, name), str), name, "be a name", getattr(self, name))
        for name in ("train_size", "valid_size", "test_size"):
            if getattr(self, name) is not None:
                checked[name] = whole(getattr(self, name), name)
        if self.classes is not None:
            check(isinstance(self.classes, Iterable), "classes", "be a list of labels", self.classes)
            checked["classes"] = [whole(label, "classes", 0) for label in self.classes]
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def name(self) -> str:
        """Data, model, and all settings that are not defaults, such as `mnist-half/cnn:channels=4:residual`."""
        unusual = {entry.name: getattr(self, entry.name) for entry in fields(self)[3:]}
        unusual = {key: value for key, value in unusual.items() if value != getattr(TaskSpec, key)}
        half = "-half" if unusual.pop("halve", False) else ""
        described = [_describe(key, value) for key, value in {**self.options, **unusual}.items()]
        return ":".join([f"{self.data}{half}/{self.model}", *described])

    def build(self, data_dir: str | Path | None = None) -> Task:
        """Load the data and return the task.

        Args:
            data_dir: The data directory; None is `ROAMAX_DATA` or a folder in the user's cache.

        Returns:
            The task.
        """
        sizes = arrays.Sizes(self.train_size, self.valid_size, self.test_size)
        loaded = arrays.load(self.data, data_dir, sizes, classes=self.classes, halve=self.halve, seed=self.seed)
        known = models.options(self.model)
        from_data = {key: value for key, value in loaded.model_options().items() if key in known}
        model = models.get(self.model, **{**from_data, **self.options})
        settings = {"weight_decay": self.weight_decay, "batch_size": self.batch_size}
        return make_task(self.name, model, loaded.train, loaded.valid, loaded.test, **settings)


def _describe(key: str, value: Any) -> str:
    if value is True:
        return key
    return f"{key}={'x'.join(map(str, value)) if isinstance(value, list) else value}"
