"""The command line. Commands import what they need when they run, so that help appears at once."""

import functools
import importlib
import io
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn

from roamax.errors import DivergenceError, FileError, InputError, nearest, shown
from roamax.host.interrupts import heed_interrupts


class Command(NamedTuple):
    """A command: its module in `roamax.cli`, the function there, and a line for the overview.

    With `resumes`, running the same command again resumes where it stopped.
    """

    module: str
    function: str
    summary: str
    resumes: bool = False

    def load(self) -> Callable[..., None]:
        """Import the function, whose docstring is the help text and whose parameters are the options."""
        return getattr(importlib.import_module(f"roamax.cli.{self.module}"), self.function)


# tyro's own subcommands would import every command, and tyro, before the overview could be shown.
COMMANDS = {
    "demo": Command("demo", "demo", "Compare every sampler on digits, in two minutes.", resumes=True),
    "sample": Command("sample", "sample", "Sample the posterior of a network on a data set.", resumes=True),
    "evaluate": Command("evaluate", "evaluate", "Measure a run."),
    "report": Command("report", "report", "Write one HTML page that compares runs."),
    "meta-train paper": Command("meta_train", "paper", "Learn a sampler with the paper's settings.", resumes=True),
    "meta-train small": Command("meta_train", "small", "Learn one on the small tasks of its ablation.", resumes=True),
    "meta-train meta-sgmcmc": Command("meta_train", "meta_sgmcmc", "Learn its baseline, Meta-SGMCMC.", resumes=True),
    "meta-train cpu": Command("meta_train", "cpu", "Learn a sampler on two cores, in hours.", resumes=True),
    "meta-train smoke": Command("meta_train", "smoke", "Try meta-training, in under a minute.", resumes=True),
    "experiment": Command("experiment", "experiment", "Run an experiment of the paper.", resumes=True),
    "experiment all": Command("experiment", "run_all", "Run many experiments, with the hours left.", resumes=True),
    "experiment list": Command("experiment", "list_experiments", "List the experiments, and what each needs."),
    "experiment page": Command("experiment", "page", "Write one Markdown page about experiments."),
    "data list": Command("data", "list_data", "List the data sets, and which are installed."),
    "data fetch": Command("data", "fetch", "Download and verify a data set."),
    "completion": Command("completion", "completion", "Let a shell complete commands and options."),
}
HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command.

    Args:
        arguments: The words of the command line; None for those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    resumes = False
    _open_streams()
    if arguments is None:
        heed_interrupts()
        warnings.showwarning = print_warning
        if "--quiet" in words:
            warnings.simplefilter("ignore")
    try:
        if not words or words[0] in HELP:
            print(overview(COMMANDS))
        elif words[0] == "--version":
            from roamax import __version__

            print(f"roamax {__version__}")
        elif words[0] not in COMMANDS and _family(words[0]) and words[1:2] and words[1] in HELP:
            print(overview(_family(words[0])))
        else:
            name, rest = find(words)
            resumes = COMMANDS[name].resumes
            parse(name, rest)()
        sys.stdout.flush()
    except (InputError, FileError) as error:
        fail(str(error), code=2)
    except DivergenceError as error:
        fail(str(error), code=1)
    except KeyboardInterrupt:
        _stop(f"stopped. To resume: {shlex.join(['roamax', *words])}" if resumes else "stopped.", arguments is None)
    except MemoryError as error:
        fail(f"out of memory: {error or 'make the network, the batch or the number of chains smaller'}", code=1)
    except BrokenPipeError:
        # The reader of our output is gone, as with `| head`: discard the rest.
        _discard_output()
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}.", code=2)
        _discard_output()
        fail(f"the output could not be printed: {error.strerror or error}.", code=1)


def _open_streams() -> None:
    """Let output be printed to any terminal, also one that is closed or knows ASCII only."""
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:
            # Otherwise the next file to be opened would take its place, and be printed to.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open as long as the process)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def overview(names: Iterable[str]) -> str:
    """Return the text of `roamax --help`, or with the names of a family, of `roamax FAMILY --help`."""
    width = max(map(len, names))
    commands = "\n".join(f"  {name:{width}}  {COMMANDS[name].summary}" for name in names)
    return (
        "Sample the posteriors of Bayesian neural networks with learned SGMCMC.\n\n"
        f"usage: roamax COMMAND [OPTIONS]\n\n{commands}\n\n"
        "roamax COMMAND --help shows a command's options, and an example."
    )


def find(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that the first one or two words name, and the words after it."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, list(words[count:])
    family = _family(words[0])
    if family and len(words) == 1:
        raise InputError(f"`{words[0]}` must be followed by a word; one of: {', '.join(family)}.")
    asked = " ".join(words[:2]) if family else words[0]
    raise InputError(f"`COMMAND` must be a known one; got {asked!r}: {nearest(asked, family or COMMANDS)}")


def parse(name: str, words: Sequence[str]) -> Callable[[], None]:
    """Return the call of a command that the words ask for, as a function without arguments."""
    from roamax.cli import parsing

    return parsing.parse(COMMANDS[name].load(), f"roamax {name}", words)


def _family(word: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(f"{word} ")]


def _stop(message: str, owns_process: bool) -> NoReturn:
    try:
        fail(message, code=130)
    finally:
        if owns_process:
            # Python would wait for threads that still compute, perhaps for minutes.
            sys.stdout.flush()
            os._exit(130)


def print_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a warning on standard error in one line, and only once, in place of `warnings.showwarning`."""
    _print_once(f"roamax: {category.__name__}: {shown(message, 2000)}")


@functools.cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr)


def fail(message: str, code: int) -> NoReturn:
    """Print an error in one line on standard error, and exit with the code."""
    print(f"roamax: {shown(message, 2000)}", file=sys.stderr)
    sys.exit(code)
