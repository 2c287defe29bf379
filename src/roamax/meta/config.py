"""What a meta-training run is made of: numbers and names, all of them in `config.json` and none elsewhere."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from roamax.errors import InputError, check, nearest
from roamax.meta.estimators import ESTIMATORS

if TYPE_CHECKING:
    EstimatorName = str
else:
    EstimatorName = Literal[tuple(ESTIMATORS)]
ObjectiveName = Literal["bma", "ce", "kl"]
SamplerName = Literal["l2e", "kinetic_l2e", "precond_l2e", "meta_sgmcmc"]


@dataclass(frozen=True)
class Stage:
    """A stretch of outer steps with one estimator of the meta-gradient.

    es      antithetic evolution strategies over the whole unroll
    pes     persistent evolution strategies over truncations of it, fresh noise in each
    nres    the same with one noise for a whole unroll
    tbptt   backpropagation through the whole unroll, or through truncations of it
    """

    estimator: EstimatorName = "es"
    """Which estimator of the meta-gradient."""
    outer_steps: int = 1000
    """Updates of the meta-parameters."""
    inner_steps: int = 3000
    """Steps of the sampler in one unroll."""
    num_draws: int = 10
    """Draws in the loss: the last of a whole unroll; with truncations, those that the running loss remembers."""
    thinning: int = 50
    """Steps between draws."""
    truncation: int | None = None
    """Steps of a truncation; None for the whole unroll."""
    pairs: int = 1
    """Antithetic pairs (backpropagation: unrolls) that an outer step averages over, each with a key of its own."""
    tasks: int = 1
    """Tasks that an outer step draws; its pairs are dealt to them in turn."""
    sigma: float = 0.01
    """Standard deviation of the perturbations of evolution strategies."""
    learning_rate: float = 0.01
    """Learning rate of Adam."""
    step_size: float | None = None
    """The sampler's step size epsilon in this stage; None for that of the run."""
    only: str = ""
    """Draw from the tasks whose names contain this; "" for all of them."""
    layers: str = ""
    """Train the tensors whose names contain this; "" for all. Evolution strategies need fewer pairs for fewer."""

    @property
    def truncations(self) -> int:
        """How many outer steps one unroll takes."""
        return 1 if self.truncation is None else self.inner_steps // self.truncation


@dataclass(frozen=True)
class TrainConfig:
    """A meta-training run. The same config gives the same meta-parameters, to the bit, on one kind of machine."""

    sampler: SamplerName = "l2e"
    """The family of samplers to train."""
    tasks: str = "paper"
    """The task distribution: a name, or `module:attribute` of one's own."""
    stages: tuple[Stage, ...] = (Stage(),)
    """What is done, one after the other."""
    objective: ObjectiveName = "bma"
    """bma, the loss of the model average; ce, the mean loss of draws; kl, for tbptt over several chains."""
    seed: int = 0
    """Seed of everything random."""
    weights: str | None = None
    """Weights to start from, a file or the name of pretrained ones; None for random ones."""
    init_scale: float = 1.0
    """What the output layer of random weights is multiplied by: small ones start from a sampler that hardly moves,
    instead of one that moves anywhere."""

    step_size: float = math.sqrt(1e-5)
    """The sampler's epsilon; its square is what the paper tables. It is validated with, and goes on the card."""
    friction: float = 0.05
    """Friction C."""
    temperature: float = 1.0
    """Temperature T of the injected noise."""
    output_scale: float = 1e-3
    """What the network's outputs are multiplied by."""
    passes: int = 2
    """Passes of the network a step (l2e)."""

    clip_norm: float = 1.0
    """The meta-gradient's norm is clipped to this, and before that of each unroll's gradient by backpropagation."""
    beta1: float = 0.9
    """Adam's decay of the mean gradient."""
    beta2: float = 0.99
    """Adam's decay of the mean squared gradient."""
    loss_ceiling: float = 10.0
    """Losses above this count as this: one diverged chain must not outweigh all others in evolution strategies."""
    held_out: int = 1024
    """Held-out points on which an unroll's loss is taken."""
    rescale: float = 1.0
    """Divide tensors in training by factors from [1 / rescale, rescale], to learn the length of a step; 1 for none."""
    chains: int = 1
    """Parallel chains of an unroll; kl needs two or more."""
    bandwidth: float = 100.0
    """Bandwidth of the kernel in the kl objective."""

    valid_every: int = 20
    """Outer steps from one validation to the next."""
    valid_problems: int = 4
    """Fixed pairs of task and seed that validation averages over."""
    valid_only: str = ""
    """Validate on tasks whose names contain this; "" for all of them."""
    valid_steps: int = 3000
    """Steps of the sampler in validation."""
    valid_draws: int = 10
    """Draws in the validation loss, always that of the model average."""
    valid_thinning: int = 50
    """Steps between those draws."""

    def __post_init__(self) -> None:
        _check_run(self)
        for number, stage in enumerate(self.stages):
            _check_stage(stage, f"stages.{number}.", self)

    @property
    def validation(self) -> Stage:
        """Validation, as a stage without perturbations."""
        return Stage(inner_steps=self.valid_steps, num_draws=self.valid_draws, thinning=self.valid_thinning)

    @property
    def outer_steps(self) -> int:
        """Outer steps of all stages."""
        return sum(stage.outer_steps for stage in self.stages)

    def stage_at(self, step: int) -> tuple[int, int]:
        """The number of the stage that an outer step belongs to, and the outer step at which it begins."""
        begin = 0
        for number, stage in enumerate(self.stages):
            if step < begin + stage.outer_steps:
                return number, begin
            begin += stage.outer_steps
        raise InputError(f"`step` must be below the number of outer steps, {begin}; got {step}.")


def to_json(config: TrainConfig) -> dict[str, Any]:
    """A config as JSON can hold it; stages by their number, so that each of their numbers has a name."""
    flat = dataclasses.asdict(config)
    return flat | {"stages": {str(number): stage for number, stage in enumerate(flat["stages"])}}


def from_json(values: Mapping[str, Any]) -> TrainConfig:
    """The config that `to_json` wrote."""
    stages = values.get("stages", {})
    check(isinstance(stages, Mapping), "stages", "be an object of stages by number", stages)
    ordered = [stages[number] for number in sorted(stages, key=int)]
    return _build(TrainConfig, {**values, "stages": tuple(_build(Stage, stage) for stage in ordered)})


def _build(kind: type, values: Mapping[str, Any]) -> Any:
    known = [entry.name for entry in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise InputError(f"`{name}` must be a setting of meta-training: {nearest(name, known)}")
    return kind(**values)


def _check_run(config: TrainConfig) -> None:
    _check_choice(config.sampler, SamplerName, "sampler")
    _check_choice(config.objective, ObjectiveName, "objective")
    check(len(config.stages) > 0, "stages", "hold at least one stage", "none")
    check(config.passes in (1, 2), "passes", "be 1 or 2", config.passes)
    for name in ("init_scale", "step_size", "friction", "output_scale", "clip_norm", "loss_ceiling", "bandwidth"):
        _check_positive(getattr(config, name), name)
    check(math.isfinite(config.temperature) and config.temperature >= 0, "temperature", "be a finite number >= 0",
          config.temperature)  # fmt: skip
    check(1 <= config.rescale < math.inf, "rescale", "be a finite number >= 1", config.rescale)
    for name in ("beta1", "beta2"):
        check(0 <= getattr(config, name) < 1, name, "be in [0, 1)", getattr(config, name))
    for name in ("held_out", "chains", "valid_every", "valid_problems", "valid_draws", "valid_thinning"):
        _check_whole(getattr(config, name), name)
    _check_whole(config.seed, "seed", least=0)
    taken = config.valid_draws * config.valid_thinning
    _check_whole(config.valid_steps, "valid_steps", least=taken)


def _check_stage(stage: Stage, prefix: str, config: TrainConfig) -> None:
    _check_choice(stage.estimator, EstimatorName, f"{prefix}estimator")
    for name in ("outer_steps", "num_draws", "thinning", "pairs", "tasks"):
        _check_whole(getattr(stage, name), f"{prefix}{name}")
    for name in ("sigma", "learning_rate"):
        _check_positive(getattr(stage, name), f"{prefix}{name}")
    if stage.step_size is not None:
        _check_positive(stage.step_size, f"{prefix}step_size")
    check(stage.tasks <= stage.pairs, f"{prefix}tasks", f"be at most `pairs`, {stage.pairs}", stage.tasks)
    entry = ESTIMATORS[stage.estimator]
    if config.objective == "kl":
        able = ", ".join(name for name, one in ESTIMATORS.items() if one.backpropagates)
        check(entry.backpropagates, f"{prefix}estimator", f"be {able} for the kl objective", stage.estimator)
        check(config.chains >= 2, "chains", "be >= 2 for the kl objective", config.chains)
    if stage.truncation is None:
        _check_whole(stage.inner_steps, f"{prefix}inner_steps", least=stage.num_draws * stage.thinning)
        check(entry.takes_whole_unrolls, f"{prefix}truncation", f"be given for {stage.estimator}", None)
        return
    able = ", ".join(name for name, one in ESTIMATORS.items() if one.takes_truncations)
    rule = f"be None for {stage.estimator}: {able} take one"
    check(entry.takes_truncations, f"{prefix}truncation", rule, stage.truncation)
    _check_whole(stage.truncation, f"{prefix}truncation")
    whole_draws = stage.truncation % stage.thinning == 0
    check(whole_draws, f"{prefix}truncation", f"be a multiple of `thinning`, {stage.thinning}", stage.truncation)
    whole_truncations = stage.inner_steps > 0 and stage.inner_steps % stage.truncation == 0
    rule = f"be a multiple of `truncation`, {stage.truncation}"
    check(whole_truncations, f"{prefix}inner_steps", rule, stage.inner_steps)


def _check_choice(value: str, choices: Any, argument: str) -> None:
    known = get_args(choices)
    if value not in known:
        raise InputError(f"`{argument}` must be one of {', '.join(known)}; got {value!r}.")


def _check_whole(value: int, argument: str, least: int = 1) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    check(whole and value >= least, argument, f"be a whole number >= {least}", value)


def _check_positive(value: float, argument: str) -> None:
    check(math.isfinite(value) and value > 0, argument, "be a finite number > 0", value)
