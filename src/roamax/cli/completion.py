"""`roamax completion SHELL`: one static script, made from the table of commands, so that a tab costs nothing."""

import typing
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import tyro

from roamax.cli import COMMANDS
from roamax.cli.parsing import flags, is_positional, options
from roamax.errors import lookup


def completion(shell: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SHELL")]) -> None:
    """Print what makes a shell complete the commands of roamax, their options and choices.

    Write it to a file that the shell reads; the change is there in the next shell.

    Examples:
        roamax completion bash > ~/.local/share/bash-completion/completions/roamax
        roamax completion zsh > ~/.zfunc/_roamax    # with fpath+=~/.zfunc in .zshrc
        roamax completion fish > ~/.config/fish/completions/roamax.fish

    Args:
        shell: bash, zsh or fish.
    """
    write = lookup({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}, shell, "shell")
    print(write(table()), end="")


class Completions(NamedTuple):
    """What may follow a command: options, each with its choices, None where it takes no value; words without a name.

    Where there are no choices, or `words` is None, any file may stand.
    """

    summary: str
    options: Mapping[str, tuple[str, ...] | None]
    words: tuple[str, ...] | None


def table() -> dict[str, Completions]:
    """The completions of every command."""
    names = _names()
    found = {}
    for name, command in COMMANDS.items():
        function = command.load()
        without_value = flags(function)
        choices = {
            option: None if option in without_value else from_type or names.get(option, ())
            for option, from_type in options(function).items()
        }
        found[name] = Completions(command.summary, choices, names.get(name) if _takes_words(function) else ())
    return found


def _names() -> dict[str, tuple[str, ...]]:
    """Names that an option, or a command itself, takes though its type, text, does not tell them."""
    from benchmarks.suite import ENTRIES

    from roamax import data, models
    from roamax.cli.output import FORMATS
    from roamax.paper.framework.registry import EXPERIMENTS
    from roamax.samplers.registry import NAMES

    data_sets = tuple(data.names())
    return {
        "--data": data_sets,
        "--ood": data_sets,
        "--model": tuple(models.names()),
        "--sampler": NAMES,
        "--format": tuple(FORMATS),
        "--engine": ("local", "ray"),
        "--only": tuple(ENTRIES),
        "data fetch": data_sets,
        "experiment": tuple(EXPERIMENTS),
        "completion": ("bash", "fish", "zsh"),
    }


def _takes_words(function: Any) -> bool:
    return any(map(is_positional, typing.get_type_hints(function, include_extras=True).values()))


def bash_script(commands: Mapping[str, Completions]) -> str:
    """A function for bash's `complete`."""
    families = _families(commands)
    second_words = (
        f'{family}) {_call(family) + "; " if family in commands else ""}known="$known {" ".join(words)} --help" ;;'
        for family, words in families.items()
    )
    # Of a command and those that begin with it, `experiment` and `experiment list`, the longer come first.
    longest_first = sorted(commands, key=lambda name: -len(name.split()))
    patterns = {name: f'"{name}"' if " " in name else f'"{name} "*' for name in longest_first}
    return f"""\
# Completion of roamax for bash. Made by `roamax completion bash`.
_roamax() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" known=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        known="{" ".join(_first_words(commands))} --help --version"
    elif [ "$COMP_CWORD" -eq 2 ] && [[ " {" ".join(families)} " == *" $before "* ]]; then
        case "$before" in
{_lines(12, second_words)}
        esac
    else
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{_lines(12, (f"{pattern}) {_call(name)} ;;" for name, pattern in patterns.items()))}
        esac
    fi
    COMPREPLY=($(compgen -W "$known" -- "$word"))
}}
{"".join(_bash_function(name, entry) for name, entry in commands.items())}\
complete -o default -F _roamax roamax
"""


def _bash_function(name: str, entry: Completions) -> str:
    """What sets `known` for one command, given the word at hand and the one before it."""
    choices = [f'{option}) known="{" ".join(known)}" ;;' for option, known in entry.options.items() if known]
    free = "|".join(option for option, known in entry.options.items() if known == ())
    other = f'known="{" ".join((*(entry.words or ()), *entry.options))}"'
    if entry.words is None:
        other = f'case "$word" in -*) {other} ;; esac'
    lines = [*choices, *([f"{free}) ;;"] if free else []), f"*) {other} ;;"]
    return f'{_call(name)}() {{\n    case "$before" in\n{_lines(8, lines)}\n    esac\n}}\n'


def zsh_script(commands: Mapping[str, Completions]) -> str:
    """The script of bash, which zsh can read, as a file of its `fpath`."""
    body = bash_script(commands).split("\n", 1)[1]
    return (
        "#compdef roamax\n# Completion of roamax for zsh. Made by `roamax completion zsh`.\n"
        f"autoload -Uz bashcompinit && bashcompinit\n{body}_bash_complete -o default -F _roamax\n"
    )


def fish_script(commands: Mapping[str, Completions]) -> str:
    """One `complete` for each command, option and choice."""
    families = _families(commands)
    lines = ["# Completion of roamax for fish. Made by `roamax completion fish`.", "complete -c roamax -f"]
    lines += [
        f"complete -c roamax -n __fish_use_subcommand -a {word} -d {_quoted(_summary(commands, word))}"
        for word in _first_words(commands)
    ]
    for family, words in families.items():
        seen = f"__fish_seen_subcommand_from {family}; and not __fish_seen_subcommand_from {' '.join(words)}"
        lines += [
            f"complete -c roamax -n {_quoted(seen)} -a {word} -d {_quoted(commands[f'{family} {word}'].summary)}"
            for word in words
        ]
    for name, entry in commands.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        if name in families:
            seen += f"; and not __fish_seen_subcommand_from {' '.join(families[name])}"
        start = f"complete -c roamax -n {_quoted(seen)}"
        if entry.words is None:
            lines.append(f"{start} -F")
        elif entry.words:
            lines.append(f"{start} -a {_quoted(' '.join(entry.words))}")
        for option, known in entry.options.items():
            value = {None: "", (): " -r -F"}.get(known, f" -x -a {_quoted(' '.join(known or ()))}")
            lines.append(f"{start} -l {option[2:]}{value}")
    return "\n".join(lines) + "\n"


def _families(commands: Mapping[str, Completions]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in commands:
        first, _, second = name.partition(" ")
        if second:
            found.setdefault(first, []).append(second)
    return found


def _first_words(commands: Mapping[str, Completions]) -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in commands))


def _summary(commands: Mapping[str, Completions], word: str) -> str:
    return commands[word].summary if word in commands else ", ".join(_families(commands)[word])


def _call(name: str) -> str:
    return "_roamax_" + name.replace(" ", "_").replace("-", "_")


def _lines(indent: int, lines: typing.Iterable[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
