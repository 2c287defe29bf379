"""`roamax data list` and `roamax data fetch`."""

import tyro

from roamax.cli.arguments import DataDir, DataSet, Json, Quiet


def list_data(data_dir: DataDir = None, quiet: Quiet = False, json: Json = False) -> None:
    """List the data sets: which are installed, their sizes and licences.

    Examples:
        roamax data list
        roamax data list --data-dir ~/data --json
    """
    from roamax import data
    from roamax.cli.output import print_json, print_table
    from roamax.report.table import Column, from_records

    rows = [row._asdict() for row in data.table(data_dir)]
    if json:
        print_json(rows)
    if json or quiet:
        return
    for row in rows:
        row["classes"] = row["classes"] or None
        row["there"] = "yes" if row["present"] else "no"
        row["size"] = f"{row['num_bytes'] / 1e6:.0f} MB" if row["num_bytes"] else None
    columns = [
        Column("name", "name"),
        Column("there", "installed"),
        Column("size", "size"),
        Column("classes", "classes", "d"),
        Column("checksum", "checksum"),
        Column("licence", "licence"),
    ]
    print_table(from_records(columns, rows, f"Data sets in {data.data_dir(data_dir)}"))
    print("recorded: no published checksum; later downloads must match the first one here")


def fetch(
    name: tyro.conf.Positional[DataSet],
    data_dir: DataDir = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Download a data set from its publisher, and verify it.

    Example:
        roamax data fetch fashion_mnist

    Args:
        name: A name that `roamax data list` shows.
    """
    from roamax import data
    from roamax.cli.output import print_json

    paths = data.fetch(name, data_dir, progress=not (quiet or json))
    if json:
        print_json({"name": name, "files": [str(path) for path in paths]})
    elif not quiet:
        print("\n".join(map(str, paths)) if paths else f"{name} is generated: nothing to download.")
