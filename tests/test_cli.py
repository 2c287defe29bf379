"""The command line as a person uses it: from nothing to a page, and what it says when something is wrong."""

import contextlib
import io
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings

import jax
import numpy as np
import pytest

import browser
from roamax import Draws, meta, models
from roamax.cli import COMMANDS, demo_methods, demo_page, find, main, parse, parsing
from roamax.cli.demo_methods import TRAINED
from roamax.cli.demo_page import SCORES, Entry, conclusions, ranked
from roamax.cli.output import FORMATS
from roamax.cli.start import start_jax
from roamax.evaluation.run import read_record
from roamax.host import files, machine, progress
from roamax.samplers import registry

SHORT = ["--data", "digits", "--options", "hidden=[8]", "--batch-size", "32", "--burn-in", "40", "--thinning", "10",
         "--temperature", "0.9"]  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "sghmc"
    main(["sample", *SHORT, "--num-samples", "5", "--out", str(folder), "--quiet"])
    assert files.read_json(folder / "results.json")["sampler"]["temperature"] == 0.9
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
    monkeypatch.setattr(demo_methods, "STEPS", 400)
    monkeypatch.setattr(demo_methods, "SEEDS", 2)
    monkeypatch.setattr(demo_page, "EXAMPLES", 2)
    few = {name: registry.RECORDS[name] for name in ("sghmc", "ensemble", "hmc")}
    monkeypatch.setattr(demo_methods, "RECORDS", few)
    main(["demo", "--out", str(tmp_path / "demo")])
    printed = capsys.readouterr().out
    results = files.read_json(tmp_path / "demo" / "results.json")
    names = [method["method"] for method in results["methods"]]
    assert set(names) == {"one network, Adam", "deep ensemble", "SGHMC", "HMC"}
    for method in results["methods"]:
        assert method["method"] in printed
        assert 0.3 < method["acc"] <= 1
        assert len(method["seeds"]) == 2
        assert method["nll"] == pytest.approx(np.mean([seed["nll"] for seed in method["seeds"]]))
        assert 0.7 < method["gradient_evaluations"] / 400 <= 1.0
    # The recommended sampler comes first, by validation data, and the page says so before anything else.
    samplers = {one["method"]: one["valid_nll"] for one in results["methods"] if one["method"] not in TRAINED}
    assert names[0] == results["recommended"] == min(samplers, key=lambda name: samplers[name])
    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.index(names[0]) < page.index('id="mistakes"') < page.index('id="unseen"') < page.index("<table>")
    assert page.count("<svg") == 6
    assert not re.search(r'(src|href)="(http|//|/)', page)
    assert (tmp_path / "demo" / "report_figures" / "reliability.pdf").stat().st_size > 1000


def test_the_demo_says_who_is_better_at_what():
    def made(name, **scores):
        known = dict.fromkeys(SCORES, 0.5) | scores
        return Entry(name, [], [known, {key: value + 0.2 for key, value in known.items()}])

    network, ensemble = made(TRAINED[0], mistakes=20.0, unseen=9.0), made(TRAINED[1], ece=0.1)
    walk, leap = made("walk", valid_nll=0.4, mistakes=5.0, unseen=10.0), made("leap", valid_nll=0.45)
    assert [one.name for one in ranked([network, ensemble, leap, walk])[:2]] == ["walk", "leap"]
    said = dict(conclusions([walk, leap, network, ensemble]))
    assert "0.500 ± 0.100" in said["Use walk."]
    assert "20.1 ± 0.1\xa0% with more than 90\xa0%" in said["Fewer confident mistakes."]
    assert "No more doubt where it is due." in said
    assert "ECE: deep ensemble (0.200 vs. 0.600)" in said["It is not the best at everything."]
    better = made(TRAINED[1], valid_nll=0.1)
    entries = ranked([network, better, leap, walk])
    assert entries[0].name == "walk"
    assert "deep ensemble has 0.200" in dict(conclusions(entries))["No sampler beats deep ensemble here."]


def test_sample_resumes_where_it_stopped(run_folder, tmp_path, capsys):
    shutil.copytree(run_folder, tmp_path / "run")
    main(["sample", *SHORT, "--num-samples", "7", "--out", str(tmp_path / "run"), "--json"])
    results = json.loads(capsys.readouterr().out)
    assert results["draws"] == 7
    assert results == files.read_json(tmp_path / "run" / "results.json")
    for name in ("versions", "seed", "command", "acc", "nll"):
        assert name in results
    kept, now = ((folder / "draws" / "journal.jsonl").read_bytes() for folder in (run_folder, tmp_path / "run"))
    assert now.startswith(kept)


@pytest.mark.parametrize("sampler", ["cyclical", "ensemble"])
def test_runs_in_cycles_and_members_grow_too(tmp_path, sampler):
    words = ["sample", *SHORT, "--sampler", sampler, "--quiet", "--out", str(tmp_path / "run"), "--num-samples"]
    for number in ("2", "3"):
        main([*words, number])
    # 40 steps of burn-in over ten draws, and thinning by 10.
    assert Draws.load(tmp_path / "run").steps == [14, 28, 42]


def test_sample_has_defaults_for_regression_too(tmp_path, capsys):
    words = ["sample", "--data", "regression_1d", "--model", "mlp_regression", "--out", str(tmp_path / "run")]
    main([*words, "--burn-in", "1000", "--thinning", "50", "--num-samples", "8", "--json"])
    assert json.loads(capsys.readouterr().out)["rmse"] < 0.3, "a constant has 0.7"
    main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html"), "--quiet"])
    assert {path.name for path in (tmp_path / "report_figures").glob("*.png")} == {
        "bands.png",
        "draws.png",
        "energy.png",
    }
    bands = files.read_json(tmp_path / "run" / "metrics.json")["bands"]
    assert all(inner < outer for inner, outer in zip(bands["epistemic"], bands["total"], strict=True))
    middle = np.abs(np.array(bands["x"])) < 3
    error = np.array(bands["mean"])[middle] - np.sin(np.array(bands["x"])[middle])
    assert np.sqrt(np.mean(error**2)) < 0.3, "the curve that the data were made of"


def test_evaluate_and_report_describe_a_run(run_folder, tmp_path, capsys):
    probs = np.full((360, 10), 0.1, np.float32)
    np.savez(tmp_path / "other.npz", probs=probs)
    words = ["evaluate", str(run_folder), "--reference", str(tmp_path / "other.npz")]
    main([*words, "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record == files.read_json(run_folder / "metrics.json")
    assert record["scores"]["acc"] == pytest.approx(files.read_json(run_folder / "results.json")["acc"])
    assert record["by_draws"]["nll"][-1] == pytest.approx(record["scores"]["nll"])
    assert 0 < record["reference"]["total_variation"] < 1
    assert np.shape(record["space"]["cosine"]) == (5, 5)
    main([*words, "--format", "latex", "--draws", "3"])
    assert r"\toprule" in capsys.readouterr().out
    of_three = files.read_json(run_folder / "metrics.json")
    assert of_three["num_samples"] == 3
    assert of_three["traces"]["step"] == record["traces"]["step"][:3]

    # A report is about the draws that a run has, not those that were measured once.
    main(["report", str(run_folder), str(run_folder), "--out", str(tmp_path / "page" / "report.html"), "--quiet"])
    assert files.read_json(run_folder / "metrics.json")["scores"] == record["scores"]
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count("<figure") == page.count("<svg") >= 8
    # Conclusions, then predictions, then numbers.
    assert page.index("<li><b>") < page.index('id="uncertain"') < page.index("<table>") < page.index('id="reliability"')
    assert record["energy"]["first_draw"] == 50
    assert len(record["energy"]["step"]) > 5
    assert (tmp_path / "page" / "report_figures" / "surface.png").exists()

    record["num_draws"] = record.pop("num_samples")  # as records of before call it
    files.write_json(run_folder / "metrics.json", record)
    assert read_record(run_folder / "metrics.json")["num_samples"] == 5


@pytest.mark.extras
@browser.needed
def test_a_browser_shows_the_page_without_complaint(run_folder, tmp_path):
    page = tmp_path / "report.html"
    main(["report", str(run_folder), "--out", str(page), "--quiet"])
    measure = """(() => {
      const figures = [...document.querySelectorAll("figure svg")];
      const drawn = figures.filter((svg) => svg.getBoundingClientRect().height > 50 && svg.querySelector("path"));
      return [figures.length, drawn.length, innerWidth, document.scrollingElement.scrollWidth];
    })()"""
    found, complaints = browser.shown([page], measure, tmp_path)
    for figures, drawn, width, content in found:
        assert figures == drawn >= 8
        assert content <= width, "the page must not be wider than the window"
    assert {width for _, _, width, _ in found} == {390, 1280}
    assert "CONSOLE" not in complaints


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["smple"], "did you mean 'sample'"),
        (["data"], "data list, data fetch"),
        (["data", "lst"], "did you mean 'data list'"),
        (
            ["sample", "--out", "x", "--num-sampels", "3"],
            "`--num-sampels` must be an option of roamax sample: did you mean '--num-samples'",
        ),
        (["meta-train", "smoke", "--out", "x", "--stages.0.sgima", "1"], "did you mean '--stages.0.sigma'"),
        (["evaluate"], "DIR"),
        (["completion", "bsh"], "did you mean 'bash'"),
        (["sample", "--data", "digts", "--out", "x"], "did you mean 'digits'"),
        (["sample", "--model", "mlpp", "--out", "x"], "did you mean 'mlp'"),
        (["sample", "--sampler", "sghcm", "--out", "x"], "did you mean 'sghmc'"),
        (["sample", "--options", "hiden=3", "--out", "x"], "did you mean 'hidden'"),
        (["sample", "--seed", "one", "--out", "x"], "`--seed` must be a whole number; got 'one'"),
        (["sample", "--num-samples", "0", "--out", "x"], "`num_samples` must be a whole number >= 1; got 0"),
        (["sample", "--batch-size", "5000", "--out", "x"], "`batch_size` must"),
        (["sample", "--lr", "-1", "--out", "x"], "`lr` must"),
        (["sample", "--temperature", "-1", "--out", "x"], "`temperature` must be a finite number >= 0"),
        (["sample"], "--out"),
        (["evaluate", "nowhere"], "nowhere/config.json could not be read"),
        (["data", "fetch", "mnits"], "did you mean 'mnist'"),
        (["meta-train", "smoke", "--out", "x", "--engine", "rya"], "did you mean 'ray'"),
        (["sample", "--out"], "`--out` must be followed by a value"),
        (["sample", "--out", "x", "--lr", "fast"], "`--lr` must be a number; got 'fast'"),
        (["sample", "x"], "`--out` must be given"),
        (["sample", "--out", "x", "y"], "All words must be options or their values; got 'y'"),
        (["evaluate", "x", "--format", "ltex"], "`--format` must be a known name; got 'ltex': did you mean 'latex'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    text, code = complaint(capsys, words)
    assert says in text
    assert code == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


def help_of(name, capsys):
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    return capsys.readouterr().out


def test_help_fits_a_terminal_and_every_command_has_an_example(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    main(["--help"])
    texts = {"": capsys.readouterr().out, **{name: help_of(name, capsys) for name in COMMANDS}}
    for name, text in texts.items():
        assert max(map(len, text.splitlines())) <= 80, name
        assert f"  roamax {name}" in text or not name
    main(["meta-train", "--help"])
    assert capsys.readouterr().out.count("\n  meta-train ") == len(meta.PRESETS)
    for known, command in ((models.names(), "sample"), (registry.names(), "sample"), (FORMATS, "evaluate")):
        assert all(word in texts[command] for word in known)


def test_examples_of_help_texts_parse(capsys):
    for name in COMMANDS:
        text = help_of(name, capsys).replace("\\\n", " ")
        examples = re.findall(r"^ {4}roamax (.*)", text, re.MULTILINE)
        assert examples
        for example in examples:
            words = shlex.split(example.partition(" > ")[0], comments=True)
            command, rest = find(words)
            assert command == name
            assert callable(parse(command, rest))


def test_every_command_can_be_quiet_and_speak_json():
    for name, command in COMMANDS.items():
        if name != "completion":
            assert {"--quiet", "--json"} <= set(parsing.options(command.load(), f"roamax {name}")), name


def test_the_options_that_are_completed_are_those_of_the_help_text(completion_script, tmp_path):
    taken = {"experiment": "ood", "data fetch": "mnist", "completion": "bash"}
    for name, command in COMMANDS.items():
        shown = set(parsing.options(command.load(), f"roamax {name}"))
        assert set(completions(completion_script, f"{name} {taken.get(name, '')} --", tmp_path).split()) == shown, name


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sam", "sample"),
        ("meta-train sm", "small smoke"),
        ("sample --sampler sgl", "sgld"),
        ("sample --num-s", "--num-samples"),
        ("sample --out ", ""),
        ("data fetch fash", "fashion_mnist"),
        ("evaluate --form", "--format"),
        ("evaluate ru", ""),
        ("experiment li", "list"),
        ("experiment oo", "ood"),
        ("experiment ood --scale c", "cpu"),
        ("evaluate --ood notmnist fash", "fashion_mnist"),
        ("completion z", "zsh"),
        ("experiment list --q", "--quiet"),
        ("meta-train cpu --stages.1.estimator t", "tbptt"),
    ],
)
def test_bash_completes(completion_script, tmp_path, words, completed):
    assert completions(completion_script, words, tmp_path) == completed


@pytest.mark.parametrize("words", ["evaluate ru", "sample --out ru", "report runs/a ru"])
def test_bash_completes_folders_itself_where_one_may_stand(completion_script, tmp_path, words):
    (tmp_path / "runs").mkdir()
    assert completions(completion_script, words, tmp_path) == ""
    registered = f"source {completion_script}; complete -p roamax"
    shown = subprocess.run(["bash", "-c", registered], capture_output=True, text=True, check=True)
    assert shown.stdout == "complete -o default -F _roamax roamax\n"


def completions(script, words, folder):
    """What bash is told on a tab after the words, in a folder; where that is nothing, it completes files."""
    program = f"""
source {script}
COMP_WORDS=(roamax {words.rstrip()}{' ""' if words.endswith(" ") else ""})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_roamax
echo "${{COMPREPLY[@]}}"
"""
    shown = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    assert shown.stderr == ""
    return shown.stdout.strip()


@pytest.fixture(scope="module")
def completion_script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "roamax"
    with contextlib.redirect_stdout(io.StringIO()) as script:
        main(["completion", "bash"])
    path.write_text(script.getvalue())
    return path


def test_other_shells_are_told_the_same(completion_script, capsys):
    known = re.search(r"^COMPLETION_SPEC = (.*)", completion_script.read_text(), re.MULTILINE)
    assert known is not None
    main(["completion", "zsh"])
    zsh = capsys.readouterr().out
    assert zsh.startswith("#compdef roamax")
    assert known[0] in zsh
    main(["completion", "fish"])
    fish = capsys.readouterr().out
    assert known[0].replace("\\", "\\\\").replace('"', r"\"").replace("$", r"\$") in fish
    assert "complete -c roamax -F -n '__fish_seen_subcommand_from evaluate report page'" in fish


def test_a_bar_shows_what_is_done_and_what_is_left(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes rich take what catches the output for a terminal
    assert list(progress.followed("drawing", "abc", 3, show=True)) == ["a", "b", "c"]
    shown = capsys.readouterr().err
    assert "drawing" in shown
    assert "3/3" in shown
    assert "0:00" in shown


def interrupt(words, folder, is_time):
    """Ctrl-C on a command in a process of its own, once it is time: what it says, and its exit code."""
    # Children of a shell's background job are born deaf to it.
    hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{hear}; from roamax.cli import main; main()"
    command = [sys.executable, "-c", code, *words, "--out", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not is_time():
            assert process.poll() is None, "it ended before it could be interrupted"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
    assert printed == ""
    assert "Traceback" not in said
    return said, process.returncode


def test_interrupted_sampling_says_how_to_resume_and_resumes_there(tmp_path, capsys):
    folder = tmp_path / "my run"
    words = ["sample", "--options", "hidden=[8]", "--batch-size", "32", "--burn-in", "0", "--thinning", "2000"]
    words += ["--num-samples", "1000"]
    said, code = interrupt(words, folder, lambda: list(folder.glob("draws/draw-*")))
    assert code == 130
    assert said == f"roamax: stopped. To resume: {shlex.join(['roamax', *words, '--out', str(folder)])}\n"
    step = files.read_json(folder / "state" / "checkpoint.json")["step"]
    drawn = Draws.load(folder).num_samples
    assert step >= 2000 * drawn, "the state of the moment is kept, not one of long ago"
    # With fewer draws to take than asked for first, so that the test ends.
    main([*words[:-1], str(drawn + 1), "--out", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["draws"] == drawn + 1


@pytest.mark.parametrize(("chains", "devices"), [(1, 1), (3, 3), (100, 4)])
def test_chains_have_as_many_devices_as_there_are_cores_at_most(monkeypatch, chains, devices):
    chosen = {}
    monkeypatch.setattr(jax.config, "update", chosen.__setitem__)
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    start_jax(chains)
    assert chosen["jax_num_cpu_devices"] == devices


def test_half_a_program_in_the_cache_is_not_spoken_of():
    with warnings.catch_warnings(record=True) as spoken:
        warnings.simplefilter("always")
        start_jax()
        warnings.warn("Error reading persistent compilation cache entry for 'jit_f': ValueError: empty", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    assert [str(warning.message) for warning in spoken] == ["something else"]


def test_interrupted_meta_training_says_how_to_resume_and_resumes_there(tmp_path, capsys):
    folder = tmp_path / "meta"
    # One kind of unroll for both stages and validation, so that little has to be compiled.
    unroll = ["--stages.0.estimator", "es", "--stages.0.inner-steps", "120", "--stages.0.thinning", "10"]
    words = ["meta-train", "smoke", *unroll, "--stages.0.outer-steps", "4", "--stages.1.outer-steps", "1"]
    words += ["--valid-problems", "1", "--held-out", "64"]
    said, code = interrupt(words, folder, (folder / "state" / "checkpoint.json").exists)
    assert code == 130
    assert said.startswith("roamax: stopped. To resume: roamax meta-train smoke ")
    before = (folder / "log.csv").read_text().splitlines()
    main([*words, "--out", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["loss"] > 0
    after = (folder / "log.csv").read_text().splitlines()
    assert len(after) == 1 + 6
    assert after[:2] == before[:2], "the time in the first row shows that it was not run again"


def test_data_list_fits_a_terminal(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("ROAMAX_DATA", str(tmp_path))
    main(["data", "list"])
    shown = capsys.readouterr().out
    assert "fashion_mnist" in shown
    assert max(map(len, shown.splitlines())) <= 80
    main(["data", "list", "--json"])
    assert {"name", "licence", "present"} <= set(json.loads(capsys.readouterr().out)[0])
