"""Samplers on targets with known answers, under several kinds of gradient noise: error vs. gradients.

The noise is that of minibatches: every target gets 16 data whose terms in the energy are linear, or nearly, and cancel
in their sum, so that the target is exact, whatever a single datum says. A minibatch is one datum.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import roamax
from benchmarks import order
from benchmarks.paths import blocks
from roamax import runs
from roamax.cli.arguments import Quiet
from roamax.evaluation import diagnostics
from roamax.host import files
from roamax.posterior import Posterior
from roamax.report.table import Column, from_records, markdown
from roamax.sampling.batches import ShuffledEpochs
from roamax.types import Key, Sampler

NUM_DATA = 16
SIZES = (0.03, 0.1, 0.3, 0.9)
"""Step sizes to choose from, in units that suit each sampler and target."""
BLOCK = 100
"""Gradients per block, over which averages are taken."""
SIGNIFICANT = 4.0
"""The number of standard errors, by effective sample size, from which on a bias is seen."""


class Target(NamedTuple):
    """A density with mean 0: its log, a mode, second and fourth moments of coordinates, its narrowest scale."""

    log_density: Callable[[jax.Array], jax.Array]
    mode: np.ndarray
    second: np.ndarray
    fourth: np.ndarray
    unit: float

    @property
    def exact(self) -> np.ndarray:
        """The means of coordinates and of their squares."""
        return np.concatenate([np.zeros_like(self.second), self.second])

    @property
    def scale(self) -> np.ndarray:
        """The deviations of coordinates and of their squares."""
        return np.sqrt(np.concatenate([self.second, self.fourth - self.second**2]))


def gaussian(dim: int = 8) -> Target:
    """Return N(0, diag) with deviations from .1 to 1."""
    variance = np.logspace(-2, 0, dim)
    precision = jnp.asarray(1 / variance, jnp.float32)
    return Target(lambda x: -0.5 * jnp.sum(precision * x**2), np.zeros(dim), variance, 3 * variance**2, 0.1)


def banana() -> Target:
    """Return x ~ N(0, 1), y ~ N(x^2 - 1, .5^2)."""

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * x[0] ** 2 - 2 * (x[1] - x[0] ** 2 + 1) ** 2

    # E (x^2 - 1)^2 = 2 and E (x^2 - 1)^4 = 60.
    return Target(log_density, np.asarray([0.0, -1.0]), np.asarray([1, 2.25]), np.asarray([3, 60 + 3 + 3 / 16]), 0.3)


def funnel(dim: int = 5) -> Target:
    """Return v ~ N(0, 1) and `dim` numbers ~ N(0, exp(v))."""

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * x[0] ** 2 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 0.5 * dim * x[0]

    second = np.asarray([1.0, *[math.exp(0.5)] * dim])
    return Target(log_density, np.zeros(dim + 1), second, np.asarray([3.0, *[3 * math.exp(2)] * dim]), 0.3)


def two_modes(dim: int = 4, distance: float = 4.0) -> Target:
    """Return two unit Gaussians of equal weight."""
    centre = distance / 2 / dim**0.5

    def log_density(x: jax.Array) -> jax.Array:
        return jnp.logaddexp(-0.5 * jnp.sum((x - centre) ** 2), -0.5 * jnp.sum((x + centre) ** 2))

    second, fourth = np.full(dim, centre**2 + 1), np.full(dim, centre**4 + 6 * centre**2 + 3)
    return Target(log_density, np.full(dim, centre), second, fourth, 1.0)


TARGETS = {"Gaussian": gaussian(), "banana": banana(), "funnel": funnel(), "two modes": two_modes()}
NOISES = ("none", "isotropic", "anisotropic", "correlated", "by position")


def noise(target: Target, kind: str) -> tuple[jax.Array, jax.Array]:
    """Return the data of a kind of noise: vectors that sum to 0, and how their strength depends on position.

    The root mean square of the noise in a coordinate is half of the gradient's along the narrowest direction.
    """
    dim, rng = len(target.mode), np.random.default_rng(1)
    centred = rng.normal(size=(NUM_DATA, dim))
    centred -= centred.mean(axis=0)
    white = centred @ np.linalg.inv(np.linalg.cholesky(centred.T @ centred / NUM_DATA)).T
    widths = np.ones(dim) if kind == "isotropic" else np.logspace(-1, 0, dim)
    vectors = white * widths / np.sqrt(np.mean(widths**2))
    if kind in ("correlated", "by position"):
        vectors = vectors @ np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    strength = 0.0 if kind == "none" else 0.5 / target.unit
    slope = 1.0 if kind == "by position" else 0.0
    return jnp.asarray(strength * vectors, jnp.float32), jnp.full(NUM_DATA, slope, jnp.float32)


def posterior_of(target: Target) -> Posterior:
    """Return the posterior whose data are the noise: the gradient of one datum, times their number, is its vector."""

    def log_likelihood(x: jax.Array, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        vectors, slopes = batch
        return vectors @ x / NUM_DATA * (1 + slopes * jnp.tanh(x[0]))

    return Posterior(log_likelihood, target.log_density, NUM_DATA)


class Entry(NamedTuple):
    """A sampler by its posterior, size and unit; whether it takes all data, and the gradients that a step takes."""

    make: Callable[[Posterior, Any, float], Sampler]
    full_batch: bool = False
    cost: int = 1


def _langevin(name: str, **settings: Any) -> Entry:
    def make(posterior: Posterior, size: Any, unit: float) -> Sampler:
        return getattr(roamax, name)(posterior, step_size=lambda step: 0.5 * size * unit**2, **settings)

    return Entry(make)


def _with_momentum(name: str, **settings: Any) -> Entry:
    def make(posterior: Posterior, size: Any, unit: float) -> Sampler:
        return getattr(roamax, name)(posterior, step_size=lambda step: size * unit, friction=1.0, **settings)

    return Entry(make)


SAMPLERS: dict[str, Entry] = {
    "SGLD": _langevin("sgld"),
    # Its preconditioner is one over a mean gradient of size 1 / unit.
    "pSGLD": Entry(lambda p, size, unit: roamax.psgld(p, step_size=lambda step: 0.5 * size * unit / NUM_DATA)),
    "SA-SGLD": _langevin("sa_sgld"),
    "Entropy-MCMC": _langevin("entropy_mcmc"),
    "SGHMC": _with_momentum("sghmc"),
    "SGNHT": _with_momentum("sgnht"),
    "SMS-UBU": _with_momentum("sms_ubu"),
    "SMILE": _with_momentum("smile"),
    "MILE": Entry(lambda p, size, unit: roamax.mile(p, step_size=lambda step: size * unit), full_batch=True),
    "HMC": Entry(
        lambda p, size, unit: roamax.hmc(p, step_size=lambda step: size * unit, num_integration_steps=9,
                                         adaptation_steps=0),
        full_batch=True,
        cost=10,
    ),
}  # fmt: skip


def averages(entry: Entry, target: Target, kinds: tuple[str, ...], key: Key, num_chains: int, num_blocks: int,
             sizes: tuple[float, ...] = SIZES) -> np.ndarray:  # fmt: skip
    """Run chains from near a mode: means of coordinates and squares in blocks, (size, kind, chain, block, function)."""
    posterior = posterior_of(target)
    mode = jnp.asarray(target.mode, jnp.float32)

    def watch(state: Any) -> jax.Array:
        return jnp.concatenate([state.position, state.position**2])

    def chain(size: jax.Array, data: Any, key: Key) -> jax.Array:
        sampler = entry.make(posterior, size, target.unit)
        batches = ShuffledEpochs(NUM_DATA, NUM_DATA if entry.full_batch else 1, sampler.sweeps)
        start = mode + 0.5 * target.unit * jax.random.normal(key, mode.shape)
        return blocks(sampler, data, batches, key, start, num_blocks, BLOCK // entry.cost, watch)

    run = jax.vmap(jax.vmap(jax.vmap(chain, (None, None, 0)), (None, 0, None)), (0, None, None))
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(noise(target, kind) for kind in kinds))
    return np.asarray(jax.jit(run)(jnp.asarray(sizes), data, jax.random.split(key, num_chains)), np.float64)


def error(seen: np.ndarray, target: Target) -> float:
    """Return the root mean square error of one chain's averages over the second half of its blocks, in deviations."""
    estimates = seen[:, seen.shape[1] // 2 :].mean(axis=1)
    found = np.sqrt(np.mean(((estimates - target.exact) / target.scale) ** 2))
    return float(found) if np.isfinite(found) else math.inf


def standard_errors(seen: np.ndarray, target: Target) -> np.ndarray:
    """Return by how many standard errors each function's mean is off, by the effective sample size of its blocks."""
    kept = seen[:, seen.shape[1] // 2 :]
    sizes = np.asarray(diagnostics.ess(kept))
    return np.abs(kept.mean(axis=(0, 1)) - target.exact) / (kept.std(axis=(0, 1)) / np.sqrt(sizes))


def rows(seed: int, num_chains: int, gradients: int) -> Iterator[dict[str, Any]]:
    """Measure every sampler on every target: one row each, with a cell per kind of noise.

    Half of the chains choose the step size, the other half are reported.
    """
    num_blocks = gradients // BLOCK
    for number, (target_name, target) in enumerate(TARGETS.items()):
        for place, (name, entry) in enumerate(SAMPLERS.items()):
            kinds = NOISES[:1] if entry.full_batch else NOISES
            key = jax.random.fold_in(jax.random.key(seed), 100 * number + place)
            seen = averages(entry, target, kinds, key, 2 * num_chains, num_blocks)
            row: dict[str, Any] = {"target": target_name, "sampler": name}
            for index, kind in enumerate(kinds):
                best = min(range(len(SIZES)), key=lambda size: error(seen[size, index, :num_chains], target))
                reported = seen[best, index, num_chains:]
                early, late = error(reported[:, : num_blocks // 4], target), error(reported, target)
                known = math.isfinite(late)
                biased = known and bool((standard_errors(reported, target) > SIGNIFICANT).any())
                row[kind] = {"early": early, "late": late, "biased": biased, "size": SIZES[best]} if known else None
            yield row


COLUMNS = [Column("target", "target"), Column("sampler", "sampler"), *(Column(kind, kind) for kind in NOISES)]
ORDER_COLUMNS = [
    Column("sampler", "sampler, minibatches"),
    Column("steps", "steps"),
    Column("first", "bias at the first", ".3f"),
    Column("last", "at the last", ".3f"),
    Column("error", "standard error", ".3f"),
    Column("slope", "slope"),
]
TEXT = """# Samplers on known answers

{finding}

Which sampler is accurate, on what, under which gradient noise? Targets: a Gaussian with deviations from .1 to 1, a
banana, a funnel and two modes four deviations apart. Noise: that of minibatches of one of 16 data, whose root mean
square is half of the gradient's along the narrowest direction; alike in all directions, ten times as large in some as
in others, the same rotated, and that growing from one side of the target to the other.

A cell is the error of one chain that started near a mode, after {early:,} → {gradients:,} gradients: the root mean
square over chains and over the means of all coordinates and their squares, in standard deviations, from the second half
of the chain. Each sampler has its own settings but for the step size, which was chosen among four, on other chains.

- A star means a bias that {num_chains} chains together show: a mean that is off by more than four standard errors, by
  its effective sample size.
- A dash means that a chain diverged, or that the sampler takes no minibatches.
- MILE and HMC take all data at every step; their gradients count as one each.
- PX-SGHMC has no kernel to expand here, and would be SGHMC. The learned samplers have [a page of their own](bias.md).

{answers}

## The order of the bias

On a regression with two minibatches, from exact draws: the relative bias of the variance at four step sizes, and the
slope of its logarithm vs. that of the step size. A slope of 1 means that half the step size halves the bias, one of 2
that it leaves a quarter; a dash, that no bias was seen or that its sign changes. Steps are in units of the narrowest
deviation or, without momentum, of its square.

{orders}

Made by `{command}`, JAX {jax}; the numbers are in [samplers.json](samplers.json). [Choosing a
sampler](choosing.md) says what follows.
"""


def _cell(found: dict[str, Any] | None) -> str:
    return "–" if found is None else f"{found['early']:.2f} → {found['late']:.2f}{'*' if found['biased'] else ''}"


def measure(
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("docs"),
    gradients: int = 8000,
    chains: int = 16,
    seed: int = 0,
    quiet: Quiet = False,
) -> None:
    """Measure samplers on targets with known answers, and the order of their bias.

    Writes samplers.json and samplers.md to OUT.

    Example:
        python -m benchmarks answers --out docs

    Args:
        out: The folder to write to.
        gradients: The gradients per chain.
        chains: The chains per step size; as many again choose it.
        seed: The seed of all chains.
    """
    answers, orders = [], []
    for kept, measured in ((answers, rows(seed, chains, gradients)), (orders, order.rows(seed))):
        for row in measured:
            kept.append(row)
            if not quiet:
                print(", ".join(str(row[name]) for name in ("target", "sampler", "slope") if name in row), flush=True)
    made_by = runs.provenance(seed)
    words = f" --gradients {gradients}" * (gradients != 8000) + f" --chains {chains}" * (chains != 16)
    made_by["command"] = f"python -m benchmarks answers{words}" + f" --seed {seed}" * (seed != 0)
    lengths = {"gradients": gradients, "chains": chains}
    files.write_json(out / "samplers.json", {**made_by, **lengths, "answers": answers, "orders": orders})
    (out / "samplers.md").write_text(page(files.read_json(out / "samplers.json")))


def finding(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on who errs least with and without noise, and who shows the fewest biases."""
    samplers = list(dict.fromkeys(row["sampler"] for row in answers))

    def cells(sampler: str, kinds: Iterable[str]) -> list[dict[str, Any]]:
        found = [row.get(kind) for row in answers if row["sampler"] == sampler for kind in kinds]
        return [] if None in found else found

    def ranked(kinds: Iterable[str]) -> str:
        errors = {name: np.mean([cell["late"] for cell in found]) for name in samplers if (found := cells(name, kinds))}
        return ", ".join(f"{name} ({errors[name]:.3f})" for name in sorted(errors, key=lambda name: errors[name])[:3])

    noises = [kind for kind in NOISES if kind != "none"]
    biases = {name: sum(cell["biased"] for cell in found) for name in samplers if (found := cells(name, NOISES))}
    fewest = min(biases, key=lambda name: biases[name])
    said = (
        f"The least errors on average over the targets: without noise of gradients, {ranked(['none'])}; with it, "
        f"{ranked(noises)}. Of those that took every kind of noise, {fewest} shows the fewest biases, {biases[fewest]} "
        f"in {len(cells(fewest, NOISES))} cases. Samplers whose chains diverged are not ranked."
    )
    return textwrap.fill(said, 120)


def page(results: dict[str, Any]) -> str:
    """Return the page about results."""
    shown = [{**row, **{kind: _cell(row.get(kind)) for kind in NOISES}} for row in results["answers"]]
    return TEXT.format(
        finding=finding(results["answers"]),
        answers=markdown(from_records(COLUMNS, shown)),
        orders=markdown(from_records(ORDER_COLUMNS, results["orders"])),
        early=results["gradients"] // 4,
        gradients=results["gradients"],
        num_chains=results["chains"],
        command=results["command"],
        jax=results["versions"]["jax"],
    )
