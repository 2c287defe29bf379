"""The command line. Commands import what they need when they run, so that help is there at once."""

import contextlib
import functools
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from roamax.errors import DivergenceError, FileError, InputError, nearest

COMMANDS = {
    "demo": ("demo", "demo", "Compare every sampler with a deep ensemble on digits, in two minutes."),
    "sample": ("sample", "sample", "Sample the posterior of a network on a data set."),
    "evaluate": ("evaluate", "evaluate", "Measure everything about a run."),
    "report": ("report", "report", "One HTML page about runs side by side."),
    "meta-train paper": ("meta_train", "paper", "Learn a sampler with the paper's numbers."),
    "meta-train small": ("meta_train", "small", "The same on the small tasks of its ablation."),
    "meta-train cpu": ("meta_train", "cpu", "Learn a sampler on two cores, in hours."),
    "meta-train smoke": ("meta_train", "smoke", "See meta-training work, in under a minute."),
    "data list": ("data", "list_data", "Show the data sets, and which of them are here."),
    "data fetch": ("data", "fetch", "Download a data set and check it."),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in `arguments`, by default those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words or words[0] in ("-h", "--help"):
            print(overview())
        elif words[0] == "--version":
            from roamax import __version__

            print(f"roamax {__version__}")
        else:
            name, rest = _find(words)
            module, function, _ = COMMANDS[name]
            _call(getattr(importlib.import_module(f"roamax.cli.{module}"), function), f"roamax {name}", rest)
    except (InputError, FileError) as error:
        _fail(str(error), code=2)
    except DivergenceError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        _fail("interrupted. The same command with the same --out goes on from its last checkpoint.", code=130)
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`: nothing more to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def overview() -> str:
    """What `roamax --help` prints."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {summary}" for name, (_, _, summary) in COMMANDS.items())
    return (
        "Sample the posteriors of Bayesian neural networks with learned SGMCMC.\n\n"
        f"usage: roamax COMMAND [--out DIR] [--seed N] ...\n\n{commands}\n\n"
        "roamax COMMAND --help shows a command's options, and an example."
    )


def _find(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that the first one or two words name, and the words after it."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, list(words[count:])
    family = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    if family:
        raise InputError(f"`{words[0]}` must be followed by a word; one of: {', '.join(family)}.")
    raise InputError(f"`COMMAND` must be a known one; got {words[0]!r}: {nearest(words[0], COMMANDS)}")


def _call(function: Callable[..., None], prog: str, words: Sequence[str]) -> None:
    """Parse the words as the function's arguments, then call it."""
    import tyro

    # Parsing is kept apart from running, so that what the parser has to say can be put in one line.
    @functools.wraps(function)
    def arguments(*positional: Any, **named: Any) -> tuple[tuple, dict[str, Any]]:
        return positional, named

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            positional, named = tyro.cli(arguments, prog=prog, args=words)
    except SystemExit as end:
        if end.code:
            _fail(f"{_first_sentence(complaint.getvalue())}; see {prog} --help.", code=2)
        raise
    function(*positional, **named)


def _first_sentence(box: str) -> str:
    """What a box of text says between its title and its first rule, on one line. Not every terminal gets a border."""
    lines = [line.strip("│|+ \t") for line in box.splitlines()[1:]]
    is_rule = [re.match(r"[─-]{5}", line) is not None for line in lines]
    start = 1 if is_rule[:1] == [True] else 0
    end = is_rule.index(True, start) if True in is_rule[start:] else len(lines)
    return " ".join(lines[start:end]).strip().rstrip(".")


def _fail(message: str, code: int) -> NoReturn:
    print(f"roamax: {message}", file=sys.stderr)
    sys.exit(code)
