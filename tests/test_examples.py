"""Every example runs, and what it prints is what it is there to show."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

FOLDER = Path(__file__).parent.parent / "examples"
OWN_PROCESS = ("several_devices",)
"""Those that set up JAX before it starts."""
NEEDS = {"pytorch_loop": "torch"}

# What is printed, and between which numbers; at the small size that tests take, not all of it is impressive.
SHOWS = {
    "continue_a_run": [(r"unbroken run: (True)", None), (r"refused: .*`num_samples` is (10)", None)],
    "equinox_module": [(r"accuracy (\S+),", (0.9, 1.0))],
    "flax_linen": [(r"acc (\S+),", (0.9, 1.0)), (r"sample size (\S+),", (1.0, 10.0))],
    "flax_nnx": [(r"data are: error (\S+),", (0.0, 0.2))],
    "log_density": [(r"roamax: mu (\S+) ±", (3.9, 4.9)), (r"tau (\S+) ±", (3.0, 4.3))],
    "out_of_distribution": [(r"3 draws: accuracy (\S+) on", (0.9, 1.0)), (r"3 draws.*AUROC (\S+) ", (0.8, 1.0))],
    "own_sampler": [(r"sghmc: variance (\S+),", (1.2, 1.6)), (r"baoab: variance (\S+),", (0.9, 1.1))],
    "own_tasks": [(r"best weights: (\S+)", (0.0, 2.0)), (r"not seen: accuracy (\S+)", (0.0, 1.0))],
    "plain_functions": [(r"Gaussian prior: accuracy (\S+),", (0.9, 1.0)), (r"Student-t.*, NLL (\S+)", (0.0, 0.2))],
    "pytorch_loop": [(r"5 draws: accuracy (\S+),", (0.9, 1.0)), (r"5 draws.*NLL (\S+)", (0.0, 0.3))],
    "scikit_learn": [(r"wine: NLL (\S+) ", (0.0, 0.5)), (r"diabetes: R2 (\S+);", (0.2, 0.7)), (r"; (\d+)%", (75, 100))],
    "several_devices": [(r"on (\d) devices", (2, 2)), (r"all: NLL (\S+)", (0.0, 0.4))],
    "text": [(r"accuracy (\S+),", (0.8, 1.0))],
}


def test_every_example_is_tested():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SHOWS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.extras] if name in NEEDS else []) for name in SHOWS]
)
def test_example(name, capsys, plain_jax):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name in OWN_PROCESS:
        command = [sys.executable, str(FOLDER / f"{name}.py"), "--quick"]
        environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
        printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    else:
        load(name).main(quick=True)
        printed = capsys.readouterr().out
    for pattern, bounds in SHOWS[name]:
        found = re.search(pattern, printed)
        assert found, printed
        if bounds is not None:
            assert bounds[0] <= float(found[1]) <= bounds[1], printed


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
