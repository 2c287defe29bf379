"""A process with all modules loaded that forks a run at a time, so that a kill does not cost a start of Python.

Nothing computes before the fork: XLA's threads do not survive it.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HEAVY = "jax jax.numpy flax.core optax safetensors.numpy scipy.stats roamax.sampling roamax.meta.trainer pytest"


class Template:
    """Runs of `faults.jobs`, each in a process of its own."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="roamax-compiled-")
        cache = {"JAX_COMPILATION_CACHE_DIR": self._folder.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        tests = str(Path(__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", "from faults.template import serve; serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **cache, "PYTHONPATH": os.pathsep.join([tests, *sys.path])},
        )  # fmt: skip
        self._expect("ready")

    def start(self, job: str, out: Path) -> int:
        """Begin a job; the pid of its process."""
        self._say(f"{job} {out}")
        return int(self._expect("pid"))

    def wait(self) -> int:
        """How the process ended: 0, or minus the number of the signal that it died of. Its pid is its own till then."""
        self._say("wait")
        return int(self._expect("end"))

    def wait_until_it_computes(self) -> None:
        """Return when the job that was started is about to run."""
        self._expect("running")

    def close(self) -> None:
        """End the template."""
        self._process.communicate("", timeout=60)
        self._folder.cleanup()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> str:
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            assert line, "the template has died"
            if line.startswith(word):
                return line.removeprefix(word)


def serve() -> None:
    """Fork a process for every line of standard input, `JOB FOLDER`, and tell how it ended when asked to wait."""
    for name in HEAVY.split():
        importlib.import_module(name)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        job, out = line.split()
        pid = os.fork()
        if pid == 0:
            _run(job, out)
        print("pid", pid, flush=True)
        sys.stdin.readline()
        print("end", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run(job: str, out: str) -> None:
    try:
        jobs = importlib.import_module("faults.jobs")
        jobs.prepare_training()
        print("running", flush=True)
        getattr(jobs, job)(out)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = 1
    os._exit(code)
