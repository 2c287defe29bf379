"""What functions compute, as checksums: a posterior or a schedule is part of a run's identity though it has no text."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from roamax.host import files
from roamax.numerics.programs import inner_programs
from roamax.runs.provenance import fingerprint
from roamax.schedules import Described
from roamax.types import Batch, Params, Sampler

_NOISE = re.compile(r"\b(name|jvp|fwd|bwd)=\S+|0x[0-9a-f]+")
"""The parts of a program's text that are not about what it computes: names of functions, and addresses."""


def programs(sampler: Sampler, position: Params, batch: Batch) -> dict[str, str]:
    """Return checksums of the functions behind a sampler by the names of its arguments, and what they hold for.

    Args:
        sampler: The sampler; without a `posterior`, only its schedules are known.
        position: The shapes and dtypes of a position.
        batch: Those of a batch.

    Returns:
        One checksum per function, and `traced_by`: the same function has another one with other versions of JAX or
        roamax, and on another kind of device.
    """
    step = jax.ShapeDtypeStruct((), jnp.int32)
    found = {}
    for name, value in sampler.settings.items():
        # An optimizer that only takes parameters of a certain structure is known by its name alone.
        with suppress(TypeError, ValueError, AttributeError, KeyError):
            if isinstance(value, Described):
                found[f"sampler.{name}"] = checksum(value.function, step)
    if sampler.posterior is not None:
        # A likelihood that returns the wrong shape is refused here, before it has a folder.
        jax.eval_shape(sampler.posterior.energy, position, batch)
        found["posterior.log_prior"] = checksum(sampler.posterior.log_prior, position)
        found["posterior.log_likelihood"] = checksum(sampler.posterior.log_likelihood, position, batch)
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "roamax"))
    return {**found, "traced_by": f"{versions}, {jax.default_backend()}"}


def checksum(function: Callable[..., Any], *like: Any) -> str:
    """Return a checksum of what a traceable function computes, from its program and the constants in it."""
    traced = jax.make_jaxpr(function)(*like)
    constants = fingerprint([_plain(constant) for constant in _constants(traced)])
    return files.checksum(f"{_NOISE.sub('', str(traced.jaxpr))}{constants}".encode())[:16]


def _constants(traced: ClosedJaxpr) -> Iterator[Any]:
    """Yield the constants of a program and of all programs in it."""
    yield from traced.consts
    for equation in traced.jaxpr.eqns:
        for inner in inner_programs(equation):
            yield from _constants(inner)


def _plain(constant: Any) -> Any:
    is_key = jnp.issubdtype(jnp.result_type(constant), jax.dtypes.prng_key)
    return jax.random.key_data(constant) if is_key else constant
