"""Six small MLP tasks at 14x14: what the first weights were trained on."""

from roamax.tasks import TaskSpec


def tasks() -> list[TaskSpec]:
    """Three data sets, one and two hidden layers."""
    sizes = {"mnist": 50_000, "fashion_mnist": 50_000, "bloodmnist": 10_000}
    return [
        TaskSpec(data, "mlp", {"hidden": hidden}, halve=True, train_size=size, batch_size=64)
        for data, size in sizes.items()
        for hidden in ([32], [32, 32])
    ]
