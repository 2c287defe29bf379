"""Errors whose one-line message gives the argument, the rule, the value, and what to do."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


class InputError(ValueError):
    """An invalid argument. Nothing was changed or written."""


class FileError(RuntimeError):
    """A missing, damaged or locked file, named in the message."""


class DivergenceError(RuntimeError):
    """A chain whose energy is no longer finite. `draws` holds the draws collected until then."""

    def __init__(self, message: str, draws: Any = None):
        super().__init__(message)
        self.draws = draws


def check(condition: bool, argument: str, rule: str, value: Any) -> None:
    """Raise an `InputError` naming the argument, the rule and the value, unless `condition` holds."""
    if not condition:
        raise InputError(f"`{argument}` must {rule}; got {value}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the nearest known name, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."


def lookup(table: Mapping[str, Value], name: str, argument: str) -> Value:
    """Return the entry `name` of `table`, or raise an `InputError` that suggests the nearest name."""
    if name not in table:
        raise InputError(f"`{argument}` must be a known name; got {name!r}: {nearest(name, table)}")
    return table[name]
