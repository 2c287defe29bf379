"""Tables in every format, the page that shows one, and JSON that programs can read."""

import json
import math
import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from roamax import runs
from roamax.cli.output import print_table
from roamax.errors import FileError, InputError
from roamax.host import files
from roamax.report.figures import new_figure
from roamax.report.page import Figure, write_page
from roamax.report.runs import write_runs_page
from roamax.report.table import Column, cells, from_records, latex, markdown

COLUMNS = [Column("name", "run"), Column("nll", "N|LL_%", ".2f", "min"), Column("count", "draws", ",d")]
RECORDS = [
    {"name": "a<b>&[c]", "nll": 0.301, "count": 1000},
    {"name": "~x_1", "nll": 0.299, "count": None},
    {"name": "y", "nll": math.nan, "count": 5},
]


def test_the_best_are_those_that_read_like_the_best():
    table = from_records(COLUMNS, RECORDS)
    assert [row[1] for row in table.rows] == [("0.30", True), ("0.30", True), ("–", False)]
    assert table.align == "lrr"
    assert [cell.is_best for cell in cells([1.0, None], ".1f", "max")] == [False, False], "nothing to compare with"
    assert [cell.is_best for cell in cells([1.0, 2.0], ".1f")] == [False, False], "neither end is better"
    assert cells([(0.5, 0.1), (0.7, None)], ".1f", "max") == [("0.5 ± 0.1", False), ("0.7", True)]


def test_every_format_escapes_what_it_would_read_as_its_own():
    table = from_records(COLUMNS, RECORDS)
    assert markdown(table).splitlines() == [
        "| run | N\\|LL_% | draws |",
        "| --- | --- | --- |",
        "| a<b>&[c] | **0.30** | 1,000 |",
        "| ~x_1 | **0.30** | – |",
        "| y | – | 5 |",
    ]
    assert r"run & N|LL\_\% & draws \\" in latex(table)
    assert r"\textasciitilde{}x\_1 & \textbf{0.30} & -- \\" in latex(table)


def test_a_table_wider_than_the_terminal_keeps_its_numbers(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    print_table(from_records(COLUMNS, RECORDS, "[bold]Runs"))
    shown = capsys.readouterr().out
    assert "a<b>&[c]" in shown
    assert shown.count("0.30") == 2
    assert "1,000" in shown
    assert "[bold]Runs" in shown


def test_a_page_escapes_its_texts_and_needs_no_other_file(tmp_path):
    figure, axes = new_figure()
    axes[0, 0].plot([0, 1])
    made_by = {"command": "roamax <report>", "seed": 3, "versions": {"jax": "0.1"}}
    entry = Figure("line", figure, 'a "line"', "x & y")
    write_page(tmp_path / "page.html", "a < b", "lead", from_records(COLUMNS, RECORDS), [entry], made_by, False)
    text = (tmp_path / "page.html").read_text()
    assert "<h1>a &lt; b</h1>" in text
    assert '<td class="l">a&lt;b&gt;&amp;[c]</td><td class="r best">0.30</td>' in text
    assert '<svg role="img" aria-label="a &#34;line&#34;"' in text
    assert "<figcaption>x &amp; y</figcaption>" in text
    assert "<code>roamax &lt;report&gt;</code>, seed 3.\njax 0.1." in text
    assert (tmp_path / "page_figures" / "line.pdf").read_bytes().startswith(b"%PDF")


def page(path):
    figure, _ = new_figure()
    made_by = {"command": "roamax", "seed": 3, "versions": {"jax": "0.1"}}
    write_page(path, "t", "lead", from_records(COLUMNS, RECORDS), [Figure("line", figure, "x", "y")], made_by, False)


def test_a_page_replaces_only_pages_of_ours(tmp_path):
    own, link, pipe, dangling = (tmp_path / name for name in ("notes.html", "link.html", "pipe", "dangling"))
    own.write_text("my own notes")
    link.symlink_to(own)
    dangling.symlink_to(tmp_path / "nowhere")
    os.mkfifo(pipe)
    for path in (own, link, pipe, dangling, tmp_path, Path(".")):
        with pytest.raises(InputError, match=r"`out` must (be a|name a file)"):
            page(path)
    assert (own.read_text(), link.is_symlink(), stat.S_ISFIFO(pipe.stat().st_mode)) == ("my own notes", True, True)
    assert not list(tmp_path.glob("*/line.png"))

    (tmp_path / "line.png").write_text("my own")
    (tmp_path / "page_figures").mkdir()
    page(tmp_path / "page.html")
    page(tmp_path / "page.html")
    assert (tmp_path / "line.png").read_text() == "my own"
    (tmp_path / "page.html").unlink()
    with pytest.raises(InputError, match=r"be a page whose other files are ours too, or new; got .*page_figures"):
        page(tmp_path / "page.html")


def test_files_replace_regular_files_only(tmp_path):
    (tmp_path / "own").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    os.mkfifo(tmp_path / "pipe")
    files.write_bytes(tmp_path / "link", b"new")
    assert ((tmp_path / "own").read_text(), (tmp_path / "link").is_symlink()) == ("new", True)
    with pytest.raises(FileError, match="could not be written: it is not a regular file"):
        files.write_bytes(tmp_path / "pipe", b"new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("bad", [math.nan, math.inf, np.float32(math.nan)])
def test_json_has_null_for_what_it_cannot_hold(tmp_path, bad):
    files.write_json(tmp_path / "x.json", {"a": bad, "b": [np.float32(0.5), 2]})
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"a": None, "b": [0.5, 2]}


def test_a_regression_has_both_likelihoods_and_records_of_before_keep_the_gaussian_one(tmp_path):
    made_by = {**runs.provenance(0), "command": "roamax report"}
    about = {"task": "sine", "cost": {"seconds_per_step": None}, "num_chains": 1, "num_samples": 4}
    about["diagnostics"] = {"parameters": {"chain_rhat_share": 0.5}}
    old = {"rmse": 0.5, "nll": 0.1234, "coverage": 0.9}
    records = {"old": old, "new": {**old, "nll": 0.2345, "gaussian_nll": 0.3456}}
    write_runs_page(tmp_path / "page.html", {k: {**about, "scores": v} for k, v in records.items()}, made_by, False)
    texts = re.findall(r"<td[^>]*>(.*?)</td>", (tmp_path / "page.html").read_text())
    assert texts[texts.index("new") :][2:4] == ["0.2345", "0.3456"]
    assert texts[texts.index("old") :][2:4] == ["–", "0.1234"]
