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


class NumDataWarning(UserWarning):
    """A posterior whose `num_data` is not the number of rows that it is given; silence it if that is meant."""


def check(condition: bool, argument: str, rule: str, value: Any) -> None:
    """Raise an `InputError` unless `condition` holds: "`argument` must RULE; got VALUE."

    Args:
        condition: What must hold.
        argument: The name of the argument.
        rule: The rule, as it continues "must".
        value: The value that was given.
    """
    if not condition:
        raise InputError(f"`{argument}` must {rule}; got {value}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name.

    Args:
        name: The unknown name.
        known: The known names.

    Returns:
        A question with the nearest known name, or a list of all.
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."


def lookup(table: Mapping[str, Value], name: str, argument: str) -> Value:
    """Return an entry of a table, or raise an `InputError` that suggests the nearest name.

    Args:
        table: Values by name.
        name: The name to look up.
        argument: The name of the argument, for the error.

    Returns:
        The value.
    """
    if name not in table:
        raise InputError(f"`{argument}` must be a known name; got {name!r}: {nearest(name, table)}")
    return table[name]
