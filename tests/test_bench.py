"""The benchmarks themselves: turns, marks, what is kept, and the page that is made of it."""

import json
import os
import re
from pathlib import Path

import jax.numpy as jnp
import pytest
from benchmarks import apart, growth, page, peers, suite, timing, zoo
from benchmarks.__main__ import OTHERS, main
from benchmarks.timing import Contest, Mark, Spread

from roamax.host import files


class Clock:
    """Time that passes only when told to."""

    def __init__(self):
        self.now = 0.0

    def work(self, *durations):
        """A turn that takes these seconds, one after the other."""
        left = list(durations)

        def turn():
            self.now += left.pop(0)

        return turn

    def measure(self, turn):
        return timing.seconds_of(turn, clock=lambda: self.now)


def test_contestants_take_turns_and_ratios_are_those_within_a_round():
    clock = Clock()
    # A machine that slows down threefold hits both; the first round, which compiles, does not count.
    contestants = {"ours": clock.work(99, 2, 6, 4), "theirs": clock.work(99, 4, 12, 4)}
    found = timing.hold(Contest("x", contestants, Mark("ours", "theirs", at_most=0.6), 2.0, measure=clock.measure), 3)
    assert (found["low"], found["median"], found["high"]) == (0.5, 0.5, 0.75)
    assert found["holds"]
    assert found["values"]["theirs"]["median"] == 2.0, "for one unit of work"


def test_turns_are_interleaved():
    order = []
    timing.take_turns({name: lambda name=name: order.append(name) for name in "ab"}, rounds=2)
    assert order == ["a", "b"] * 3


@pytest.mark.parametrize(
    ("mark", "number", "holds"),
    [
        (Mark("a", "b", at_most=1.5), 1.5, True),
        (Mark("a", "b", at_most=1.4), 1.5, False),
        (Mark("a", "b", at_least=1.7), 1.5, False),
        (Mark("a", "b", "difference", at_most=1.0), 1.0, True),
        (Mark("b", kind="value", at_most=1.9), 2.0, False),
        (Mark("a", timing.BEST, at_most=1.4), 1.5, False),
    ],
)
def test_marks_bound_ratios_differences_and_values(mark, number, holds):
    found = mark.of({"a": 3.0, "b": 2.0})
    assert found == number
    assert mark.holds(found) == holds


def test_the_spread_of_one_value_is_that_value():
    assert Spread.of([2.0]) == (2.0, 2.0, 2.0)


def test_the_roofline_is_the_slower_of_memory_and_arithmetic():
    assert growth.network_flops() == 2 * 2 * (9 * 32 + 32 * 32 + 32 * 2)
    assert growth.least_seconds("SGHMC", 1e6, flops=1e3, bandwidth=1e9) == pytest.approx(4 * 4e6 / 1e9)
    assert growth.least_seconds("L2E", 1e6, flops=1e9, bandwidth=1e12) == pytest.approx(5.504)
    assert growth.least_seconds("L2E", 1e6, flops=1e15, bandwidth=1e9) == pytest.approx(16 * 4e6 / 1e9)


def test_memory_of_a_step_is_counted_in_floats_per_parameter():
    sampler = growth.bare_samplers()["SGHMC"]
    # Position, momentum, noise and gradient at least; the noise takes scratch.
    assert 3 <= growth.floats_per_parameter(sampler, 10**5) <= 9


def arrays(count):
    """A process with so many devices, and memory of its own."""
    import jax

    before = apart.peak_megabytes()
    jnp.ones(2**24).block_until_ready()
    return {"devices": jax.device_count(), "grown": apart.peak_megabytes() - before, "count": count}


def test_what_runs_apart_has_its_own_devices_and_memory(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    found = apart.call(arrays, 3, devices=2)
    assert (found["devices"], found["count"]) == (2, 3)
    assert 55 < found["grown"] < 300, "64 MB, and what JAX takes to start"


def breaks():
    raise ValueError("no peer today")


def test_what_fails_apart_says_why(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    with pytest.raises(apart.Failed, match="no peer today"):
        apart.call(breaks)


CONTEST = {"what": "x against y", "mark": Mark("x", "y", at_most=1.1)._asdict(), "rounds": 3, "low": 0.9, "median": 1.2,
           "high": 1.3, "holds": False, "unit": "s",
           "values": {"x": Spread(1e-3, 0.0012, 0.002)._asdict(), "y": Spread(1e-3, 1e-3, 1e-3)._asdict()}}  # fmt: skip
STEPS = {"low": 1e-3, "median": 2e-3, "high": 3e-3}
GROWN = {
    "limits": {"flops": 5e10, "bytes": 1e10},
    "by-parameters": {"rows": [{"parameters": n, "sampler": s, **STEPS, "floats": 5.0} for n in (10**4, 10**7)
                               for s in ("SGHMC", "L2E")]},
    "by-chains": {"rows": [{"chains": n, **STEPS} for n in (1, 16)]},
    "by-draws": {"rows": [{"draws": n, "megabytes": 400.0} for n in (10, 1000)]},
    "by-inner-steps": {"rows": [{"inner_steps": n, "seconds": n / 100, "megabytes": 300.0} for n in (40, 400)]},
}  # fmt: skip


def step_of(sampler, network, seconds, **first):
    spread = {"low": seconds, "median": seconds, "high": seconds}
    return {"network": network, "parameters": 100, "batch": 32, "cores": 2, "sampler": sampler, "seconds": seconds,
            "cpu_seconds": 2 * seconds, "ratio": spread, **first}  # fmt: skip


ZOO = [
    step_of("SGHMC", "MLP 196-32-10", 1.0, cold_seconds=3.0, cold_cpu_seconds=2.0, warm_seconds=1, warm_cpu_seconds=1),
    step_of("roam", "MLP 196-32-10", 1.2),
    step_of("L2E", "MLP 196-32-10", 3.1, cold_seconds=3.0, cold_cpu_seconds=5.0, warm_seconds=1, warm_cpu_seconds=1),
    step_of("SGHMC", "a network of another version", 1.0),
]


def test_steps_and_first_steps_have_marks_of_their_network():
    found = {one["what"]: (one["number"], one["at_most"], one["holds"]) for one in zoo.verdicts(ZOO)}
    assert found == {
        "step of roam against SGHMC, MLP 196-32-10, 2 cores": (1.2, 1.25, True),
        "step of L2E against SGHMC, MLP 196-32-10, 2 cores": (3.1, 3.0, False),
        "first step of L2E against SGHMC, MLP 196-32-10": (2.5, 2.0, False),
    }


def results(**entries):
    return {"versions": {"jax": "0.1"}, "machine": {"cores": 2, "processor": "abacus"}, "entries": entries}


def test_the_page_is_made_of_the_results_alone(tmp_path):
    entries = {"runner": CONTEST, "posteriors": {"skipped": "not there"}, "zoo": {"rows": ZOO[:3]}, **GROWN}
    files.write_json(tmp_path / "in.json", results(**entries))
    main(["page", str(tmp_path / "in.json"), "--out", str(tmp_path / "docs.md"), "--quiet"])
    text = (tmp_path / "docs.md").read_text()
    assert "| x against y | 1.20 | 0.90 to 1.30 | ≤ 1.1 | no | 3 | x 1.2 ms, y 1 ms |" in text
    assert "- posteriors: not there" in text
    assert "2 cores of abacus" in text
    assert "50 GFLOP/s" in text
    assert "| 10,000,000 | L2E | 2 ms | 0.2 ns | " in text
    assert "| MLP 196-32-10 | 100 | 32 | 2 | 1 s (2 s) | 1.20 (1.20) | **3.10** (3.10) |" in text
    assert "| MLP 196-32-10 | L2E | 3.0 s (5.0 s) | **2.50** | 1.0 s (1.0 s) |" in text
    assert "1 of 4 contests are within their marks" in text
    assert (tmp_path / "images" / "docs-networks.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "images" / "docs.png").read_bytes().startswith(b"\x89PNG")
    assert files.read_json(tmp_path / "docs.json") == files.read_json(tmp_path / "in.json")


def test_a_page_of_contests_alone_has_no_figure(tmp_path):
    files.write_json(tmp_path / "in.json", results(runner=CONTEST))
    assert page.write_page(tmp_path / "in.json", tmp_path / "page.md") == []
    assert "Growth" not in (tmp_path / "page.md").read_text()


@pytest.fixture
def one_contest(monkeypatch):
    """The suite with contests that are settled at once, in this process."""
    clock = Clock()

    def contest():
        return Contest("x", {"x": clock.work(1, 1, 1), "y": clock.work(1, 2, 2)}, Mark("x", "y", at_most=1.0),
                       measure=clock.measure)  # fmt: skip

    entries = {"quick": suite.Entry(contest), "other": suite.Entry(contest), "broken": suite.Entry(breaks),
               "absent": suite.Entry(contest, needs=("noo",))}  # fmt: skip

    def call(function, *arguments, devices):
        try:
            return function(*arguments)
        except ValueError as error:
            raise apart.Failed(str(error)) from error

    monkeypatch.setattr(suite, "ENTRIES", entries)
    monkeypatch.setattr(apart, "call", call)


def test_names_measured_again_replace_their_records_and_others_stay(one_contest, tmp_path):
    out = tmp_path / "bench.json"
    found = dict(suite.run(["quick", "absent", "broken"], 2, out))
    assert found["quick"]["median"] == 0.5
    assert "pip install noo" in found["absent"]["skipped"]
    assert found["broken"] == {"skipped": "failed: no peer today"}
    list(suite.run(["other"], 1, out))
    kept = files.read_json(out)
    assert list(kept["entries"]) == ["quick", "other", "broken", "absent"]
    assert kept["entries"]["other"]["rounds"] == 1
    elsewhere = {"versions": {"jax": "another"}, "machine": {"cores": 8, "processor": "brain"}}
    files.write_json(out, {**kept, **elsewhere})
    list(suite.run(["quick"], 1, out))
    list(suite.run(["absent"], 1, out))
    mixed = files.read_json(out)
    assert mixed["versions"] == kept["versions"]
    assert {name: record.get("elsewhere") for name, record in mixed["entries"].items()} == {
        "quick": None, "other": elsewhere, "broken": elsewhere, "absent": None
    }  # fmt: skip
    assert "Not so `other`, `broken`: on 8 cores of brain, with jax another." in page.page_text(mixed, out)


def test_the_command_shows_a_table_and_writes_the_results(one_contest, tmp_path, capsys):
    out = tmp_path / "bench.json"
    main(["--only", "quick", "absent", "--rounds", "1", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "absent: left out" in shown
    assert "0.50" in shown
    assert "yes" in shown
    main(["--only", "quick", "--rounds", "1", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out) == files.read_json(out)
    facts = json.dumps(files.read_json(out))
    assert str(tmp_path) not in facts


def test_a_real_contest_from_the_command_line(tmp_path, capsys):
    main(["--only", "help", "--rounds", "1", "--out", str(tmp_path / "bench.json"), "--json"])
    record = json.loads(capsys.readouterr().out)["entries"]["help"]
    assert record["median"] > 0
    assert record["mark"]["at_most"] == 0.7


def test_the_help_text_names_everything_that_is_measured(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert {*suite.ENTRIES, *OTHERS} <= set(re.findall(r"\w[\w-]*", capsys.readouterr().out))


@pytest.mark.parametrize("name", OTHERS)
def test_help_of_the_others_fits_a_terminal_and_has_an_example(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    told = capsys.readouterr().out
    assert f"    python -m benchmarks {name}" in told
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "predict-cn"], "did you mean 'predict-cnn'"),
        (["--only", "help", "--rounds", "0"], "`rounds` must be a whole number >= 1; got 0"),
        (["conv", "--one-cre"], "did you mean '--one-core'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words)
    text = capsys.readouterr().err
    assert end.value.code == 2
    assert text.count("\n") == 1
    assert says in text
    assert not list(tmp_path.iterdir())


def test_peers_that_are_not_installed_are_noticed():
    assert peers.missing("no_such_package")
    assert not peers.missing("jax")
