"""The task distributions that ship: what samplers are meta-trained on."""

import itertools
from collections.abc import Callable, Iterator

from roamax.tasks import TaskSpec


def paper() -> Iterator[TaskSpec]:
    """The paper's 120 tasks: four data sets, channels {4, 8, 16}, depth 1 to 5, residual or not."""
    data_sets = ("mnist", "fashion_mnist", "emnist_balanced", "bloodmnist")
    for data, channels, depth, residual in itertools.product(data_sets, (4, 8, 16), range(1, 6), (False, True)):
        yield _cnn(data, channels, depth, residual)


def small() -> Iterator[TaskSpec]:
    """The small distribution of the paper's ablation: one data set, four channels, depth 1 and 2."""
    for depth, residual in itertools.product((1, 2), (False, True)):
        yield _cnn("fashion_mnist", 4, depth, residual)


def cpu() -> Iterator[TaskSpec]:
    """38 tasks that two cores can work through: three data sets at 14x14, three MLPs and five CNNs each.

    MLPs cost a fraction of a CNN and what is learned on them transfers; the CNNs bring shared weights, depth and
    shortcuts. The smallest of both come again with few examples: weights that had only seen many grew the networks'
    parameters without end on small data, into overconfidence. Two narrow MLPs at 28x28 have many inputs to a unit, for
    which steps have to be short. Grey data sets have equal sizes, so that each network compiles once for both.
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
    """Two tiny networks on the digits that ship with scikit-learn: nothing to download, a step in microseconds."""
    for hidden in ([16], [8, 8]):
        yield TaskSpec("digits", "mlp", {"hidden": hidden}, batch_size=32)


SETS: dict[str, Callable[[], Iterator[TaskSpec]]] = {"paper": paper, "small": small, "cpu": cpu, "smoke": smoke}


def _cnn(
    data: str, channels: int, depth: int, residual: bool, *, halve: bool = False, train_size: int | None = None
) -> TaskSpec:
    options = {"channels": channels, "depth": depth, **({"residual": True} if residual else {})}
    return TaskSpec(data, "cnn", options, halve=halve, train_size=train_size)
