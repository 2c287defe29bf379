"""The contests of start-up: the time before anything happens."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import apart
from benchmarks.timing import Contest, Mark

COMMAND = "from roamax.cli import main; main()"
IMPORT = "import roamax; roamax.sample, roamax.predict, roamax.sghmc, roamax.l2e, roamax.Posterior"
PATIENCE = 300.0


def help_text() -> Contest:
    """Measure `roamax --help`."""
    return Contest("seconds to `roamax --help`", {"roamax --help": partial(_python, COMMAND, "--help")},
                   Mark("roamax --help", kind="value", at_most=0.7))  # fmt: skip


def importing() -> Contest:
    """Compare `import roamax`, including all that sampling needs, with `import jax`."""
    contestants = {"import roamax": partial(_python, IMPORT), "import jax": partial(_python, "import jax, jax.numpy")}
    return Contest("seconds that `import roamax` takes beyond `import jax`", contestants,
                   Mark("import roamax", "import jax", "difference", at_most=0.3))  # fmt: skip


def second_start() -> Contest:
    """Compare two starts of the demo up to its first draw: with an empty compilation cache, and with a full one."""
    caches: list[tempfile.TemporaryDirectory] = []

    def first() -> None:
        caches[:] = [tempfile.TemporaryDirectory()]
        _until_first_draw(Path(caches[0].name))

    contestants: dict[str, Callable[[], None]] = {
        "first start": first,
        "second start": lambda: _until_first_draw(Path(caches[0].name)),
    }
    return Contest("first start of the demo against the second, up to the first draw", contestants,
                   Mark("first start", "second start", at_least=2.0))  # fmt: skip


def _python(code: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)


def _until_first_draw(cache: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", COMMAND, "demo", "--quiet", "--out", folder]
        with subprocess.Popen(words, env=apart.environment(cache=cache), stderr=subprocess.DEVNULL) as process:
            begun = time.monotonic()
            while not any(Path(folder).glob("runs/*/draws/draw-*")):
                if process.poll() is not None or time.monotonic() - begun > PATIENCE:
                    process.kill()
                    raise apart.Failed("the demo took no draw.")
                time.sleep(0.01)
            process.kill()
