"""The problems of the paper at two scales: task, numbers of steps and draws, and each method's hyperparameters.

Hyperparameters are in the paper's terms: `epsilon_squared` is its step size, or `learning_rate` for a deep ensemble;
`momentum_decay` is epsilon C (of L2E: C itself); `weight_decay` multiplies |theta|^2 / 2, which is added to the mean
loss.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from roamax.tasks import TaskSpec

Hyper = Mapping[str, Any]
IMAGES = ("fashion_mnist", "cifar10", "cifar100", "tiny_imagenet")
"""The image data of the paper's tables."""


def axes(name: str) -> tuple[str, str, str]:
    """Return the names of the hyperparameters that are tuned for a method."""
    return "learning_rate" if name == "DE" else "epsilon_squared", "momentum_decay", "weight_decay"


class Problem(NamedTuple):
    """A task with its budget, the same for every method, and each method's hyperparameters."""

    label: str
    task: TaskSpec
    burn_in: int
    draws: int
    thinning: int
    members: int
    """Members of a deep ensemble, among which the steps are divided."""
    hyper: Mapping[str, Hyper]

    @property
    def steps(self) -> int:
        """The number of minibatch gradients per method."""
        return self.burn_in + self.draws * self.thinning


def _tuned(tuned: Mapping[str, tuple[float, float, float]], **more: Hyper) -> dict[str, Hyper]:
    """Return each method's hyperparameters, given in the order of `axes`, and `more` of them by method."""
    return {
        name: {**dict(zip(axes(name), numbers, strict=True)), **more.get(name, {})} for name, numbers in tuned.items()
    }


def _paper(
    label: str,
    task: TaskSpec,
    tuned: Mapping[str, tuple[float, float, float]],
    *,
    draws: int = 100,
    member_epochs: int = 100,
    exploration_ratio: float = 0.8,
    thinning: Hyper | None = None,
) -> Problem:
    assert task.train_size is not None
    epoch = task.train_size // task.batch_size
    hyper = _tuned(
        tuned,
        DE={"epochs": member_epochs},
        cSGMCMC={"exploration_ratio": exploration_ratio},
        # The paper's epsilon squared for L2E is for weights whose outputs have this scale.
        L2E={"output_scale": 1e-3, **(thinning or {})},
    )
    hyper["Meta-SGMCMC"] = {"epsilon_squared": 1e-6, "weight_decay": 5e-4}
    return Problem(label, task, 100 * epoch, draws, 50 * epoch, draws, hyper)


PAPER = {
    "fashion_mnist": _paper(
        "Fashion-MNIST",
        TaskSpec("fashion_mnist", "cnn_fashion", train_size=40960),
        {"DE": (0.1, 0.5, 5e-4), "cSGMCMC": (2e-6, 0.5, 5e-4), "L2E": (2e-5, 0.05, 5e-4)},
    ),
    "cifar10": _paper(
        "CIFAR-10",
        TaskSpec("cifar10", "resnet20_frn", train_size=40960),
        {"DE": (0.1, 0.1, 1e-3), "cSGMCMC": (1e-6, 0.01, 1e-3), "L2E": (2e-5, 0.05, 5e-4)},
        exploration_ratio=0.94,
    ),
    "cifar100": _paper(
        "CIFAR-100",
        TaskSpec("cifar100", "resnet20_frn", train_size=40960),
        {"DE": (0.1, 0.05, 5e-4), "cSGMCMC": (1e-6, 0.01, 1e-3), "L2E": (1e-4, 0.05, 5e-4)},
        exploration_ratio=0.94,
    ),
    "tiny_imagenet": _paper(
        "Tiny-ImageNet",
        TaskSpec("tiny_imagenet", "resnet56_frn", train_size=81920),
        {"DE": (0.1, 0.3, 5e-4), "cSGMCMC": (1e-6, 0.05, 5e-4), "L2E": (2e-4, 0.05, 5e-4)},
        draws=10,
        member_epochs=200,
        thinning={"thinning_epochs": 20},
    ),
    "imdb": _paper(
        "IMDB",
        TaskSpec("imdb", "cnn_lstm", train_size=20480),
        {"DE": (0.1, 0.1, 5e-4), "cSGMCMC": (1e-6, 0.1, 5e-4), "L2E": (2e-5, 0.05, 5e-4)},
        draws=50,
    ),
}
"""The hyperparameters of the paper's appendix: 40,960 images, 100 epochs of burn-in, one draw per 50 epochs."""


def _cpu(
    label: str,
    task: TaskSpec,
    tuned: Mapping[str, tuple[float, float, float]],
    steps: tuple[int, int, int, int] = (500, 10, 150, 4),
) -> Problem:
    """Return a problem with each method's hyperparameters that were searched for, in the order of `axes`.

    `steps` are burn-in, draws, thinning and members.
    """
    burn_in, draws, thinning, members = steps
    hyper = _tuned(tuned, cSGMCMC={"exploration_ratio": 0.8})
    return Problem(label, task, burn_in, draws, thinning, members, hyper)


def _halved(data: str, model: str, batch_size: int = 128, **options: Any) -> TaskSpec:
    return TaskSpec(data, model, options, halve=True, train_size=40960, batch_size=batch_size)


_RESNET = {"DE": (0.03, 0.1, 1e-4), "SGHMC": (1e-6, 0.1, 1e-4), "cSGMCMC": (1e-6, 0.1, 5e-4)}
_FEW = 300, 10, 100, 4
CPU = {
    "fashion_mnist": _cpu(
        "Fashion-MNIST",
        TaskSpec("fashion_mnist", "cnn_fashion", train_size=40960),
        {"DE": (0.03, 0.05, 1e-4), "SGHMC": (2e-6, 0.1, 5e-4), "cSGMCMC": (2e-6, 0.1, 1e-4)},
    ),
    "cifar10": _cpu("CIFAR-10", _halved("cifar10", "resnet8_frn", 64), _RESNET, _FEW),
    "cifar100": _cpu("CIFAR-100", _halved("cifar100", "resnet8_frn", 64), _RESNET, _FEW),
    "tiny_imagenet": _cpu("Tiny-ImageNet", _halved("tiny_imagenet", "resnet8_frn", 64), _RESNET, _FEW),
    "mnist_mlp": _cpu(
        "MNIST, MLP",
        TaskSpec("mnist", "mlp", {"hidden": [100, 100]}),
        {"DE": (0.1, 0.05, 1e-4), "SGHMC": (2e-6, 0.1, 1e-4), "cSGMCMC": (4e-6, 0.1, 1e-4)},
    ),
    "cifar10_cnn": _cpu(
        "CIFAR-10, CNN",
        _halved("cifar10", "cnn_cifar"),
        {"DE": (0.03, 0.05, 1e-4), "SGHMC": (4e-7, 0.05, 1e-3), "cSGMCMC": (1e-6, 0.1, 1e-4)},
    ),
    "cifar10_wide": _cpu(
        "CIFAR-10, wide CNN",
        _halved("cifar10", "cnn", channels=12, depth=4, residual=True),
        {"DE": (0.03, 0.1, 1e-4), "SGHMC": (4e-7, 0.05, 1e-3), "cSGMCMC": (1e-6, 0.1, 5e-4)},
    ),
    "regression": _cpu(
        "1-D regression",
        TaskSpec("regression_1d_gap", "mlp_regression", {"hidden": [100, 100], "noise_scale": 0.1}),
        # For the ensemble, the search with one seed found (3e-4, 0.3, 1e-4), which diverges with another. This is the
        # best on validation data of ten that were tried by hand, among those that diverge with none of three seeds.
        {"DE": (1e-4, 0.01, 1e-4), "SGHMC": (1e-7, 0.01, 1e-3), "cSGMCMC": (1e-7, 0.01, 5e-4)},
    ),
    "imdb": _cpu(
        "IMDB",
        TaskSpec("imdb", "cnn_lstm", {"embedding": 32}, train_size=20480, test_size=2000, batch_size=32),
        {"DE": (0.3, 0.1, 1e-4), "SGHMC": (2e-6, 0.05, 5e-4), "cSGMCMC": (1e-5, 0.05, 5e-4)},
        (200, 10, 60, 2),
    ),
}
"""Minutes on two cores: fewer draws, closer together, halved images, a small network. Learned samplers have the
settings of their cards. Those of the others were found by the search of `roamax experiment tune`, on validation data;
CIFAR-100 and Tiny-ImageNet have those of CIFAR-10. The search for cyclical SGMCMC used cycles as long as the steps
between draws, with 2.5 % fewer steps in total where these do not divide the burn-in; on IMDB, steps longer than those
of the grid were tried too, and were worse."""

SCALES: dict[str, dict[str, Problem]] = {"cpu": CPU, "paper": PAPER}
