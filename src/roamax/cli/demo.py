"""`roamax demo`."""

from pathlib import Path

from roamax.cli.arguments import Json, Quiet, RunFolder, Seed


def demo(out: RunFolder = Path("demo"), seed: Seed = 0, quiet: Quiet = False, json: Json = False) -> None:
    """Compare every sampler with a deep ensemble on digits, in two minutes.

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
    from roamax.cli import demo_methods
    from roamax.cli.output import print_json, print_table
    from roamax.errors import as_seed
    from roamax.evaluation import metrics
    from roamax.host import files
    from roamax.report import figures
    from roamax.report.page import Figure, check_page, write_page
    from roamax.report.table import Column, from_records

    show = False if quiet or json else None
    seed = as_seed(seed)
    check_page(out / "report.html", out / "results.json")
    files.make_folder(out)
    outcomes = []
    for outcome in demo_methods.run(seed, progress=show, out=out):
        outcomes.append(outcome)
        if not (quiet or json):
            print(f"{outcome.name}: NLL {outcome.scores['nll']:.4f} in {outcome.seconds:.1f} s", flush=True)
    records = [outcome.record() for outcome in outcomes]
    made_by = runs.provenance(seed)
    columns = [
        Column("method", "method"),
        Column("acc", "accuracy", ".3f", "max"),
        Column("nll", "NLL", ".4f", "min"),
        Column("ece", "ECE", ".4f", "min"),
        Column("kld", "KLD", ".3f", "max"),
        Column("draws", "draws", "d"),
        Column("seconds", "time / s", ".1f"),
    ]
    tables = {o.name: metrics.reliability(metrics.average(o.log_probs), o.labels) for o in outcomes}
    pictures = [
        Figure("nll", figures.nll_against_draws({o.name: o.nll_by_draws() for o in outcomes}),
               "Predictive performance vs. the number of draws",
               "Negative log-likelihood of the averaged prediction on held-out digits; lower is better."),
        Figure("reliability", figures.reliability_diagrams(tables), "Reliability",
               "Accuracy of predictions by confidence. Calibrated predictions lie on the diagonal; more opaque "
               "bars hold more of the examples."),
    ]  # fmt: skip
    lead = (
        f"Handwritten digits of scikit-learn, a network with 64 hidden units, {demo_methods.STEPS:,} minibatch "
        "gradients (or as many examples in full-batch gradients) per method. The best value of each column is marked."
    )
    table = from_records(columns, records)
    write_page(out / "report.html", "roamax demo", lead, table, pictures, made_by, show)
    files.write_json(out / "results.json", {**made_by, "methods": records})
    if json:
        print_json({**made_by, "methods": records})
    elif not quiet:
        print_table(table)
        print(f"Report: {out / 'report.html'}")
