"""Errors whose one-line message gives the argument, the rule, the value, and what to do.

All input is checked by the functions here: arguments of the command line and of Python by `check`, `whole`, `finite`,
`flag`, `as_seed`, `named_file` and `lookup`, JSON files by `shaped`.
"""

import difflib
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, TypeVar, cast

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


class CardWarning(UserWarning):
    """A problem far from those that the weights of a learned sampler were trained on; silence it if that is meant."""


def check(condition: bool, argument: str, rule: str, value: Any) -> None:
    """Raise an `InputError` unless `condition` holds: "`argument` must RULE; got VALUE."

    Args:
        condition: What must hold.
        argument: The name of the argument.
        rule: The rule, as it continues "must".
        value: The value that was given.
    """
    if not condition:
        raise InputError(f"`{argument}` must {rule}; got {shown(value)}.")


def shown(value: Any, most: int = 200) -> str:
    """Return a value as text on one line, of at most so many characters, all of which can be printed."""
    try:
        text = str(value)[: most + 1]
    except ValueError:  # Python refuses to print numbers of more than 4300 digits.
        text = f"a {type(value).__name__} that cannot be printed"
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def whole(value: Any, argument: str, least: int = 1, most: int | None = None) -> int:
    """Return a whole number of any type, such as `np.int64`, as an int, or raise an `InputError`.

    Args:
        value: The number; a float or a bool is refused, even if it equals a whole number.
        argument: The name of the argument.
        least: The smallest value allowed.
        most: The largest value allowed, if there is one.

    Returns:
        The number.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = None
    good = number is not None and least <= number and (most is None or number <= most)
    bounds = f">= {least}" if most is None else f"in [{least}, {most}]"
    check(good, argument, f"be a whole number {bounds}", _given(value))
    return cast(int, number)


def finite(
    value: Any,
    argument: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    otherwise: str = "",
) -> float:
    """Return a finite number of any type, such as `np.float32`, as a float, or raise an `InputError`.

    A number that JAX traces is returned as it is: it is not known yet.

    Args:
        value: The number; text and bools are refused.
        argument: The name of the argument.
        above: A bound that the number must exceed.
        least: The smallest value allowed.
        below: A bound that the number must stay below.
        most: The largest value allowed.
        otherwise: What else the argument may be, for the error.

    Returns:
        The number.
    """
    if is_traced(value):
        return value
    try:
        found = math.nan if isinstance(value, str | bytes | bool) else float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    low, high = max(above, least), min(below, most)
    if math.isfinite(low) and math.isfinite(high):
        rule = f" in {'(' if above == low else '['}{low:g}, {high:g}{')' if below == high else ']'}"
    else:
        bounds = {">": above, ">=": least, "<": below, "<=": most}
        rule = "".join(f" {sign} {bound:g}" for sign, bound in bounds.items() if math.isfinite(bound))
    good = math.isfinite(found) and above < found < below and least <= found <= most
    check(good, argument, f"be a finite number{rule}{otherwise}", _given(value))
    return found


def is_traced(value: Any) -> bool:
    """Return whether a value is an argument of a program that JAX is tracing."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


def _given(value: Any) -> Any:
    return repr(value) if isinstance(value, str) else value


def flag(value: Any, argument: str) -> bool:
    """Return a truth value, or raise an `InputError` for anything else, such as a number or text."""
    check(type(value).__name__ in ("bool", "bool_"), argument, "be true or false", _given(value))
    return bool(value)


def as_seed(value: Any, argument: str = "seed") -> int:
    """Return a seed as an int; JAX would take larger or negative ones for others, by their last 32 bits."""
    return whole(value, argument, 0, 2**32 - 1)


def named_file(path: Path, argument: str) -> Path:
    """Return the path of a file to write, or raise an `InputError` if it is that of a folder."""
    check(path.name not in ("", "..") and not path.is_dir(), argument, "name a file", repr(str(path)))
    return path


def shaped(value: Any, shape: Any, source: Any, remedy: str = "") -> Any:
    """Return a value from a JSON file if it has a shape, or raise a `FileError` that names the file and the place.

    Args:
        value: The value.
        shape: `int` (a whole number >= 0), `float` (a finite number), `str`, `bool`, `None`, `dict` or `list` (any), or
            made of shapes: a tuple of alternatives, a list of the shape of its entries, or a dictionary of the shapes
            of its fields. A field whose name ends in "?" may be missing; "*" stands for all fields that are not named.
        source: The file, for the error.
        remedy: What to do, for the error.

    Returns:
        The value.
    """
    for place, rule, found in _misfits(value, shape, ()):
        where = f"`{shown('.'.join(place), 80)}` in it" if place else "it"
        got = "nothing" if found is ... else shown(repr(found), 40)
        raise FileError(f"{source} is damaged or of another kind: {where} must be {rule}; got {got}. {remedy}".strip())
    return value


_Place = tuple[str, ...]
_RULES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", lambda value: type(value) is int and 0 <= value < 2**63),
    float: ("a finite number", lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max),
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    dict: ("an object", lambda value: isinstance(value, dict)),
    list: ("a list", lambda value: isinstance(value, list)),
    None: ("null", lambda value: value is None),
}


def _misfits(value: Any, shape: Any, place: _Place) -> Iterator[tuple[_Place, str, Any]]:
    """Yield the place, the rule and the value of everything in `value` that is not as in `shape`."""
    if isinstance(shape, tuple):
        tried = [next(_misfits(value, one, place), None) for one in shape]
        failed = [misfit for misfit in tried if misfit is not None]
        if len(failed) == len(tried):
            # An alternative that fits until deep inside is the one that was meant.
            deepest = max(failed, key=lambda misfit: len(misfit[0]))
            yield deepest if deepest[0] != place else (place, " or ".join(rule for _, rule, _ in failed), value)
    elif isinstance(shape, dict) and isinstance(value, dict):
        for name, inner in shape.items():
            fields = value.keys() - {known.rstrip("?") for known in shape} if name == "*" else {name.rstrip("?")}
            for field in fields:
                if field in value or not name.endswith("?"):
                    yield from _misfits(value.get(field, ...), inner, (*place, field))
    elif isinstance(shape, list) and isinstance(value, list):
        for position, entry in enumerate(value):
            yield from _misfits(entry, shape[0], (*place, str(position)))
    else:
        rule, fits = _RULES[type(shape) if isinstance(shape, dict | list) else shape]
        if not fits(value):
            yield place, rule, value


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
    if not isinstance(name, str) or name not in table:
        raise InputError(f"`{argument}` must be a known name; got {shown(repr(name))}: {nearest(str(name), table)}")
    return table[name]
