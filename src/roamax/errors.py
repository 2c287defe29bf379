"""What goes wrong, in one line: the argument, the rule, the value, and what to do."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


class InputError(ValueError):
    """An argument breaks a rule. Nothing was changed or written."""


class FileError(RuntimeError):
    """A file is missing, damaged or in use; the message names it."""


class DivergenceError(RuntimeError):
    """A chain left the finite numbers. `draws` holds what had been collected by then."""

    def __init__(self, message: str, draws: Any = None):
        super().__init__(message)
        self.draws = draws


def check(condition: bool, argument: str, rule: str, value: Any) -> None:
    """Raise an `InputError` that names the argument, the rule and the value unless `condition` holds."""
    if not condition:
        raise InputError(f"`{argument}` must {rule}; got {value}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."


def lookup(table: Mapping[str, Value], name: str, argument: str) -> Value:
    """The entry `name` of `table`, or an `InputError` that suggests the nearest name."""
    if name not in table:
        raise InputError(f"`{argument}` must be a known name; got {name!r}: {nearest(name, table)}")
    return table[name]
