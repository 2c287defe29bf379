"""Arguments that several commands share, said once."""

from pathlib import Path
from typing import Annotated

import tyro

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
"""Any number of words, by default none."""
Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
"""Off unless it is there."""
