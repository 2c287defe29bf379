"""Meta-training on a real Ray cluster of two workers, one of them killed half-way."""

import dataclasses
import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from roamax import meta, tasks
from roamax.errors import InputError
from test_meta import SMALL, TASKS, last_weights, timeless

ray = pytest.importorskip("ray")

from roamax.meta import RayEngine  # noqa: E402
from roamax.meta.jobs import Job  # noqa: E402
from roamax.parallel.cluster import WorkersLost  # noqa: E402

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("default")]

CONFIG = dataclasses.replace(
    SMALL,
    stages=(
        meta.Stage("es", 3, 20, 2, 5, pairs=2, learning_rate=0.01),
        meta.Stage("nres", 4, 20, 2, 5, truncation=10, pairs=1, learning_rate=0.01),
        meta.Stage("tbptt", 1, 20, 2, 5, pairs=2, learning_rate=0.01),
    ),
)


@pytest.fixture(scope="module")
def cluster():
    # The workers find the tasks' functions where this process did.
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}}
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(num_cpus=2, runtime_env=environment, **quiet)
    yield
    ray.shutdown()


class KillsAWorker(RayEngine):
    """Before the fifth batch of jobs, in the middle of a persistent unroll, one of the two workers dies."""

    calls = 0
    killed = 0
    pids_after: tuple[int, ...] = ()

    def run(self, meta_params, jobs):
        type(self).calls += 1
        if self.calls == 8:
            type(self).killed = self.worker_pids()[-1]
            os.kill(self.killed, signal.SIGKILL)
        results = super().run(meta_params, jobs)
        type(self).pids_after = tuple(self.worker_pids())
        return results


def test_a_cluster_that_loses_a_worker_gives_the_numbers_of_the_local_engine(cluster, tmp_path):
    meta.train(CONFIG, tmp_path / "local", tasks=TASKS)
    meta.train(CONFIG, tmp_path / "ray", tasks=TASKS, engine=partial(KillsAWorker, workers=2))
    assert KillsAWorker.killed not in (0, *KillsAWorker.pids_after)
    assert timeless(tmp_path / "ray" / "log.csv") == timeless(tmp_path / "local" / "log.csv")
    local, remote = last_weights(tmp_path / "local"), last_weights(tmp_path / "ray")
    assert all(np.array_equal(local[name], remote[name]) for name in local)


def test_an_error_in_a_job_comes_back_as_itself(cluster, tmp_path):
    absent = tasks.TaskDistribution("absent", (tasks.TaskSpec("nothing_of_that_name", "mlp"),))
    with pytest.raises(InputError, match="nothing_of_that_name"):
        meta.train(CONFIG, tmp_path, tasks=absent, engine=partial(RayEngine, workers=1))


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_workers_that_never_get_up_are_given_up_on(cluster):
    engine = RayEngine(CONFIG, Deadly(), workers=1)
    try:
        with pytest.raises(WorkersLost):
            engine.run({}, [Job(0, 0, np.zeros(2, np.uint32))])
    finally:
        engine.close()
