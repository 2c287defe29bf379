"""Jobs in processes of their own: in order, one core each, and gone when they are not wanted any more."""

import gc
import os
import select
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

from roamax.errors import InputError, check
from roamax.host import interrupts
from roamax.host.machine import usable_cores
from roamax.parallel.workers import Here, hired
from roamax.sklearn.estimators import BayesianClassifier

WORK = """
import os, signal, time
from roamax.parallel.workers import hired

# A job in the background starts with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__main__":
    with hired("local", None, 2, False) as workers:
        print(*set(workers.map(os.getpid, [()] * 8)), flush=True)
        workers.map(time.sleep, [(600,)] * 4)
"""


def test_jobs_come_back_in_order_from_one_core_each():
    with hired("local", None, 2, False) as workers:
        assert workers.map(divmod, [(number, 3) for number in range(6)]) == [divmod(number, 3) for number in range(6)]
        if hasattr(os, "sched_setaffinity"):
            assert workers.map(usable_cores, [()] * 3) == [1, 1, 1]
        with pytest.raises(ZeroDivisionError):
            workers.map(divmod, [(1, 1), (1, 0)])


def test_a_worker_that_is_killed_is_an_error_that_says_what_to_do():
    with hired("local", None, 2, False) as workers, pytest.raises(InputError, match=r"`workers` must .* got 2"):
        workers.map(os._exit, [(9,)])


@pytest.mark.extras
@pytest.mark.filterwarnings("default")
def test_jobs_go_to_a_ray_cluster_and_errors_come_back_as_they_were():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with hired("ray", None, None, False) as workers:
            assert workers.count == 2
            assert workers.map(divmod, [(number, 3) for number in range(4)]) == [divmod(n, 3) for n in range(4)]
            with pytest.raises(InputError, match="`workers` must be >= 1"):
                workers.map(check, [(False, "workers", "be >= 1", 0)])
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    with pytest.raises(InputError, match="`workers` must be left to the cluster"), hired("ray", None, 2, False):
        pass


def test_one_worker_is_this_process():
    with hired("local", None, 1, False) as workers:
        assert isinstance(workers, Here)
        assert workers.map(os.getpid, [()]) == [os.getpid()]
    with (
        pytest.raises(InputError, match=r"`workers` must be a whole .* got 0"),
        hired("local", None, 0, False),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_hired_them(number, tmp_path):
    script = tmp_path / "work.py"
    script.write_text(WORK)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert pids
        time.sleep(1)
        os.kill(parent.pid, number)
        parent.wait(60)
    deadline = time.monotonic() + 60
    while any(map(_is_alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_interrupt_during_garbage_collection_is_not_lost_and_ends_a_sleep():
    heard = []

    def collected(phase, info):
        if not heard:
            heard.append(phase)
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, interrupts.interrupt)
    gc.callbacks.append(collected)
    try:
        gc.collect()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
        assert time.monotonic() - begun < 9
    finally:
        gc.callbacks.remove(collected)
        signal.signal(signal.SIGINT, before)
    assert heard


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore")
def test_a_fit_in_a_forked_process_says_so_instead_of_waiting():
    jnp.zeros(3).block_until_ready()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The child of a test: it must end here, whatever happens.
        try:
            BayesianClassifier().fit(np.eye(4), [0, 1, 0, 1])
        except InputError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], 60)
        assert ready
        assert b"`fork` must not be" in os.read(read, 1000)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
