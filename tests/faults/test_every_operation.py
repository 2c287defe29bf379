"""Runs broken off at every single file operation: what is there stays good, and resuming gives the same bits."""

import itertools

import pytest

from faults import jobs
from faults.disks import FaultyDisk, Killed
from roamax.errors import FileError

WAYS = [
    *(pytest.param(fault, every, id=fault) for fault, every in (("killed", 5), ("fails", 13), ("full", 15))),
    *(
        pytest.param(fault, 1, id=f"{fault}-everywhere", marks=pytest.mark.slow)
        for fault in ("killed", "fails", "full")
    ),
]
"""How a run is broken off, and at which operations: one of so many."""


def break_off(monkeypatch, run, out, number, fault) -> bool:
    """Run until the operation of that number fails; whether there was one."""
    with monkeypatch.context() as patch:
        disk = FaultyDisk(patch, number, fault)
        try:
            run(out)
        except Killed:
            assert fault == "killed"
        except FileError as error:
            message = str(error)
            assert fault != "killed"
            assert_names(out, message)
            assert message.endswith(": No space left on device.")
        return disk.was_reached


def assert_names(folder, message):
    assert str(folder) in message
    assert "\n" not in message


def campaign(monkeypatch, run, bits, tmp_path, fault, every, check=lambda out, whole: None):
    run(tmp_path / "whole")
    whole = bits(tmp_path / "whole")
    for number in itertools.count(1, every):
        out = tmp_path / f"{fault}-{number}"
        if not break_off(monkeypatch, run, out, number, fault):
            return number
        check(out, whole)
        run(out)
        jobs.assert_same_bits(bits(out), whole)
    return None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("fault", "every"), WAYS)
def test_chains(fault, every, monkeypatch, tmp_path):
    check = jobs.assert_no_listed_draw_is_damaged
    points = campaign(monkeypatch, jobs.sample, jobs.chain_bits, tmp_path, fault, every, check)
    assert points > 50


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("fault", "every"), WAYS)
def test_meta_training(fault, every, monkeypatch, tmp_path):
    jobs.prepare_training(monkeypatch.setattr)
    points = campaign(monkeypatch, jobs.train, jobs.train_bits, tmp_path, fault, every)
    assert points > 50
