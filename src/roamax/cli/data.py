"""`roamax data list` and `roamax data fetch`."""

from pathlib import Path
from typing import Annotated

import tyro


def list_data(data_dir: Path | None = None, json: bool = False) -> None:
    """Show the data sets, which of them are here, their sizes and licences.

    Example: roamax data list

    Args:
        data_dir: Where data sets are kept: by default $ROAMAX_DATA, or the user's cache folder.
        json: Print JSON instead of a table.
    """
    from roamax import data
    from roamax.cli.output import print_json, print_table
    from roamax.report.page import Column

    rows = [row._asdict() for row in data.table(data_dir)]
    if json:
        print_json(rows)
        return
    for row in rows:
        row["there"] = "yes" if row["present"] else "no"
        row["held_to"] = {"first download (recorded)": "recorded", "none needed": "–"}.get(
            row["checksum"], row["checksum"].removeprefix("published ")
        )
        row["size"] = f"{row['num_bytes'] / 1e6:.0f} MB" if row["num_bytes"] else "–"
    columns = [
        Column("name", "name"),
        Column("there", "here"),
        Column("size", "size"),
        Column("classes", "classes", "d"),
        Column("held_to", "checksum"),
        Column("licence", "licence"),
    ]
    print_table(f"Data sets in {data.data_dir(data_dir)}", columns, rows)
    print("recorded: the checksum of the first download here, held to from then on")


def fetch(name: Annotated[str, tyro.conf.Positional], data_dir: Path | None = None, quiet: bool = False) -> None:
    """Download a data set from its publisher and check it.

    Example: roamax data fetch fashion_mnist

    Args:
        name: A name that `roamax data list` shows.
        data_dir: Where data sets are kept: by default $ROAMAX_DATA, or the user's cache folder.
        quiet: Print nothing.
    """
    from roamax import data

    paths = data.fetch(name, data_dir, progress=not quiet)
    if not quiet:
        for path in paths:
            print(path)
