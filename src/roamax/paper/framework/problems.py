"""The problems of the paper at three scales: task, numbers of steps and draws, and each method's hyperparameters.

Hyperparameters are in the paper's terms: `epsilon_squared` is its step size, or `learning_rate` for an optimizer;
`momentum_decay` is epsilon C (of L2E: C itself); `weight_decay` multiplies |theta|^2 / 2, which is added to the mean
loss.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roamax.errors import check
from roamax.tasks import TaskSpec

Hyper = Mapping[str, Any]
IMAGES = ("fashion_mnist", "cifar10", "cifar100", "tiny_imagenet")
"""The image data of the paper's tables."""


TUNED: dict[str, dict[str, dict[str, Hyper]]] = json.loads(Path(__file__).with_name("tuned.json").read_text())
"""The settings that searches found on validation data, by problem, number of steps and method. Those of `roamax
experiment tune` are copied from `data`, `tuned` of its results.json. Settings that lack an axis of `search` are from
before that axis was searched. Meta-SGMCMC has the best of five step sizes where that of its card diverges
(training/README.md)."""


class Problem(NamedTuple):
    """A task with its budget, the same for every method, and each method's hyperparameters."""

    label: str
    task: TaskSpec
    burn_in: int
    draws: int
    thinning: int
    members: int
    """Members of a deep ensemble, among which the steps are divided, unless their number is tuned."""
    hyper: Mapping[str, Hyper]
    tuned_as: str = ""
    """Its name in `TUNED`."""

    @property
    def steps(self) -> int:
        """The number of minibatch gradients per method."""
        return self.burn_in + self.draws * self.thinning

    def drawing(self, draws: int | None) -> "Problem":
        """Return the problem with another number of draws, as far apart, and no more members than draws."""
        return self if draws is None else self._replace(draws=draws, members=min(self.members, draws))

    def in_parts(self, members: int) -> "Problem":
        """Return the problem with that many members of DE, and a cycle of cSGMCMC per draw, as in the paper.

        That is for experiments that ask how draws or cycles differ: a search for the best prediction may find that one
        is enough.
        """
        parts = {"DE": {"members": members}, "cSGMCMC": {"cycles": self.steps // self.thinning}}
        hyper = {name: {**self.hyper[name], **part} for name, part in parts.items() if name in self.hyper}
        return self._replace(hyper={**self.hyper, **hyper})

    def lasting(self, steps: int) -> "Problem":
        """Return the problem with another number of steps, divided in the same way, and the settings tuned to it."""
        if steps == self.steps:
            return self
        thinning = self.thinning * steps // self.steps
        check(thinning >= 1, "steps", f"be at least {-(-self.steps // self.thinning)} on {self.label}", steps)
        return self._replace(
            label=f"{self.label}, {steps:,} steps",
            burn_in=steps - self.draws * thinning,
            thinning=thinning,
            hyper=TUNED.get(self.tuned_as, {}).get(str(steps), {}),
        )


def _tuned(tuned: Mapping[str, tuple[float, float, float]], **more: Hyper) -> dict[str, Hyper]:
    """Return the paper's hyperparameters of each method: step size or learning rate, momentum and weight decay."""
    return {
        name: {
            "learning_rate" if name == "DE" else "epsilon_squared": length,
            "momentum_decay": momentum_decay,
            "weight_decay": weight_decay,
            **more.get(name, {}),
        }
        for name, (length, momentum_decay, weight_decay) in tuned.items()
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
    )
    # These weights were trained as the paper says. Their own step is better than the paper's (training/README.md).
    hyper["L2E"] = {"weights": "l2e-paper", "weight_decay": 5e-4, **(thinning or {})}
    hyper["Meta-SGMCMC"] = {"epsilon_squared": 1e-6, "weight_decay": 5e-4}
    return Problem(label, task, 100 * epoch, draws, 50 * epoch, draws, hyper)


def _fashion(task: TaskSpec) -> Problem:
    return _paper("Fashion-MNIST", task, {"DE": (0.1, 0.5, 5e-4), "cSGMCMC": (2e-6, 0.5, 5e-4)})


PAPER = {
    # The authors' code has 32 filters, twice those of the largest task of meta-training, and 48,000 images.
    "fashion_mnist": _fashion(TaskSpec("fashion_mnist", "cnn", {"channels": 32, "bottleneck": 20}, train_size=48_000)),
    "cifar10": _paper(
        "CIFAR-10",
        TaskSpec("cifar10", "resnet20_frn", train_size=40960),
        {"DE": (0.1, 0.1, 1e-3), "cSGMCMC": (1e-6, 0.01, 1e-3)},
        exploration_ratio=0.94,
    ),
    "cifar100": _paper(
        "CIFAR-100",
        TaskSpec("cifar100", "resnet20_frn", train_size=40960),
        {"DE": (0.1, 0.05, 5e-4), "cSGMCMC": (1e-6, 0.01, 1e-3)},
        exploration_ratio=0.94,
    ),
    "tiny_imagenet": _paper(
        "Tiny-ImageNet",
        TaskSpec("tiny_imagenet", "resnet56_frn", train_size=81920),
        {"DE": (0.1, 0.3, 5e-4), "cSGMCMC": (1e-6, 0.05, 5e-4)},
        draws=10,
        member_epochs=200,
        thinning={"thinning_epochs": 20},
    ),
    "imdb": _paper(
        "IMDB",
        TaskSpec("imdb", "cnn_lstm", train_size=20480),
        {"DE": (0.1, 0.1, 5e-4), "cSGMCMC": (1e-6, 0.1, 5e-4)},
        draws=50,
    ),
}
"""The hyperparameters of the paper's appendix: 40,960 images of CIFAR, 100 epochs of burn-in, a draw per 50 epochs."""


def _cpu(label: str, task: TaskSpec, tuned_as: str, steps: tuple[int, int, int, int] = (500, 10, 150, 4)) -> Problem:
    """Return a problem with the settings that were searched for; `steps` are burn-in, draws, thinning and members."""
    problem = Problem(label, task, *steps, hyper={}, tuned_as=tuned_as)
    return problem._replace(hyper=TUNED.get(tuned_as, {}).get(str(problem.steps), {}))


def _halved(data: str, model: str, batch_size: int = 128, **options: Any) -> TaskSpec:
    return TaskSpec(data, model, options, halve=True, train_size=40960, batch_size=batch_size)


_FEW = 300, 10, 100, 4
_IMDB = TaskSpec("imdb", "cnn_lstm", {"embedding": 32}, train_size=20480, test_size=2000, batch_size=32)
CPU = {
    "fashion_mnist": _cpu("Fashion-MNIST", TaskSpec("fashion_mnist", "cnn_fashion", train_size=40960), "fashion_mnist"),
    "fashion_few": _cpu(
        "Fashion-MNIST, 2,000 images", TaskSpec("fashion_mnist", "cnn_fashion", train_size=2000), "fashion_few"
    ),
    "cifar10": _cpu("CIFAR-10", _halved("cifar10", "resnet8_frn", 64), "cifar10", _FEW),
    "cifar100": _cpu("CIFAR-100", _halved("cifar100", "resnet8_frn", 64), "cifar10", _FEW),
    "tiny_imagenet": _cpu("Tiny-ImageNet", _halved("tiny_imagenet", "resnet8_frn", 64), "cifar10", _FEW),
    "mnist_mlp": _cpu("MNIST, MLP", TaskSpec("mnist", "mlp", {"hidden": [100, 100]}), "mnist_mlp"),
    "cifar10_cnn": _cpu("CIFAR-10, CNN", _halved("cifar10", "cnn_cifar"), "cifar10_cnn"),
    "cifar10_wide": _cpu(
        "CIFAR-10, wide CNN", _halved("cifar10", "cnn", channels=12, depth=4, residual=True), "cifar10_wide"
    ),
    "regression": _cpu(
        "1-D regression",
        TaskSpec("regression_1d_gap", "mlp_regression", {"hidden": [100, 100], "noise_scale": 0.1}),
        "regression",
    ),
    "imdb": _cpu("IMDB", _IMDB, "imdb", (200, 10, 60, 2)),
}
"""Minutes on two cores: fewer draws, closer together, halved images, a small network. Learned samplers have the
settings of their cards unless `TUNED` has others; CIFAR-100 and Tiny-ImageNet have those of CIFAR-10."""


LONG_CYCLES = 15


def _long(name: str) -> Problem:
    """Return a problem of 300 epochs: 100 of burn-in and 100 draws, 2 epochs apart.

    Settings are those that were searched for at this length, otherwise the paper's, whose runs are many times as long:
    cycles of 20 epochs, with ten draws each, take the place of its cycles of 50 epochs, and members of an ensemble have
    their share of the steps. L2E has the weights and settings of the paper's scale too, other learned samplers those of
    their cards.
    """
    task = TaskSpec(name, "cnn_pooled", train_size=40960)
    epoch = 40960 // task.batch_size
    problem = Problem(CPU[name].label, task, 100 * epoch, 100, 2 * epoch, 10, {}, f"{name}_long")
    paper = {key: dict(PAPER[name].hyper[key]) for key in ("DE", "cSGMCMC", "L2E")}
    del paper["DE"]["epochs"]
    paper["cSGMCMC"]["cycles"] = LONG_CYCLES
    return problem._replace(hyper=paper | TUNED.get(problem.tuned_as, {}).get(str(problem.steps), {}))


LONG = {
    "fashion_mnist": _fashion(CPU["fashion_mnist"].task).drawing(10),
    **{name: _long(name) for name in ("cifar10", "cifar100")},
}
"""Some 15 minutes per chain on one core: whole images and a small network, in runs that are long enough to test the
paper's claims. Fashion-MNIST has the paper's settings and ten of its draws."""

SCALES: dict[str, dict[str, Problem]] = {"cpu": CPU, "long": LONG, "paper": PAPER}

OWN = ("mnist", "digits", "regression_1d_gap")
"""The data of problems that only one experiment has, the same at all scales."""
