"""Task specs: tasks by names and numbers, as JSON can hold them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from roamax import models
from roamax.errors import InputError
from roamax.tasks import arrays
from roamax.tasks.task import Task, make_task


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
