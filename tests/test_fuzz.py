"""Hostile words on the command line and hostile JSON files: one line, exit code 2, nothing of others touched.

Command lines are generated from the help texts, so that a new command or option is tried unnamed. More of them by hand:

    ROAMAX_FUZZ=5000 pytest tests/test_fuzz.py
"""

import contextlib
import copy
import inspect
import io
import json
import math
import os
import random
import re
import shutil
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import roamax
from roamax import data, pretrained, runs
from roamax.cli import COMMANDS, main, parsing
from roamax.data import downloads
from roamax.errors import FileError, InputError
from roamax.evaluation import evaluate as evaluation
from roamax.evaluation.run import open_run, read_record
from roamax.host import files
from roamax.meta import checkpoint, engines, folder, presets
from roamax.paper.framework import registry, results
from roamax.parallel import workers
from roamax.report import page
from roamax.report.runs import write_runs_page
from roamax.samplers import registry as samplers
from roamax.sampling import runner
from roamax.sklearn.estimators import BayesianClassifier
from roamax.tasks import distributions
from targets import linear_regression

LINES = int(os.environ.get("ROAMAX_FUZZ", "200"))

HOSTILE = ["", " ", "-", "--", "None", "null", "[]", "{}", "NaN", "é", "\udcff", "\x1b[31m", "[/red]", "$x^$", "a\nb",
           "__x", "--out", "'", "%s", "{0}", "x" * 3000, "../..", "true", "0x10", "1_000"]  # fmt: skip
WHOLE = ["0", "-1", "1", "2", "3", "7", "2147483647", "2147483648", "4294967296", "9" * 19, "9" * 23, "9" * 5000, "1e3",
         "2.0", "nan", "inf"]  # fmt: skip
NUMBERS = [*WHOLE, "-0.0", "0.5", "1e-320", "1e-45", "1e38", "1e308", "1e400", "-inf", "1e", ".", "0,5"]
PATHS = ["", ".", "..", "file.txt", "folder", "folder/new", "dangling", "link", "pipe", "new/a", "file.txt/x", "run",
         "results", "[red]", "$x$", "\udcff", "x" * 300, "~", "own.npz"]  # fmt: skip
VALUES = ["0.1", "64", "null", "true", "NaN", "Infinity", '{"a":1}', "[64]", "[]", "[1.5]", '["a"]', "adam", "3", "-1",
          "", '"sgld"', "1e999", "[[1]]"]  # fmt: skip


class Reached(Exception):
    """The work that a command line asks for would begin here: it was accepted."""


def reached(*args, **named):
    raise Reached


@pytest.fixture
def no_work(monkeypatch):
    """Commands that end where their work begins."""
    monkeypatch.setattr(runner._Run, "__call__", reached)
    monkeypatch.setattr(evaluation, "_about", reached)
    monkeypatch.setattr(page, "image", lambda figure, kind: b"<svg>")
    monkeypatch.setattr(engines.LocalEngine, "__init__", reached)
    monkeypatch.setattr("roamax.meta.RayEngine", reached)
    monkeypatch.setattr(workers, "OnCores", reached)
    monkeypatch.setattr(workers, "OnRay", reached)
    monkeypatch.setattr("roamax.paper.framework.lab.Lab.__init__", reached)
    monkeypatch.setattr(downloads, "fetch_file", reached)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with files of somebody else, data of hostile kinds, a run and a result."""
    root = tmp_path_factory.mktemp("world")
    (root / "file.txt").write_text("not ours")
    (root / "folder").mkdir()
    for name in ("draws.png", ".lock", ".x.1.part", "config.json"):
        (root / "folder" / name).write_text("[]")
    (root / "dangling").symlink_to(root / "nowhere")
    (root / "link").symlink_to(root / "file.txt")
    os.mkfifo(root / "pipe")
    (root / "data").mkdir()
    np.savez(root / "data" / "few.npz", **small(5))
    np.savez(root / "data" / "none.npz", **{name: array[:, :0] if name[0] == "x" else array
                                            for name, array in small(20).items()})  # fmt: skip
    np.savez(root / "data" / "huge.npz", **small(20, label=2**31 - 2))
    (root / "data" / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (root / "data" / "gone.npz").symlink_to(root / "nowhere")
    os.mkfifo(root / "data" / "pipe.npz")
    make_run(root / "run")
    (root / "results").mkdir()
    files.write_json(root / "results" / "results.json", RESULTS)
    return root


def small(rows, label=1):
    rng = np.random.default_rng(0)
    y = np.r_[0, label, np.zeros(rows - 2, int)]
    x = rng.normal(size=(rows, 3))
    return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}


def make_run(path):
    """A run of two draws that has been evaluated."""
    words = "--options hidden=[2] --burn-in 2 --thinning 2 --num-samples 2 --batch-size 8 --quiet"
    main(["sample", "--out", str(path), *words.split()])
    files.write_json(path / "metrics.json", RECORD)


CURVE = [0.5, 0.25]
RECORD = {
    "seed": 0, "run": "run", "task": "digits/mlp", "sampler": {"name": "sgld"}, "num_chains": 1, "num_samples": 2,
    "cost": {"seconds_per_step": 0.001}, "scores": {"acc": 0.5, "nll": None},
    "diagnostics": {"parameters": {"chain_rhat_share": None, "chain_rhat_share_by_layer": {"a": {"kernel": 0.5}}}},
    "by_draws": dict.fromkeys(("draws", "acc", "nll", "ece"), CURVE),
    "reliability": dict.fromkeys(("lower", "upper", "count", "confidence", "accuracy"), CURVE),
    "traces": {"step": [10, 20], "nll": [CURVE], "norm": [CURVE]},
    "space": {
        "cosine": [CURVE, CURVE],
        "segments": {"t": CURVE, "error": [CURVE], "error_barrier": [0.1]},
        "surface": {"a": [0.0, 1.0], "b": [0.0, 1.0], "error": [[0.1, 0.2], [0.3, 0.4]], "points": [CURVE] * 3},
    },
    "ood": {"mnist": {"auroc": 0.5, "confidence": {"known": CURVE, "foreign": CURVE}}},
    "energy": {"step": [5, 10], "energy": [CURVE], "first_draw": 10, "divergent": 0},
    "nll_by_draws": {"draws": CURVE, "nll": CURVE},
    "bands": {"axis": "input", "x": CURVE, "mean": CURVE, "epistemic": CURVE, "total": CURVE,
              "points": {"x": CURVE, "y": CURVE}},
    "rejection": {"rejected": [0.0, 0.5], "acc": CURVE},
    "uncertain": [{"row": 1, "label": 0, "classes": [0, 1], "mean": CURVE, "sd": CURVE, "image": [[0, 9], [255, 1]]}],
}  # fmt: skip
RESULTS = {
    "experiment": "ood", "scale": "cpu", "seeds": [0], "notes": ["a"], "minutes": 1.5, "remarks": ["b"], "figures": [],
    "data": {}, "orderings": {"t": "All hold."}, "claims": [
        {"statement": "c", "holds": True, "data": "d", "here": [[0.5, 0.1], [0.4, None]]},
    ],
    "made_by": {"versions": {"jax": "1"}, "cores": 2, "seed": 0},
    "tables": {"t": {
        "title": "t", "heads": ["method"], "columns": ["ACC"], "compared": "columns", "digits": 3,
        "better": {"ACC": "max"}, "rows": [{"row": ["SGHMC"], "values": {"ACC": [0.5, 0.1]}}],
        "paper": [{"row": ["SGHMC"], "values": {"ACC": [0.6, None]}}],
    }},
}  # fmt: skip


def grammar(name):
    """The options and the positional arguments of a command, with the kind of value that help shows for each."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        parsing.parse(COMMANDS[name].load(), f"roamax {name}", ["--help"])
    options = dict(re.findall(r"^ +(--\w[\w.-]*)(?: (\S.*?))?(?:  .*)?$", text.getvalue(), re.MULTILINE))
    positional = re.search(r"positional arguments\n *-+\n +(\S.*?)(?:  .*)?\n", text.getvalue())
    return options, positional and positional[1]


def values(rng, kind):
    """One or more words for a kind of value, most of them of that kind."""
    if rng.random() < 0.15:
        return [rng.choice(HOSTILE)]
    if not kind:
        return []
    if "=" in kind:
        names = list(inspect.signature(rng.choice(list(samplers.RECORDS.values())).load()).parameters)
        names += [
            "hidden",
            "channels",
            "residual",
            "activation",
            "init",
            "optimizer",
            "temperatur",
            "name",
            "posterior",
            "num_steps",
            "L2E",
            "step_size",
        ]
        return [f"{rng.choice(names)}={rng.choice(VALUES)}" for _ in range(rng.randint(1, 2))]
    if kind.startswith("{"):
        return [rng.choice(re.findall(r"[\w-]+", kind))]
    kinds = {"INT": WHOLE, "N": WHOLE, "FLOAT": NUMBERS, "DIR": PATHS, "FILE": PATHS}
    for word, pool in kinds.items():
        if word in re.findall(r"[A-Z]+", kind):
            return [rng.choice(pool) for _ in range(rng.randint(1, 2) if "..." in kind else 1)]
    known = [
        *data.names(),
        "few",
        "none",
        "huge",
        "broken",
        "gone",
        "pipe",
        *samplers.names(),
        "mlp",
        "cnn",
        *registry.EXPERIMENTS,
        "bash",
        ":",
        "..:x",
        "os:system",
        "os:",
        "sys:argv",
        "smoke",
        "image",
        "ray://x",
    ]
    return [rng.choice(known)]


def line(rng, name, options, positional):
    """A command line that is right but for a few words."""
    words, wanted = name.split(), {}
    if "--out" in options and rng.random() < 0.9:
        wanted["--out"] = [f"new/{rng.randrange(10**9)}"]
    for option in rng.sample(sorted(options), min(len(options), rng.randint(0, 3))):
        if option != "--help":
            wanted[option] = values(rng, options[option])
    if positional and rng.random() < 0.95:
        words += values(rng, positional) if rng.random() < 0.5 else ["run" if "DIR" in positional else "ood"]
    return [*words, *(word for option, found in wanted.items() for word in (option, *found))]


def outcome(words, capfd):
    """The exit code of a command line, 0 if its work would begin, with the rules for a refusal checked."""
    try:
        main(words)
        code = 0
    except Reached:
        code = 0
    except SystemExit as end:
        code = end.code or 0
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err, words
    if code:
        assert code == 2, (code, words, said.err)
        assert said.err.startswith("roamax: "), (words, said.err)
        assert said.err.count("\n") == 1, (words, said.err)
    return code


def snapshot(root, *, but=()):
    """The kind and content of everything below a folder."""
    return {
        str(path): path.read_bytes() if path.is_file() else (path.is_symlink(), path.is_dir(), path.is_fifo())
        for path in sorted(root.rglob("*"))
        if not str(path.relative_to(root)).startswith(("new", *but))
    }


@pytest.mark.filterwarnings("ignore")
def test_no_command_line_ends_in_a_traceback_or_touches_what_is_not_ours(world, no_work, monkeypatch, capfd):
    monkeypatch.chdir(world)
    monkeypatch.setenv("ROAMAX_DATA", str(world / "data"))
    monkeypatch.setattr("roamax.cli.start.start_jax", lambda devices=1: None)
    rng = random.Random(os.environ.get("ROAMAX_FUZZ_SEED", "0"))
    grammars = {name: grammar(name) for name in COMMANDS}
    assert all("--num-samples" in options or name != "sample" for name, (options, _) in grammars.items())
    before, codes, found = snapshot(world), [], []
    for _ in range(LINES):
        name = rng.choice(sorted(COMMANDS))
        words = line(rng, name, *grammars[name])
        try:
            codes.append(outcome(words, capfd))
        except Exception as error:
            found.append(f"{words!r:.400} ended in {error!r:.300}")
    assert not found, "\n".join([f"{len(found)} of {LINES}:", *found[:30]])
    after = snapshot(world)
    assert {path: content for path, content in after.items() if path in before} == before
    # Neither is all refused, nor all accepted.
    assert 0.1 < np.mean(np.asarray(codes) == 2) < 0.95


SAMPLE = ["sample", "--out", "new/x"]
REFUSED = {
    "a misspelt setting": ([*SAMPLE, "--settings", "temperatur=0.1"], "did you mean 'temperature'"),
    "a setting that is not the user's": ([*SAMPLE, "--settings", "posterior=3"], "`posterior` must be a setting"),
    "an argument of ours": ([*SAMPLE, "--settings", "num_steps=3"], "`num_steps` must be a setting"),
    "a start that is no function": ([*SAMPLE, "--sampler", "ensemble", "--settings", "init=3"], "`init` must be"),
    "an optimizer by name": ([*SAMPLE, "--sampler", "ensemble", "--settings", "optimizer=adan"], "`optimizer` must be"),
    "hidden null": ([*SAMPLE, "--options", "hidden=null"], "`hidden` must be a whole number >= 1; got None"),
    "hidden true": ([*SAMPLE, "--options", "hidden=true"], "`hidden` must be a whole number >= 1; got True"),
    "hidden NaN": ([*SAMPLE, "--options", "hidden=NaN"], "`hidden` must be a whole number >= 1; got nan"),
    "hidden an object": ([*SAMPLE, "--options", 'hidden={"a":1}'], "`hidden` must not be an object"),
    "a flag that is a number": ([*SAMPLE, "--model", "cnn", "--options", "residual=3"], "`residual` must be true or f"),
    "seed -1": ([*SAMPLE, "--seed", "-1"], "`seed` must be a whole number in [0, 4294967295]; got -1"),
    "a seed of 23 digits": ([*SAMPLE, "--seed", "9" * 23], "`seed` must be a whole number in [0, 4294967295]"),
    "lr 0 with sgld": ([*SAMPLE, "--lr", "0", "--sampler", "sgld"], "`lr` must be a finite number > 0; got 0"),
    "lr 0 with psgld": ([*SAMPLE, "--lr", "0", "--sampler", "psgld"], "`lr` must be a finite number > 0; got 0"),
    "no chains": ([*SAMPLE, "--chains", "0"], "`chains` must be a whole number >= 1; got 0"),
    "no draws of cyclical": ([*SAMPLE, "--num-samples", "0", "--sampler", "cyclical"], "`num_samples` must be a whole"),
    "no members": ([*SAMPLE, "--num-samples", "0", "--sampler", "ensemble"], "`num_samples` must be a whole"),
    "a prior without width": ([*SAMPLE, "--weight-decay", "1e308"], "`weight_decay` must give a variance"),
    "too many steps": ([*SAMPLE, "--burn-in", "2147483648"], "less than 2**31 steps"),
    "data without features": ([*SAMPLE, "--data", "none"], "at least one feature"),
    "a label near 2**31": ([*SAMPLE, "--data", "huge"], "labels in y_train that are >= 0 and < 1048576"),
    "a pipe among the data": ([*SAMPLE, "--data", "pipe"], "`name` must be a known name; got 'pipe'"),
    "a value like an option": ([*SAMPLE, "--out", "folder", "--seed", "__x"], "`--seed` must be a whole number"),
    "a page without a name": (["report", "run", "--out", ""], "`out` must name a file; got '.'"),
    "a page that is a folder": (["report", "run", "--out", "."], "`out` must name a file; got '.'"),
    "a page of other JSON": (["experiment", "page", "run"], "is damaged or of another kind"),
    "tasks :": (["meta-train", "smoke", "--out", "new/m", "--tasks", ":"], "`tasks` must"),
    "tasks ..:x": (["meta-train", "smoke", "--out", "new/m", "--tasks", "..:x"], "`tasks` must"),
    "tasks os:system": (["meta-train", "smoke", "--out", "new/m", "--tasks", "os:system"], "`tasks` must"),
    "out-of-distribution data of another shape": (["evaluate", "run", "--ood", "few"], "`ood` must"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_word_is_named_in_one_line(case, world, no_work, monkeypatch, capfd):
    monkeypatch.chdir(world)
    monkeypatch.setenv("ROAMAX_DATA", str(world / "data"))
    words, says = REFUSED[case]
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capfd.readouterr().err
    assert (end.value.code, said.count("\n")) == (2, 1)
    assert says in said


@pytest.mark.filterwarnings("ignore")
def test_words_that_are_unusual_but_right_are_taken(world, no_work, monkeypatch, capfd):
    monkeypatch.chdir(world)
    monkeypatch.setenv("ROAMAX_DATA", str(world / "data"))
    for number, words in enumerate(
        (["--options", "hidden=64"], ["--data", "few", "--batch-size", "2"], ["--seed", "4294967295"])
    ):
        assert outcome(["sample", "--out", f"new/right-{number}", *words], capfd) == 0
    for name in ("[/red]", "$x^$", "a\udcff"):
        target = world / f"new {name}"
        shutil.copytree(world / "run", target)
        # Two of a kind are told apart by the names of their folders.
        files.write_json(target / "metrics.json", RECORD | {"run": target.name})
        assert outcome(["report", "run", str(target), "--out", f"new {name}.html"], capfd) == 0


def test_a_script_in_a_record_is_text_on_the_page(world, no_work, monkeypatch, capfd):
    monkeypatch.chdir(world)
    script = "<script>alert(1)</script>"
    forged = RECORD | {"run": script, "task": script, "sampler": {"name": script}, "seed": script}
    files.write_json(world / "run" / "metrics.json", forged)
    assert outcome(["report", "run", "--out", "new/page.html"], capfd) == 2
    files.write_json(world / "run" / "metrics.json", forged | {"seed": 0})
    assert outcome(["report", "run", "run", "--out", "new page.html"], capfd) == 0
    assert script not in (world / "new page.html").read_text()
    files.write_json(world / "run" / "metrics.json", RECORD)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device on this system")
def test_any_terminal_will_do(monkeypatch, capfd):
    only_ascii = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", only_ascii)
    main(["experiment", "list"])
    assert rb"epsilon\xb2" in only_ascii.buffer.getvalue()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            main(["--version"])
    assert end.value.code == 1
    assert "could not be printed: No space left on device" in capfd.readouterr().err
    monkeypatch.setattr(sys, "stdout", None)
    main(["--version"])
    sys.stdout.close()


def test_scores_that_cannot_be_kept_are_shown(world, monkeypatch, capsys):
    mixing = dict.fromkeys(("ess_mean", "rhat_share", "chain_rhat_share"), 0.5)
    record = RECORD | {"diagnostics": {"parameters": mixing, "functions": mixing}}
    monkeypatch.setattr(evaluation, "evaluate", lambda *args, **named: record)

    def refuse(path, value):
        raise FileError(f"{path} could not be written: Read-only file system.")

    monkeypatch.setattr(files, "write_json", refuse)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(world / "run")])
    said = capsys.readouterr()
    assert end.value.code == 2
    assert "0.5" in said.out
    assert "metrics.json could not be written" in said.err


@pytest.mark.parametrize("given", [{"ood": ("mnist",)}, {"corrupt": True}, {"reference": "other.npz"}])
def test_a_regression_has_no_confidence_to_measure(given):
    run: Any = SimpleNamespace(task=SimpleNamespace(is_regression=True))
    with pytest.raises(InputError, match="must not be given for a regression"):
        evaluation.evaluate(run, **given)


def hostile(value, rng):
    """A copy of a JSON value with one place in it changed, removed or of another type."""
    value = copy.deepcopy(value)
    places = list(inside(value))
    if not places or rng.random() < 0.05:
        return rng.choice([None, [], {}, "x", 3, math.nan, [value]])
    container, key = rng.choice(places)
    bad = [None, True, -1, 0, 10**400, 1.5, math.nan, math.inf, "", "../x", "\udcff\n", [], [[]], {}, {"": None}]
    if rng.random() < 0.2:
        del container[key]
    else:
        container[key] = rng.choice(bad)
    return value


def inside(value):
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from inside(value[key])


def meta_folder(path):
    """A folder of meta-training after its first step, without the training."""
    weights = {"w": np.zeros(3, np.float32)}
    state = checkpoint.TrainState(1, weights, weights, weights, 1.5, (), 7, 0.5)
    with claimed(path) as run:
        checkpoint.save(path / "state", state, run)
    return weights


@contextlib.contextmanager
def claimed(path):
    settle = partial(folder.settle, path, presets.PRESETS["smoke"], distributions.get("smoke"))
    with runs.claimed(path, settle, grows="stages") as run:
        yield run


@pytest.fixture(scope="module")
def readers(world):
    """Every JSON file that the package reads, with a function that reads it."""
    weights = meta_folder(world / "meta")
    card = world / "card"
    card.mkdir()
    shutil.copy(pretrained.FOLDER / "l2e.safetensors", card / "l2e.safetensors")
    shutil.copy(pretrained.FOLDER / "l2e.json", card / "l2e.json")
    fitted = BayesianClassifier(hidden=2, num_samples=2, burn_in=1, thinning=1, num_chains=1, random_state=0)
    fitted.fit(np.eye(3), ["a", "b", "a"]).save(world / "estimator")
    older = {**RESULTS, "experiment": "image-classification", "claims": {"c": True}}
    older["tables"] = {"t": {**RESULTS["tables"]["t"], "heads": ["a", "b"], "rows": [], "paper": []}}
    (world / "older").mkdir()
    files.write_json(world / "older" / "results.json", older)
    files.write_json(world / "hours.json", [{"experiment": "ood", "chain": "c", "chains": 3, "hours": 1.5}])
    record = world / "data" / downloads.RECORD
    files.write_json(record, {"x": f"sha256:{'0' * 64}"})

    def claim():
        with claimed(world / "meta"):
            pass

    def load_state():
        pointer = checkpoint.read_pointer(world / "meta" / "state")
        checkpoint.load(world / "meta" / "state", pointer, weights, weights)

    def load_estimator():
        BayesianClassifier.load(world / "estimator").predict_proba(np.eye(3))

    def write_report():
        named = {"run": read_record(world / "run" / "metrics.json")}
        write_runs_page(world / "new report.html", named, {"command": "", "seed": 0, "versions": {}})

    def write_page(name="results", hours=None):
        results.write_page([world / name], world / "new results.md", hours)

    return {
        "run/config.json": lambda: open_run(world / "run"),
        "run/metrics.json": write_report,
        "run/state/checkpoint.json": lambda: open_run(world / "run"),
        "run/draws/journal.jsonl": lambda: open_run(world / "run"),
        "run/statistics.jsonl": lambda: open_run(world / "run"),
        "meta/config.json": claim,
        "meta/state/checkpoint.json": load_state,
        "results/results.json": write_page,
        "older/results.json": lambda: write_page("older"),
        "hours.json": lambda: write_page(hours=world / "hours.json"),
        "card/l2e.json": lambda: roamax.l2e(linear_regression(num_data=4).posterior, card / "l2e.safetensors"),
        "estimator/estimator.json": load_estimator,
        f"data/{downloads.RECORD}": lambda: downloads._recorded(world / "data"),
    }


@pytest.mark.filterwarnings("ignore")
def test_no_json_file_ends_in_a_traceback_or_changes_another(world, readers, no_work):
    rng, found, refused = random.Random(os.environ.get("ROAMAX_FUZZ_SEED", "0")), [], 0
    for name, read in readers.items():
        path = world / name
        content = path.read_bytes()
        in_lines = path.suffix == ".jsonl"
        right = [json.loads(line) for line in content.splitlines()] if in_lines else files.read_json(path)
        read()
        sealed = isinstance(right, dict) and right.pop("seal", None) is not None
        before = snapshot(world)
        for _ in range(max(1, LINES // 10)):
            wrong = hostile(right, rng)
            entries = wrong if in_lines and isinstance(wrong, list) else [wrong]
            path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
            if sealed and isinstance(wrong, dict):
                files.write_sealed(path, wrong)
            before[str(path)] = path.read_bytes()
            try:
                read()
                before = snapshot(world)
            except (InputError, FileError) as error:
                refused += 1
                changed = [p for p, old in snapshot(world).items() if before.get(p) != old]
                if changed or "\n" in str(error):
                    found.append(f"{name}: {error} {changed}")
            except Exception as error:
                found.append(f"{name}: {error!r:.200} with {wrong!r:.300}")
        path.write_bytes(content)
    assert not found, "\n".join([f"{len(found)} files:", *found[:30]])
    assert refused > LINES // 10
