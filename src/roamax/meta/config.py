"""The configuration of a meta-training run: numbers and names, all of them kept in `config.json`."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from roamax.errors import InputError, as_seed, check, finite, lookup, nearest, whole
from roamax.meta.estimators import ESTIMATORS
from roamax.samplers.registry import families

if TYPE_CHECKING:
    EstimatorName = str
else:
    EstimatorName = Literal[tuple(ESTIMATORS)]
ObjectiveName = Literal["bma", "ce", "kl"]
if TYPE_CHECKING:
    SamplerName = str
else:  # The command line reads its choices from the type. Samplers in cycles have no step size to train with.
    SamplerName = Literal[tuple(record.name for record in families().values() if record.draws == "step")]


@dataclass(frozen=True)
class Stage:
    """A number of outer steps with one estimator of the meta-gradient.

    es      antithetic evolution strategies over whole unrolls
    pes     persistent evolution strategies over truncations, with new noise for each
    nres    the same with one noise per unroll
    tbptt   backpropagation through whole unrolls, or through truncations
    """

    estimator: EstimatorName = "es"
    """The estimator of the meta-gradient."""
    outer_steps: int = 1000
    """Updates of the meta-parameters."""
    inner_steps: int = 3000
    """Steps of the sampler in one unroll."""
    num_samples: int = 10
    """Draws in the loss: the last of a whole unroll; with truncations, the memory of the running loss."""
    thinning: int = 50
    """Steps between draws."""
    truncation: int | None = None
    """Steps per truncation; None for the whole unroll."""
    pairs: int = 1
    """Antithetic pairs (backpropagation: unrolls) per outer step, each with its own key."""
    tasks: int = 1
    """Tasks per outer step; its pairs are assigned to them in turn."""
    sigma: float = 0.01
    """Standard deviation of the perturbations of evolution strategies."""
    learning_rate: float = 0.01
    """Learning rate of Adam."""
    compared: Literal["loss", "log"] = "loss"
    """What evolution strategies compare: losses, or logarithms of positive ones, so that no task outweighs others."""
    step_size: float | None = None
    """The sampler's step size epsilon in this stage; None for that of the run."""
    only: str = ""
    """Draw from the tasks whose names contain this; "" for all of them."""
    layers: str = ""
    """Train the tensors whose names contain this; "" for all. With fewer, evolution strategies need fewer pairs."""

    @property
    def truncations(self) -> int:
        """The number of outer steps per unroll."""
        return 1 if self.truncation is None else self.inner_steps // self.truncation


@dataclass(frozen=True)
class TrainConfig:
    """A meta-training run. On one kind of machine, the same config gives bit-identical meta-parameters."""

    sampler: SamplerName = "l2e"
    """The family of samplers to train."""
    tasks: str = "paper"
    """The task distribution: a name, or your own as `module:attribute`."""
    stages: tuple[Stage, ...] = (Stage(),)
    """Stages, one after the other."""
    objective: ObjectiveName = "bma"
    """bma, the loss of the model average; ce, the mean loss of draws; kl, the KL divergence, for tbptt only."""
    seed: int = 0
    """Seed of everything random."""
    weights: str | None = None
    """Weights to start from, a file or the name of pretrained ones; None for random ones."""
    init_scale: float = 1.0
    """Factor of the output layer of random weights; if small, training starts from a sampler that hardly moves."""

    step_size: float = math.sqrt(1e-5)
    """The sampler's epsilon, whose square the paper tabulates. Validation uses it, and the card states it."""
    friction: float = 0.05
    """Friction C."""
    temperature: float = 1.0
    """Temperature T of the injected noise."""
    output_scale: float = 1e-3
    """Factor applied to the network's outputs."""
    passes: int = 2
    """Network passes per step (l2e)."""
    form: Literal["consistent", "paper"] = "consistent"
    """The form of the update (kinetic_l2e)."""

    clip_norm: float = 1.0
    """The norm to which the meta-gradient is clipped, and before that each unroll's gradient by backpropagation."""
    beta1: float = 0.9
    """Adam's decay of the mean gradient."""
    beta2: float = 0.99
    """Adam's decay of the mean squared gradient."""
    loss_ceiling: float = 10.0
    """Losses are capped at this, so that one diverged chain cannot outweigh all others in evolution strategies."""
    held_out: int = 1024
    """Held-out points on which the loss of an unroll is computed."""
    rescale: float = 1.0
    """Divide tensors in training by factors from [1 / rescale, rescale], to learn step lengths; 1 for none."""
    chains: int = 1
    """Parallel chains of an unroll; kl needs two or more."""
    bandwidth: float | Literal["median"] = 100.0
    """Bandwidth of the kernel in the kl objective; median is the median distance between chains."""

    valid_every: int = 20
    """Outer steps between validations."""
    valid_problems: int = 4
    """Fixed pairs of task and seed over which validation averages."""
    valid_only: str = ""
    """Validate on tasks whose names contain this; "" for all of them."""
    valid_steps: int = 3000
    """Steps of the sampler in validation."""
    valid_samples: int = 10
    """Draws in the validation loss, which is always that of the model average."""
    valid_thinning: int = 50
    """Steps between draws in validation."""

    def __post_init__(self) -> None:
        _check_run(self)

    @property
    def validation(self) -> Stage:
        """Validation as a stage, without perturbations."""
        return Stage(inner_steps=self.valid_steps, num_samples=self.valid_samples, thinning=self.valid_thinning)

    @property
    def outer_steps(self) -> int:
        """The number of outer steps of all stages."""
        return sum(stage.outer_steps for stage in self.stages)

    def stage_at(self, step: int) -> tuple[int, int]:
        """Return the number of the stage that an outer step belongs to, and the outer step at which it begins."""
        begin = 0
        for number, stage in enumerate(self.stages):
            if step < begin + stage.outer_steps:
                return number, begin
            begin += stage.outer_steps
        raise InputError(f"`step` must be below the number of outer steps, {begin}; got {step}.")


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Return a config ready for JSON; stages are keyed by number, so that each of their settings has a name."""
    flat = dataclasses.asdict(config)
    return flat | {"stages": {str(number): stage for number, stage in enumerate(flat["stages"])}}


def from_json(values: Any) -> TrainConfig:
    """Return the config that `to_json` of this or an earlier version wrote; an `InputError` names what is wrong."""
    run = _settings(TrainConfig, values, "config")
    stages = run.get("stages", {})
    numbers = [str(number) for number in range(len(stages))] if isinstance(stages, Mapping) else []
    check(isinstance(stages, Mapping) and stages.keys() == set(numbers), "stages", "be numbered from 0", stages)
    run["stages"] = tuple(Stage(**_settings(Stage, stages[number], f"stages.{number}")) for number in numbers)
    return TrainConfig(**run)


_OLD_NAMES = {"num_draws": "num_samples", "valid_draws": "valid_samples"}
"""Settings with another name in earlier versions."""


def _settings(kind: type, values: Any, argument: str) -> dict[str, Any]:
    check(isinstance(values, Mapping), argument, "be an object of settings", values)
    settings = {str(_OLD_NAMES.get(name, name)): value for name, value in values.items()}
    known = [entry.name for entry in dataclasses.fields(kind)]
    for name in settings:
        if name not in known:
            raise InputError(f"`{name}` must be a setting of meta-training: {nearest(name, known)}")
    return settings


def _text(value: Any, argument: str) -> str:
    check(isinstance(value, str), argument, "be text", value)
    return value


def _bandwidth(value: Any, argument: str) -> float | str:
    return value if value == "median" else finite(value, argument, above=0, otherwise=", or median")


_fraction = partial(finite, least=0, below=1)
_RULES: dict[type, Callable[[Any, str], Any]] = {int: whole, float: partial(finite, above=0), str: _text}
"""The check of all settings of a type, except those below."""
_EXCEPTIONS: dict[str, Callable[[Any, str], Any]] = {
    "seed": as_seed,
    "passes": partial(whole, most=2),
    "temperature": partial(finite, least=0),
    "rescale": partial(finite, least=1),
    "bandwidth": _bandwidth,
    "beta1": _fraction,
    "beta2": _fraction,
}


def _check_each(settings: Any, prefix: str = "") -> None:
    """Check every setting of a config or a stage by itself, and convert numbers to Python's."""
    for name, kind in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if get_origin(kind) is Literal:
            lookup(dict.fromkeys(get_args(kind)), value, f"{prefix}{name}")
        elif not (value is None and NoneType in kinds) and kinds[0] in _RULES:
            converted = (_EXCEPTIONS.get(name) or _RULES[kinds[0]])(value, f"{prefix}{name}")
            object.__setattr__(settings, name, converted)


def _check_run(config: TrainConfig) -> None:
    _check_each(config)
    check(len(config.stages) > 0, "stages", "hold at least one stage", "none")
    taken = config.valid_samples * config.valid_thinning
    check(config.valid_steps >= taken, "valid_steps", f"be a whole number >= {taken}", config.valid_steps)
    for number, stage in enumerate(config.stages):
        _check_stage(stage, f"stages.{number}.", config)


def _check_stage(stage: Stage, prefix: str, config: TrainConfig) -> None:
    _check_each(stage, prefix)
    check(stage.tasks <= stage.pairs, f"{prefix}tasks", f"be at most `pairs`, {stage.pairs}", stage.tasks)
    entry = ESTIMATORS[stage.estimator]
    if entry.backpropagates:
        check(stage.compared == "loss", f"{prefix}compared", f"be loss for {stage.estimator}", stage.compared)
    if config.objective == "kl":
        able = ", ".join(name for name, one in ESTIMATORS.items() if one.backpropagates)
        check(entry.backpropagates, f"{prefix}estimator", f"be {able} for the kl objective", stage.estimator)
        check(config.chains >= 2, "chains", "be >= 2 for the kl objective", config.chains)
    if stage.truncation is None:
        taken = stage.num_samples * stage.thinning
        check(stage.inner_steps >= taken, f"{prefix}inner_steps", f"be a whole number >= {taken}", stage.inner_steps)
        check(entry.takes_whole_unrolls, f"{prefix}truncation", f"be given for {stage.estimator}", None)
        return
    able = ", ".join(name for name, one in ESTIMATORS.items() if one.takes_truncations)
    rule = f"be None for {stage.estimator}: {able} take one"
    check(entry.takes_truncations, f"{prefix}truncation", rule, stage.truncation)
    for name, value, part in [
        ("truncation", stage.truncation, "thinning"),
        ("inner_steps", stage.inner_steps, "truncation"),
    ]:
        size = getattr(stage, part)
        check(value % size == 0, f"{prefix}{name}", f"be a multiple of `{part}`, {size}", value)
