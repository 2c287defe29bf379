"""The command line as a person uses it: from nothing to a page, and what it says when something is wrong."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from roamax import storage
from roamax.cli import main
from roamax.experiments import demo

SHORT = ["--data", "digits", "--options", "hidden=[8]", "--batch-size", "32", "--burn-in", "40", "--thinning", "10"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "sghmc"
    main(["sample", *SHORT, "--num-samples", "5", "--out", str(folder), "--quiet"])
    return folder


def complaint(capsys, words):
    """The one line on standard error, and the exit code."""
    with pytest.raises(SystemExit) as end:
        main(words)
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text, end.value.code


def test_demo_writes_a_table_results_and_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "STEPS", 800)
    main(["demo", "--out", str(tmp_path / "demo")])
    printed = capsys.readouterr().out
    results = storage.read_json(tmp_path / "demo" / "results.json")
    names = [method["method"] for method in results["methods"]]
    assert {"deep ensemble", "SGLD", "pSGLD", "SGHMC", "cyclical SGHMC", "HMC"} <= set(names)
    for method in results["methods"]:
        assert method["method"] in printed
        assert 0.3 < method["acc"] <= 1
        assert len(method["nll_by_draws"]) == method["draws"]
        assert 0.7 < method["gradient_evaluations"] / 800 <= 1.0
    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert not re.search(r'(src|href)="(http|//|/)', page)
    assert (tmp_path / "demo" / "reliability.pdf").stat().st_size > 1000


def test_sample_goes_on_where_it_stopped(run_folder, tmp_path, capsys):
    shutil.copytree(run_folder, tmp_path / "run")
    main(["sample", *SHORT, "--num-samples", "7", "--out", str(tmp_path / "run"), "--json"])
    results = json.loads(capsys.readouterr().out)
    assert results["draws"] == 7
    assert results == storage.read_json(tmp_path / "run" / "results.json")
    for name in ("versions", "seed", "command", "acc", "nll"):
        assert name in results
    kept = storage.read_json(run_folder / "draws" / "manifest.json")["draws"]
    assert storage.read_json(tmp_path / "run" / "draws" / "manifest.json")["draws"][: len(kept)] == kept


def test_sample_has_defaults_for_regression_too(tmp_path, capsys):
    words = ["sample", "--data", "regression_1d", "--model", "mlp_regression", "--out", str(tmp_path / "run")]
    main([*words, "--burn-in", "1000", "--thinning", "50", "--num-samples", "8", "--json"])
    assert json.loads(capsys.readouterr().out)["rmse"] < 0.3, "a constant has 0.7"


def test_evaluate_and_report_describe_a_run(run_folder, tmp_path, capsys):
    probs = np.full((360, 10), 0.1, np.float32)
    np.savez(tmp_path / "other.npz", probs=probs)
    words = ["evaluate", str(run_folder), "--reference", str(tmp_path / "other.npz"), "--format"]
    main([*words, "json"])
    record = json.loads(capsys.readouterr().out)
    assert record == storage.read_json(run_folder / "metrics.json")
    assert record["scores"]["acc"] == pytest.approx(storage.read_json(run_folder / "results.json")["acc"])
    assert record["by_draws"]["nll"][-1] == pytest.approx(record["scores"]["nll"])
    assert 0 < record["reference"]["total_variation"] < 1
    assert np.shape(record["space"]["cosine"]) == (5, 5)
    main([*words, "latex", "--draws", "3"])
    assert r"\toprule" in capsys.readouterr().out
    assert storage.read_json(run_folder / "metrics.json")["num_draws"] == 3

    main(["report", str(run_folder), str(run_folder), "--out", str(tmp_path / "page" / "report.html"), "--quiet"])
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count("<figure") == page.count("<svg") >= 6
    assert (tmp_path / "page" / "surface.png").exists()


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser is installed")
def test_a_browser_shows_the_page_without_complaint(run_folder, tmp_path):
    page = tmp_path / "report.html"
    main(["report", str(run_folder), "--out", str(page), "--quiet"])
    script = """<script>addEventListener("load", () => {
      const figures = [...document.querySelectorAll("figure svg")];
      const drawn = figures.filter((svg) => svg.getBoundingClientRect().height > 50 && svg.querySelector("path"));
      document.title = `${drawn.length} of ${figures.length} figures, page ${document.body.scrollWidth <= innerWidth}`;
    });</script></body>"""
    page.write_text(page.read_text().replace("</body>", script))
    for width in (390, 1200):
        shown = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0",
             f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1000", "--dump-dom", page.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        title = re.search(r"<title>(\d+) of (\d+) figures, page (\w+)</title>", shown.stdout)
        assert title is not None
        assert title[1] == title[2]
        assert int(title[1]) >= 6
        assert title[3] == "true", "the page must not be wider than the window"
        assert "CONSOLE" not in shown.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["smple"], "did you mean 'sample'"),
        (["data"], "data list, data fetch"),
        (["sample", "--data", "digts", "--out", "x"], "did you mean 'digits'"),
        (["sample", "--model", "mlpp", "--out", "x"], "did you mean 'mlp'"),
        (["sample", "--sampler", "sghcm", "--out", "x"], "did you mean 'sghmc'"),
        (["sample", "--options", "hiden=3", "--out", "x"], "did you mean 'hidden'"),
        (["sample", "--seed", "one", "--out", "x"], "--seed"),
        (["sample", "--num-samples", "0", "--out", "x"], "`num_samples` must be a whole number >= 1; got 0"),
        (["sample", "--batch-size", "5000", "--out", "x"], "`batch_size` must"),
        (["sample", "--lr", "-1", "--out", "x"], "`lr` must"),
        (["sample"], "--out"),
        (["evaluate", "nowhere"], "nowhere/config.json could not be read"),
        (["data", "fetch", "mnits"], "did you mean 'mnist'"),
        (["meta-train", "smoke", "--out", "x", "--engine", "rya"], "did you mean 'ray'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    text, code = complaint(capsys, words)
    assert says in text
    assert code == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


def test_help_fits_a_terminal_and_every_command_has_an_example(capsys):
    from roamax.cli import COMMANDS

    main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 90
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([*name.split(), "--help"])
        assert f"Example: roamax {name}" in capsys.readouterr().out


def test_data_list_fits_a_terminal(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("ROAMAX_DATA", str(tmp_path))
    main(["data", "list"])
    shown = capsys.readouterr().out
    assert "fashion_mnist" in shown
    assert max(map(len, shown.splitlines())) <= 80
    main(["data", "list", "--json"])
    assert {"name", "licence", "present"} <= set(json.loads(capsys.readouterr().out)[0])
