"""The command line. Commands import what they need when they run, so that help is there at once."""

import importlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn

from roamax.errors import DivergenceError, FileError, InputError, nearest


class Command(NamedTuple):
    """A command: the function behind it and the module of `roamax.cli` that holds it, and a line for the overview.

    `resumes` says that the same command again goes on where it was stopped.
    """

    module: str
    function: str
    summary: str
    resumes: bool = False

    def load(self) -> Callable[..., None]:
        """The function, whose docstring is the help text and whose parameters are the options."""
        return getattr(importlib.import_module(f"roamax.cli.{self.module}"), self.function)


COMMANDS = {
    "demo": Command("demo", "demo", "Compare every sampler on digits, in two minutes.", resumes=True),
    "sample": Command("sample", "sample", "Sample the posterior of a network on a data set.", resumes=True),
    "evaluate": Command("evaluate", "evaluate", "Measure everything about a run."),
    "report": Command("report", "report", "One HTML page about runs side by side."),
    "meta-train paper": Command("meta_train", "paper", "Learn a sampler with the paper's numbers.", resumes=True),
    "meta-train small": Command("meta_train", "small", "The same on the small tasks of its ablation.", resumes=True),
    "meta-train meta-sgmcmc": Command("meta_train", "meta_sgmcmc", "Learn its baseline, Meta-SGMCMC.", resumes=True),
    "meta-train cpu": Command("meta_train", "cpu", "Learn a sampler on two cores, in hours.", resumes=True),
    "meta-train smoke": Command("meta_train", "smoke", "See meta-training work, in under a minute.", resumes=True),
    "experiment": Command("experiment", "experiment", "A table or figure of the paper.", resumes=True),
    "experiment list": Command("experiment", "list_experiments", "Show the experiments, and what each needs."),
    "experiment page": Command("experiment", "page", "One Markdown page of the results of experiments."),
    "data list": Command("data", "list_data", "Show the data sets, and which of them are here."),
    "data fetch": Command("data", "fetch", "Download a data set and check it."),
    "bench": Command("bench", "bench", "Measure roamax beside the alternatives."),
    "bench page": Command("bench", "bench_page", "One Markdown page of such measurements."),
    "completion": Command("completion", "completion", "Let a shell complete commands and options."),
}
HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in `arguments`, by default those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    resumes = False
    try:
        if not words or words[0] in HELP:
            print(overview(COMMANDS))
        elif words[0] == "--version":
            from roamax import __version__

            print(f"roamax {__version__}")
        elif words[0] not in COMMANDS and family_of(words[0]) and words[1:2] and words[1] in HELP:
            print(overview(family_of(words[0])))
        else:
            name, rest = find(words)
            resumes = COMMANDS[name].resumes
            _parse(name, rest)()
    except (InputError, FileError) as error:
        _fail(str(error), code=2)
    except DivergenceError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        _stop(f"stopped. To go on: {shlex.join(['roamax', *words])}" if resumes else "stopped.", arguments is None)
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`: nothing more to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def overview(names: Iterable[str]) -> str:
    """What `roamax --help` prints, or with the names of a family, `roamax FAMILY --help`."""
    width = max(map(len, names))
    commands = "\n".join(f"  {name:{width}}  {COMMANDS[name].summary}" for name in names)
    return (
        "Sample the posteriors of Bayesian neural networks with learned SGMCMC.\n\n"
        f"usage: roamax COMMAND [OPTIONS]\n\n{commands}\n\n"
        "roamax COMMAND --help shows a command's options, and an example."
    )


def family_of(word: str) -> list[str]:
    """The commands whose first word it is, where they have two."""
    return [name for name in COMMANDS if name.startswith(f"{word} ")]


def find(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that the first one or two words name, and the words after it."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, list(words[count:])
    family = family_of(words[0])
    if len(words) > 1 and family:
        raise InputError(f"`COMMAND` must be a known one; got '{words[0]} {words[1]}': "
                         + nearest(" ".join(words[:2]), family))  # fmt: skip
    if family:
        raise InputError(f"`{words[0]}` must be followed by a word; one of: {', '.join(family)}.")
    raise InputError(f"`COMMAND` must be a known one; got {words[0]!r}: {nearest(words[0], COMMANDS)}")


def _parse(name: str, words: Sequence[str]) -> Callable[[], None]:
    from roamax.cli.parsing import parse

    return parse(COMMANDS[name].load(), f"roamax {name}", words)


def _stop(message: str, owns_process: bool) -> NoReturn:
    try:
        _fail(message, code=130)
    finally:
        if owns_process:
            # What a thread still computes nobody wants, and Python would wait for it, for minutes perhaps.
            sys.stdout.flush()
            os._exit(130)


def _fail(message: str, code: int) -> NoReturn:
    print(f"roamax: {message}", file=sys.stderr)
    sys.exit(code)
