"""Arguments that several commands share, and those that take names from registries."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro


class Names(NamedTuple):
    """A mark for an argument that takes a name from a registry, which is read when names are shown or completed."""

    known: Callable[[], Iterable[str]]


def _data_sets() -> Iterable[str]:
    from roamax import data

    return data.names()


def _models() -> Iterable[str]:
    from roamax import models

    return models.names()


def _samplers() -> Iterable[str]:
    from roamax.samplers import registry

    return registry.names()


def _shown(known: Callable[[], Iterable[str]]) -> Callable[[str], str]:
    return lambda default: f"One of: {', '.join(known())}. (default: {default})"


DataSet = Annotated[str, tyro.conf.arg(metavar="NAME"), Names(_data_sets)]
DataSets = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint=""), Names(_data_sets)]
Model = Annotated[str, tyro.conf.arg(metavar="NAME", help_behavior_hint=_shown(_models)), Names(_models)]
Sampler = Annotated[str, tyro.conf.arg(metavar="NAME", help_behavior_hint=_shown(_samplers)), Names(_samplers)]

Quiet = Annotated[bool, tyro.conf.arg(help="Print nothing but errors.", help_behavior_hint="")]
Json = Annotated[bool, tyro.conf.arg(help="Print the results as JSON.", help_behavior_hint="")]
Seed = Annotated[int, tyro.conf.arg(help="Seed of everything random.")]
DataDir = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="DIR",
        help="Where data sets are kept.",
        help_behavior_hint="(default: $ROAMAX_DATA, or the user's cache folder)",
    ),
]
RunFolder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
Words = Annotated[tuple[str, ...], tyro.conf.arg(help_behavior_hint="")]
"""Any number of words, none by default."""
Engine = Literal["local", "ray"]
Address = Annotated[
    str | None,
    tyro.conf.arg(metavar="ADDRESS", help="The Ray cluster's address.", help_behavior_hint="(default: one is started)"),
]
Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
"""Off unless given."""
