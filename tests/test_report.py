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
from roamax.evaluation import metrics
from roamax.evaluation.showcase import uncertain_inputs
from roamax.host import files
from roamax.report import figures
from roamax.report.conclusions import Conclusion, conclude
from roamax.report.figures import new_figure
from roamax.report.page import Figure, Page, write_page
from roamax.report.runs import CLASSIFICATION, write_runs_page
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
    conclusions = {"a<b>": [Conclusion("So <it> is.", "1 & 2")]}
    content = Page("a < b", "lead", conclusions, [], from_records(COLUMNS, RECORDS, "T"), [entry], made_by)
    write_page(tmp_path / "page.html", content, False)
    text = (tmp_path / "page.html").read_text()
    assert "<h1>a &lt; b</h1>" in text
    assert '<td class="l">a&lt;b&gt;&amp;[c]</td><td class="r best">0.30</td>' in text
    assert '<svg role="img" aria-label="a &#34;line&#34;"' in text
    assert "<figcaption>x &amp; y</figcaption>" in text
    assert "<h3>a&lt;b&gt;</h3>\n<ul>\n<li><b>So &lt;it&gt; is.</b> <span>1 &amp; 2</span></li>" in text
    assert "<code>roamax &lt;report&gt;</code>, seed 3.\njax 0.1." in text
    assert (tmp_path / "page_figures" / "line.pdf").read_bytes().startswith(b"%PDF")


def page(path):
    figure, _ = new_figure()
    made_by = {"command": "roamax", "seed": 3, "versions": {"jax": "0.1"}}
    entry = Figure("line", figure, "x", "y")
    write_page(path, Page("t", "lead", {}, [], from_records(COLUMNS, RECORDS), [entry], made_by), False)


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


def about(**known):
    """A record with the fields that every record has."""
    mixing = {"parameters": {"chain_rhat_share": 0.5, "chain_rhat_share_by_layer": {}}}
    return {"task": "sine", "cost": {"seconds_per_step": None}, "num_chains": 1, "num_samples": 4,
            "diagnostics": mixing, "scores": {}, **known}  # fmt: skip


def curve(*nll):
    return {"draws": [float(2**k) for k in range(len(nll))], "nll": list(nll)}


def rhat(**shares):
    return {"parameters": {}, "functions": shares}


def reliability(confidence, accuracy, count=1000):
    return {"count": [0, count], "confidence": [None, confidence], "accuracy": [None, accuracy]}


def energy(values, divergent=0):
    return {"step": [5, 9, *range(10, 10 + len(values))], "energy": [[99.0, 50.0, *values]], "first_draw": 10,
            "divergent": divergent}  # fmt: skip


FLAT = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.0]


@pytest.mark.parametrize(
    ("known", "claim", "number"),
    [
        ({"by_draws": curve(0.9, 0.5, 0.4)}, "More draws would still help.", "From 2 to 4 draws"),
        ({"nll_by_draws": curve(-0.9, -1.0, -1.0)}, "More draws of this kind would change little.", "-1.0000"),
        ({"by_draws": curve(0.9, 0.4, 0.5)}, "Later draws did harm.", "from 0.4000 to 0.5000"),
        ({"by_draws": curve(0.9, 0.4)}, None, ""),
        ({"scores": {"nll": 0.2}, "traces": {"nll": [[0.4, None], [0.6, 0.5]]}}, "Averaging pays.", "0.5000"),
        ({"num_chains": 2, "diagnostics": rhat(rhat_share=0.25)}, "Chains disagree.", "25.0"),
        ({"num_chains": 2, "diagnostics": rhat(rhat_share=0.95)}, "Chains agree.", "95.0"),
        ({"diagnostics": rhat(chain_rhat_share=0.5, rhat_share=1.0)}, "The chain has not settled.", "cR-hat"),
        ({"energy": energy([8.0, 7, 6, 5, 4, 3, 2, 1])}, "The energy still falls: burn-in was too short.", "6.5"),
        ({"energy": energy(FLAT)}, None, ""),
        ({"energy": energy(FLAT, divergent=3)}, "Some steps diverged.", "before 3 of"),
        ({"reliability": reliability(0.99, 0.9)}, "Predictions are overconfident.", "99.0"),
        ({"reliability": reliability(0.8, 0.9)}, "Predictions are underconfident.", "90.0"),
        ({"reliability": reliability(0.99, 0.9, 10)}, "Confidence can be taken at its word.", "±"),
        ({"scores": {"coverage": 0.5}}, "Intervals are too narrow.", "50.0"),
        ({"rejection": {"rejected": [0.0, 0.1], "acc": [0.9, 0.99]}}, "Doubt finds mistakes.", "99.0"),
        ({"ood": {"letters": {"auroc": 0.55}}}, "Confidence tells letters from test data hardly.", "0.550"),
    ],
)
def test_conclusions_follow_from_the_numbers(known, claim, number):
    found = conclude(about(**known))
    assert [one.claim for one in found] == ([] if claim is None else [claim])
    assert all(number in one.because for one in found)


def test_the_most_uncertain_inputs_come_first_with_their_images():
    probs = np.array([[[0.9, 0.1, 0.0], [0.6, 0.4, 0.0]], [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]])
    images = np.arange(2 * 4, dtype=np.uint8).reshape(2, 2, 2, 1)
    first, second = uncertain_inputs(images, np.log(probs + 1e-9), np.array([0, 1]))
    assert (first["row"], first["label"], first["classes"], second["row"]) == (1, 1, [1, 0, 2], 0)
    assert first["mean"] == pytest.approx([0.6, 0.4, 0.0], abs=1e-6)
    assert first["sd"] == pytest.approx([0.2, 0.2, 0.0], abs=1e-6)
    assert first["image"] == [[4, 5], [6, 7]]
    assert "image" not in uncertain_inputs(np.zeros((2, 5)), np.log(probs + 1e-9), np.array([0, 1]))[0]


def test_figures_have_whole_draws_plain_log_ticks_and_intervals():
    figure = figures.scores_against_draws({"a": {"draws": [1, 2, 3], "nll": [2.0, 0.5, 0.1]}, "b": curve(1.0, 0.3)})
    figure.canvas.draw()
    axis = figure.axes[0]
    assert all(float(tick) == int(tick) for tick in axis.get_xticks())
    shown = [label.get_text() for label in axis.get_yticklabels()]
    assert {"0.1", "0.2", "0.5", "1", "2"} <= set(shown)
    assert axis.get_xlabel() == "number of draws"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    low, high = figures.wilson_interval(np.array([1.0, 0.5]), np.array([10, 100]))
    assert low == pytest.approx([0.7225, 0.4038], abs=1e-4)
    assert high == pytest.approx([1.0, 0.5962], abs=1e-4)
    table = metrics.Reliability(*(np.array([value]) for value in (0.5, 1.0, 20, 0.9, 0.8)))
    drawn = figures.reliability_diagrams({"a name that is too long for one line": table})
    assert "\n" in drawn.axes[0].get_title()
    assert [text.get_text() for text in drawn.axes[0].texts] == ["n = 20"]


def test_nothing_is_best_across_tasks_nor_by_spread_alone(tmp_path):
    made_by = {**runs.provenance(0), "command": "roamax report"}
    records = {"a": about(scores={"rmse": 0.5, "nll": 0.1}), "b": about(scores={"rmse": 0.4, "nll": 0.2})}
    write_runs_page(tmp_path / "same.html", records, made_by, False)
    assert (tmp_path / "same.html").read_text().count('r best"') == 4, "RMSE, NLL, and both cR-hat"
    records["b"]["task"] = "cosine"
    write_runs_page(tmp_path / "other.html", records, made_by, False)
    assert 'r best"' not in (tmp_path / "other.html").read_text()
    assert [column.better for column in CLASSIFICATION if column.key == "kld"] == [None]


def test_a_regression_has_both_likelihoods_and_records_of_before_keep_the_gaussian_one(tmp_path):
    made_by = {**runs.provenance(0), "command": "roamax report"}
    old = {"rmse": 0.5, "nll": 0.1234, "coverage": 0.9}
    records = {"old": old, "new": {**old, "nll": 0.2345, "gaussian_nll": 0.3456}}
    write_runs_page(tmp_path / "page.html", {k: about(scores=v) for k, v in records.items()}, made_by, False)
    texts = re.findall(r"<td[^>]*>(.*?)</td>", (tmp_path / "page.html").read_text())
    assert texts[texts.index("new") :][2:4] == ["0.2345", "0.3456"]
    assert texts[texts.index("old") :][2:4] == ["–", "0.1234"]
