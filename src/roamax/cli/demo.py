"""`roamax demo`."""

from pathlib import Path

from roamax.cli.arguments import Json, Quiet, RunFolder, Seed


def demo(out: RunFolder = Path("demo"), seed: Seed = 0, quiet: Quiet = False, json: Json = False) -> None:
    """See what averaging over draws is good for, in two minutes.

    A small network learns a few digits and then meets others: off-centre ones,
    and digits that it has never seen. Every sampler is compared with one
    network and with an ensemble, over several seeds.

    Nothing is downloaded. Writes results.json, report.html and its figures to
    OUT. Running the same command again resumes where it stopped.

    Examples:
        roamax demo
        roamax demo --out my-demo --seed 1

    Args:
        out: The folder to write to.
    """
    from roamax.cli.start import start_jax

    start_jax()
    from roamax import runs
    from roamax.cli import demo_methods, demo_page
    from roamax.cli.output import print_json, print_table
    from roamax.errors import as_seed
    from roamax.host import files
    from roamax.report.page import check_page, write_page

    show = False if quiet or json else None
    seed = as_seed(seed)
    check_page(out / "report.html", out / "results.json")
    files.make_folder(out)
    problems = {one: demo_methods.problem(one) for one in range(seed, seed + demo_methods.SEEDS)}
    entries = []
    for outcomes in demo_methods.run(problems, out, progress=show):
        entries.append(demo_page.entry(outcomes, list(problems.values())))
        if not (quiet or json):
            record = entries[-1].record()
            print(
                f"{record['method']}: validation NLL {record['valid_nll']:.3f}, {record['seconds']:.1f} s", flush=True
            )
    entries = demo_page.ranked(entries)
    made_by = runs.provenance(seed)
    results = {**made_by, "recommended": entries[0].name, "methods": [one.record() for one in entries]}
    page = demo_page.page(entries, list(problems.values()), made_by)
    write_page(out / "report.html", page, show)
    files.write_json(out / "results.json", results)
    if json:
        print_json(results)
    elif not quiet:
        print_table(demo_page.brief_table(entries))
        for claim, because in page.conclusions[""]:
            print(f"{claim} {because}")
        print(f"Report: {out / 'report.html'}")
