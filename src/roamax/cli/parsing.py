"""Words of a command line as a function's arguments, by tyro; its complaints in one line, its help in 80 columns."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import io
import re
import shutil
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roamax.errors import InputError

MOST_COLUMNS = 100


def parse(function: Callable[..., None], prog: str, words: Sequence[str]) -> Callable[[], None]:
    """The call of `function` that the words ask for, ready to be made.

    What is wrong with them is an `InputError`; where they ask for help, it is printed and the process ends.
    """
    import tyro

    _check_options(function, prog, words)

    # Parsing is kept apart from running, so that what the parser has to say can be put in one line.
    @functools.wraps(function)
    def arguments(*positional: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(function, *positional, **named)

    said, complaint = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
            return tyro.cli(
                arguments,
                prog=prog,
                description=description(function),
                args=words,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if end.code:
            message = f"{_first_sentence(complaint.getvalue())}; see {prog} --help."
            raise InputError(message[:1].upper() + message[1:]) from None
        print(_wrapped(said.getvalue()), end="")
        raise


def description(function: Callable[..., None]) -> str:
    """A command's docstring without the part on its arguments; a line a paragraph, but examples as they are."""
    text = inspect.getdoc(function) or ""
    paragraphs = text.partition("\nArgs:\n")[0].strip().split("\n\n")
    return "\n\n".join(part if part.startswith("Example") else " ".join(part.split()) for part in paragraphs)


def options(function: Callable[..., None]) -> dict[str, tuple[str, ...]]:
    """The options of a command, each with the choices that its type leaves."""
    hints = typing.get_type_hints(function, include_extras=True)
    found: dict[str, tuple[str, ...]] = {"--help": ()}
    for name, parameter in inspect.signature(function).parameters.items():
        if not is_positional(hints[name]):
            prefix = "" if dataclasses.is_dataclass(parameter.default) else name
            found |= _options(prefix, hints[name], parameter.default)
    return found


def flags(function: Callable[..., None]) -> set[str]:
    """Those of a command's options that take no value."""
    parameters = inspect.signature(function).parameters
    return {"--help", *(_option(name) for name, entry in parameters.items() if entry.default is False)}


def is_positional(hint: Any) -> bool:
    """Whether an argument of this type goes without a name."""
    import tyro

    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def _options(name: str, hint: Any, default: Any) -> dict[str, tuple[str, ...]]:
    if dataclasses.is_dataclass(default):
        hints = typing.get_type_hints(type(default))
        parts: Mapping[str, Any] = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    elif isinstance(default, tuple) and default:
        parts = {str(number): part for number, part in enumerate(default)}
        hints = dict.fromkeys(parts)
    else:
        is_choice = typing.get_origin(hint) is typing.Literal
        return {_option(name): tuple(map(str, typing.get_args(hint))) if is_choice else ()}
    found = {}
    for part, value in parts.items():
        found |= _options(f"{name}.{part}" if name else part, hints[part], value)
    return found


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_options(function: Callable[..., None], prog: str, words: Sequence[str]) -> None:
    known = options(function)
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in known:
            close = difflib.get_close_matches(name[2:], [option[2:] for option in known], n=1)
            hint = f"did you mean '--{close[0]}'?" if close else f"see {prog} --help."
            raise InputError(f"`{name}` must be an option of {prog}: {hint}")


def _first_sentence(box: str) -> str:
    """What a box of text says between its title and its first rule, on one line. Not every terminal gets a border."""
    lines = [line.strip("│|+ \t") for line in box.splitlines()[1:]]
    is_rule = [re.match(r"[─-]{5}", line) is not None for line in lines]
    start = 1 if is_rule[:1] == [True] else 0
    end = is_rule.index(True, start) if True in is_rule[start:] else len(lines)
    return " ".join(lines[start:end]).strip().rstrip(".")


def _wrapped(help_text: str) -> str:
    """Help whose prose fits the terminal too; the parser wraps only what it puts in boxes."""
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    lines = []
    for line in help_text.splitlines():
        is_prose = line[:1].isalpha()
        later = "       " if line.startswith("usage:") else ""
        lines += textwrap.wrap(line, width, subsequent_indent=later, break_on_hyphens=False) if is_prose else [line]
    return "\n".join(line.rstrip() for line in lines) + "\n"
