"""Parameter-expanded SGHMC (Kim et al., 2025): each kernel is a product, whose factors are sampled."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roamax.errors import check, finite, whole
from roamax.numerics import trees
from roamax.posterior import Posterior
from roamax.schedules import as_schedule, describe
from roamax.types import Batch, Info, Key, Params, Sampler, Scalar


class Factors(NamedTuple):
    """The parameters V, and for the kernels among them, by name, the matrices on their left and right."""

    params: Params
    left: dict[str, jax.Array]
    right: dict[str, jax.Array]


class PXSGHMCState(NamedTuple):
    """The position, which is the product of the factors; the factors, their momenta, and the number of steps taken."""

    position: Params
    factors: Factors
    momentum: Factors
    step: jax.Array


def px_sghmc(
    posterior: Posterior,
    *,
    step_size: Scalar,
    friction: Scalar,
    temperature: Scalar = 1.0,
    kernels: Sequence[str] | None = None,
    matrix_friction: float = 1.0,
    matrix_precision: float | None = None,
    largest: int = 1024,
) -> Sampler:
    """Return PX-SGHMC: SGHMC on the factors of every kernel, W = P V Q, with square P and Q that start at the identity.

        U(V, P, Q) = -(N / |B|) sum log p(y | x, P V Q) - log p(V) + lambda / 2 (|P|^2 + |Q|^2)
        r         <- r - epsilon grad U - epsilon C r + N(0, 2 C epsilon T)
        (V, P, Q) <- (V, P, Q) + epsilon r

    P multiplies the axis before the last of a kernel, Q the last: inputs and outputs of dense and convolution layers.
    A step of the factors is a longer step of W along directions that its past gradients share, so that draws differ
    more. Draws are the products W, in the shape of the parameters. Other parameters move as in `sghmc`.

    It does not keep the posterior under the given prior, which here applies to V: W has the prior of a product, with
    heavier tails. At a short step it keeps the posterior under that one.

    Args:
        posterior: The posterior to sample.
        step_size: epsilon.
        friction: C for V and parameters that are not kernels.
        temperature: T; 1 samples the expanded posterior.
        kernels: Parts of the names of arrays to expand, such as "Dense" or "conv1/kernel"; None expands every array of
            two or more axes.
        matrix_friction: C for P and Q, as a multiple of `friction`. The paper has .01, which on networks that do not
            normalise lets the noise of minibatches heat P and Q until they diverge.
        matrix_precision: lambda, the precision of the prior of P and Q; None is the number of rows of each, with which
            W has the variances that the given prior gives V. The paper has 2, with networks that normalise.
        largest: The longest axis that gets a matrix: that of an embedding's words should not.

    Returns:
        The sampler.
    """
    epsilon_at = as_schedule(step_size, "step_size")
    friction_at = as_schedule(friction, "friction")
    temperature_at = as_schedule(temperature, "temperature", positive=False)
    matrix_friction = finite(matrix_friction, "matrix_friction", above=0)
    matrix_precision = None if matrix_precision is None else finite(matrix_precision, "matrix_precision", least=0)
    texts = kernels is None or (isinstance(kernels, list | tuple) and all(isinstance(part, str) for part in kernels))
    check(texts, "kernels", "be a list of parts of names", kernels)
    largest = whole(largest, "largest")

    def axis_matrices(position: Params, axis: int) -> dict[str, jax.Array]:
        found = {name: leaf for name, leaf in trees.named_leaves(position).items() if leaf.ndim >= 2 and leaf.size}
        chosen = {name for name in found if kernels is None or any(part in name for part in kernels)}
        check(kernels is None or bool(chosen), "kernels", f"be in the names of kernels, {', '.join(found)}", kernels)
        sizes = {name: found[name].shape[axis] for name in found if name in chosen}
        return {name: jnp.eye(n, dtype=found[name].dtype) for name, n in sizes.items() if n <= largest}

    def init(key: Key, position: Params) -> PXSGHMCState:
        start = jnp.zeros((), jnp.int32)
        factors = Factors(position, axis_matrices(position, -2), axis_matrices(position, -1))
        return PXSGHMCState(position, factors, trees.stationary_momentum(key, factors, temperature_at(start)), start)

    def expanded_energy(factors: Factors, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the energy of factors, and that of their product under the given prior."""
        position = product(factors)
        energy = posterior.energy(position, batch)
        matrices = [*factors.left.values(), *factors.right.values()]
        precisions = [len(matrix) if matrix_precision is None else matrix_precision for matrix in matrices]
        tied = sum(0.5 * precision * jnp.sum(matrix**2) for precision, matrix in zip(precisions, matrices, strict=True))
        moved = posterior.log_prior(position) - posterior.log_prior(factors.params)
        return energy + moved + jnp.asarray(tied, energy.dtype), energy

    def step(key: Key, state: PXSGHMCState, batch: Batch) -> tuple[PXSGHMCState, Info]:
        (_, energy), gradient = jax.value_and_grad(expanded_energy, has_aux=True)(state.factors, batch)
        epsilon, friction, temperature = (at(state.step) for at in (epsilon_at, friction_at, temperature_at))
        noise = trees.normal_like(key, state.factors)

        def kicked(friction: jax.Array, *parts: Any) -> Any:
            scale = jnp.sqrt(2 * friction * epsilon * temperature)
            return trees.linear(*zip((1 - epsilon * friction, -epsilon, scale), parts, strict=True))

        frictions = friction, matrix_friction * friction, matrix_friction * friction
        momentum = Factors(*map(kicked, frictions, state.momentum, gradient, noise))
        factors = trees.linear((1.0, state.factors), (epsilon, momentum))
        return PXSGHMCState(product(factors), factors, momentum, state.step + 1), Info(energy)

    settings = {
        "name": "px_sghmc",
        "step_size": describe(step_size),
        "friction": describe(friction),
        "temperature": describe(temperature),
        "kernels": None if kernels is None else list(kernels),
        "matrix_friction": matrix_friction,
        "matrix_precision": matrix_precision,
        "largest": largest,
    }
    return Sampler(init, step, settings=settings, posterior=posterior)


def product(factors: Factors) -> Params:
    """Return the parameters that the factors stand for."""

    def one(name: str, leaf: jax.Array) -> jax.Array:
        if name in factors.right:
            leaf = jnp.einsum("...io,oj->...ij", leaf, factors.right[name])
        if name in factors.left:
            leaf = jnp.einsum("ij,...jo->...io", factors.left[name], leaf)
        return leaf

    leaves = [one(name, leaf) for name, leaf in trees.named_leaves(factors.params).items()]
    return jax.tree.unflatten(jax.tree.structure(factors.params), leaves)
