"""`roamax completion SHELL`: tyro's script, with names from registries, and files where they are expected."""

import contextlib
import inspect
import io
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union

import tyro

from roamax.cli import COMMANDS
from roamax.cli.arguments import Names
from roamax.errors import lookup

Tree = dict[str, "Tree | Callable[..., None]"]

# tyro completes no files for positional arguments, and in bash no slash after folders: left to the shell.
FILES = {
    "bash": """
_roamax() {
  _tyro_roamax
  [[ -n "${COMPREPLY[*]}" && ! ("${COMP_WORDS[COMP_CWORD-1]}" == -* && -e "${COMPREPLY[0]}") ]] || COMPREPLY=()
}
complete -o default -F _roamax roamax
""",
    "zsh": "(( compstate[nmatches] )) || _files\n",
    "fish": "complete -c roamax -F -n '__fish_seen_subcommand_from evaluate report page'\n",
}


Shell = Annotated[str, tyro.conf.arg(metavar="SHELL"), Names(lambda: FILES)]


def completion(shell: tyro.conf.Positional[Shell]) -> None:
    """Print a script with which a shell completes commands, options and names.

    Write it to a file that the shell reads, and start a new shell. Completion
    runs Python, but does not import roamax.

    Examples:
        roamax completion bash > ~/.local/share/bash-completion/completions/roamax
        roamax completion zsh > ~/.zfunc/_roamax    # with fpath+=~/.zfunc in .zshrc
        roamax completion fish > ~/.config/fish/completions/roamax.fish

    Args:
        shell: bash, zsh or fish.
    """
    files = lookup(FILES, shell, "shell")
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        words = ["--tyro-write-completion", shell, "-"]
        tyro.cli(_union(_tree()), prog="roamax", args=words, config=(tyro.conf.FlagCreatePairsOff,))
    # tyro mistakes each line of an option's help for a completion.
    flat = re.sub("^COMPLETION_SPEC.*", lambda known: re.sub(r"\\+n *", " ", known[0]), script.getvalue(), flags=re.M)
    print(flat + files, end="")


def _tree() -> Tree:
    """Return the commands by their words, then by the names that they take, since tyro completes subcommands only."""
    tree: Tree = {}
    for name, command in COMMANDS.items():
        *family, last = name.split()
        branch: Any = tree
        for word in family:
            branch = branch.setdefault(word, {})
        function, names = _with_choices(command.load())
        if names:
            branch.setdefault(last, {}).update(dict.fromkeys(names, function))
        else:
            branch[last] = function
    return tree


def _with_choices(function: Callable[..., None]) -> tuple[Callable[..., None], tuple[str, ...]]:
    """Return a command with the names that its options take as choices, and the names that it takes by position."""

    def stub(**named: Any) -> None:
        pass

    hints = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.copy()
    by_position: tuple[str, ...] = ()
    for name in list(parameters):
        extras = getattr(hints[name], "__metadata__", ())
        names = next((tuple(extra.known()) for extra in extras if isinstance(extra, Names)), ())
        if names and tyro.conf.Positional in extras:
            by_position = names
            del parameters[name]
        elif names:
            takes_many = typing.get_origin(hints[name].__origin__) is tuple
            hints[name] = tuple[Literal[names], ...] if takes_many else Literal[names]
    vars(stub)["__signature__"] = inspect.Signature(list(parameters.values()))
    stub.__annotations__ = {name: hints[name] for name in parameters}
    return stub, by_position


def _union(tree: Tree) -> Any:
    def branch(word: str, entry: Any) -> Any:
        kind = _union(entry) if isinstance(entry, dict) else entry
        return Annotated[Any, tyro.conf.subcommand(word, constructor_factory=lambda: kind, description="")]

    return Union[tuple(branch(word, entry) for word, entry in tree.items())]  # noqa: UP007 (from a tuple)
