"""Traced programs, read without being run."""

from collections.abc import Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr


def inner_programs(equation: Any) -> Iterator[ClosedJaxpr]:
    """Yield the programs in an equation of a program, such as the body of a loop."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Jaxpr):
                yield ClosedJaxpr(part, ())
            elif isinstance(part, ClosedJaxpr):
                yield part
