"""Runs that are killed, that find no space, that are started twice, whose clock goes wrong."""

import os
import random
import signal
import subprocess
import time

import pytest

from faults import jobs
from faults.template import Template
from roamax import Draws
from roamax.errors import FileError


@pytest.fixture(scope="module")
def template():
    template = Template()
    yield template
    template.close()


@pytest.fixture
def training(monkeypatch):
    jobs.prepare_training(monkeypatch.setattr)


CAMPAIGNS = [
    ("long_sample", 2),
    pytest.param("long_sample", 50, marks=pytest.mark.slow),
    pytest.param("long_train", 50, marks=pytest.mark.slow),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("job", "kills"), CAMPAIGNS)
def test_killed_at_random_moments_a_run_ends_with_the_same_bits(job, kills, template, tmp_path, training):
    bits = jobs.chain_bits if job == "long_sample" else jobs.train_bits
    for out in ("whole", "again"):  # the second time with what has been compiled, as all others will be
        begun = time.monotonic()
        template.start(job, tmp_path / out)
        assert template.wait() == 0
        longest = time.monotonic() - begun
    whole, moments = bits(tmp_path / "whole"), random.Random(job)
    jobs.assert_same_bits(bits(tmp_path / "again"), whole)
    done, number = 0, 0
    while done < kills:
        out = tmp_path / f"broken-{number}"
        pid = template.start(job, out)
        time.sleep(moments.uniform(0, longest))
        os.kill(pid, signal.SIGKILL)
        if template.wait() == 0:
            jobs.assert_same_bits(bits(out), whole)
            number += 1
            continue
        done += 1
        if job == "long_sample":
            jobs.assert_no_listed_draw_is_damaged(out, whole)
    template.start(job, out)
    assert template.wait() == 0
    jobs.assert_same_bits(bits(out), whole)
    assert not list(out.rglob(".*.part"))


@pytest.mark.parametrize("job", ["long_sample", pytest.param("long_train", marks=pytest.mark.slow)])
def test_a_second_process_is_refused_with_the_pid_of_the_first(job, template, tmp_path, training):
    pid = template.start(job, tmp_path)
    template.wait_until_it_computes()
    while not (tmp_path / "state").exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(FileError, match=f"{tmp_path} is in use by process {pid}: wait for it"):
            getattr(jobs, job)(tmp_path)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert template.wait() == 0


class Disk:
    """A small disk of its own, mounted at `folder`."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("this process may not mount a disk")

    def remount(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)

    def unmount(self):
        subprocess.run(["umount", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path / "disk")
    yield disk
    disk.unmount()


@pytest.mark.parametrize(("job", "bits"), [("long_sample", "chain_bits"), ("train", "train_bits")])
def test_a_full_disk_stops_a_run_that_goes_on_when_there_is_space(job, bits, disk, tmp_path, training):
    run, bits = getattr(jobs, job), getattr(jobs, bits)
    run(tmp_path / "whole")
    whole = bits(tmp_path / "whole")
    out = disk.folder / "run"
    blocks = disk.folder / "blocks"
    blocks.write_bytes(bytes(64 * 1024 - 7 * 4096))
    with pytest.raises(FileError, match=rf"{disk.folder}/\S+ could not be (written|made): No space left on device"):
        run(out)
    if job == "long_sample":
        jobs.assert_no_listed_draw_is_damaged(out, whole)
    disk.remount("size=8m")
    run(out)
    jobs.assert_same_bits(bits(out), whole)


def test_a_read_only_folder_is_one_line_and_its_draws_can_be_read(disk, tmp_path):
    jobs.sample(disk.folder / "run")
    disk.remount("ro")
    try:
        for out in ("run", "other"):
            with pytest.raises(FileError, match=rf"{disk.folder}/\S+ could not be (written|made): Read-only") as caught:
                jobs.sample(disk.folder / out, num_samples=3)
            assert "\n" not in str(caught.value)
        assert Draws.load(disk.folder / "run").num_samples == 2
    finally:
        disk.remount("rw")
    for out in (disk.folder / "run", tmp_path / "unbroken"):
        jobs.sample(out, num_samples=3)
    jobs.assert_same_bits(jobs.chain_bits(disk.folder / "run"), jobs.chain_bits(tmp_path / "unbroken"))


@pytest.mark.parametrize(("job", "bits"), [("sample", "chain_bits"), ("train", "train_bits")])
def test_a_clock_that_is_set_back_or_stands_still_changes_nothing(job, bits, monkeypatch, tmp_path, training):
    run, bits = getattr(jobs, job), getattr(jobs, bits)
    shows = {"sample": {"progress": True}, "train": {"show": True}}[job]
    run(tmp_path / "whole")
    back = iter(range(10**9, 0, -3600))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: float(next(back)))
        run(tmp_path / "set-back", **shows)
        patch.setattr(time, "monotonic", lambda: 1.0)
        run(tmp_path / "still", **shows)
    for out in ("set-back", "still"):
        jobs.assert_same_bits(bits(tmp_path / out), bits(tmp_path / "whole"))
