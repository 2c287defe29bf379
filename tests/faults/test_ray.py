"""A cluster whose workers are killed, hang or return nonsense, a driver that is killed: the weights are the same."""

import itertools
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import jax
import pytest

from faults import jobs
from roamax.meta import log
from test_meta import use_toy_family

ray = pytest.importorskip("ray")

from roamax.meta import RayEngine, engines  # noqa: E402
from roamax.parallel.cluster import WorkersLost  # noqa: E402

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("default")]

TESTS = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
"""Where workers find the tests, and the package that is tested."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # Workers that come in the place of others find compiled what those had.
    cache = {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
             "jax_persistent_cache_min_compile_time_secs": 0.0}  # fmt: skip
    before = {name: getattr(jax.config, name) for name in cache}
    for name, value in cache.items():
        jax.config.update(name, value)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    context = ray.init(num_cpus=2, runtime_env={"env_vars": {"PYTHONPATH": TESTS}}, **quiet)
    yield context.address_info["address"]
    ray.shutdown()
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def whole(monkeypatch, tmp_path):
    """What the local engine makes of the run."""
    jobs.prepare_training(monkeypatch.setattr)
    jobs.train(tmp_path / "whole")
    return jobs.train_bits(tmp_path / "whole")


def actor(folder, spoil):
    """Workers of the toy family that note their pids in `folder`, and let `spoil` at their results."""

    class Actor(engines._RemoteWorker):
        def __init__(self, *arguments):
            use_toy_family()
            (folder / str(os.getpid())).touch()
            super().__init__(*arguments)

        def run(self, meta_params, job):
            return spoil(partial(super().run, meta_params, job))

    return Actor


def honest(compute):
    return compute()


def once(path):
    """Whether this is the first call of all workers with that path."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def train(out, **options):
    engine = options.pop("engine", RayEngine)
    return jobs.train(out, engine=partial(engine, workers=2, **options))


class Hunted(RayEngine):
    """In every other batch of jobs a worker is killed, at a random moment."""

    folder = Path()
    kills = 0
    calls = itertools.count()
    chance = random.Random(0)

    def run(self, meta_params, jobs):
        if next(self.calls) % 2 == 1:
            threading.Timer(self.chance.uniform(0, 0.1), self.kill).start()
        return super().run(meta_params, jobs)

    def kill(self):
        alive = [int(path.name) for path in self.folder.iterdir() if Path(f"/proc/{path.name}").exists()]
        os.kill(self.chance.choice(alive), signal.SIGKILL)
        type(self).kills += 1


@pytest.mark.slow
def test_workers_killed_at_random(cluster, whole, monkeypatch, tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    monkeypatch.setattr(engines, "_RemoteWorker", actor(folder, honest))
    monkeypatch.setattr(Hunted, "folder", folder)
    train(tmp_path / "ray", engine=Hunted)
    assert Hunted.kills >= 2
    jobs.assert_same_bits(jobs.train_bits(tmp_path / "ray"), whole)


@pytest.mark.parametrize("fault", ["hangs", "returns NaN"])
def test_a_worker_that_hangs_or_returns_nan(fault, cluster, whole, monkeypatch, tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()

    def spoil(compute):
        bad = folder / "bad"
        if once(bad):
            bad.write_text(str(os.getpid()))
        result = compute()
        if bad.read_text() != str(os.getpid()):
            return result
        (folder / "spoiled").touch()
        if fault == "hangs":
            time.sleep(10**6)
        return result._replace(loss=math.nan)

    monkeypatch.setattr(engines, "_RemoteWorker", actor(folder, spoil))
    train(tmp_path / "ray", job_seconds=30.0)
    assert (folder / "spoiled").exists()
    jobs.assert_same_bits(jobs.train_bits(tmp_path / "ray"), whole)


@pytest.mark.slow
def test_a_loss_that_all_workers_find_to_be_nan_is_one(cluster, monkeypatch, tmp_path):
    (tmp_path / "marks").mkdir()
    jobs.prepare_training(monkeypatch.setattr)
    spoil = lambda compute: compute()._replace(loss=math.nan)  # noqa: E731 (to be sent by value)
    monkeypatch.setattr(engines, "_RemoteWorker", actor(tmp_path / "marks", spoil))
    jobs.train(tmp_path / "ray", engine=partial(RayEngine, workers=2))
    assert [row.bad for row in log.read_rows(tmp_path / "ray" / "log.csv")[1:]] == ["2", "2", "2"]


@pytest.mark.slow
def test_jobs_that_always_hang_are_given_up(cluster, monkeypatch, tmp_path):
    (tmp_path / "marks").mkdir()
    jobs.prepare_training(monkeypatch.setattr)
    monkeypatch.setattr(engines, "_RemoteWorker", actor(tmp_path / "marks", lambda compute: time.sleep(10**6)))
    with pytest.raises(WorkersLost, match=r"a job took more than 0\.2 s"):
        jobs.train(tmp_path / "ray", engine=partial(RayEngine, workers=1, job_seconds=0.2))


DRIVER = """
import sys
from functools import partial
from pathlib import Path
import ray
ray.init(address=sys.argv[1], log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": sys.argv[3]}})
from faults import jobs, test_ray
from roamax.meta import engines
jobs.prepare_training()
engines._RemoteWorker = test_ray.actor(Path(sys.argv[2]) / "pids", test_ray.honest)
test_ray.train(Path(sys.argv[2]) / "ray")
"""


def test_a_driver_that_is_killed_and_started_again(cluster, whole, monkeypatch, tmp_path):
    (tmp_path / "pids").mkdir()
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, cluster, str(tmp_path), TESTS]
    driver = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": TESTS})
    journal = tmp_path / "ray" / "log.csv"
    while not journal.exists() or len(log.read_rows(journal)) < 2:
        assert driver.poll() is None, "the driver ended before it could be killed"
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    assert not (tmp_path / "ray" / "results.json").exists()
    monkeypatch.setattr(engines, "_RemoteWorker", actor(tmp_path / "pids", honest))
    train(tmp_path / "ray")
    jobs.assert_same_bits(jobs.train_bits(tmp_path / "ray"), whole)
