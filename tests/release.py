"""Builds a release and tries it as a user would: from the wheel alone, in a new environment, outside of the repository.

    python tests/release.py                # with the Python that runs this
    python tests/release.py python3.13     # with another

The sdist is built first and the wheel from it, so that the sdist is complete. Then metadata and contents are checked,
the wheel is installed with the locked versions, and the code of the README and `roamax demo` are run. Needs the
packages of the group `release`; `make release` installs them.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from pages import blocks

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
LARGEST = 1_000_000
"""The bytes that a wheel may have, most of which are weights."""


def run(*words, cwd=ROOT, **options):
    """Run a command and stop if it fails."""
    print("$", *words, flush=True)
    return subprocess.run([str(word) for word in words], cwd=cwd, check=True, **options)


def build():
    """Build both files and return their paths."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def check_contents(sdist, wheel):
    """Check that each file holds what it must and nothing that it must not."""
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt", "tests/release.py"} <= inside
    assert not {name for name in inside if name.startswith((".ci", ".github", ".venv", "dist", "runs"))}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    assert wheel.stat().st_size < LARGEST, wheel.stat().st_size
    package = {f"roamax/{path.relative_to(ROOT / 'src' / 'roamax').as_posix()}" for path in sources()}
    assert {name for name in names if name.startswith("roamax/")} == package
    assert metadata.replace("METADATA", "licenses/LICENSE") in names
    assert (fields["Name"], fields["License-Expression"]) == ("roamax", "Apache-2.0")
    assert not fields.get_all("Project-URL"), "an address that does not exist yet"


def sources():
    """The files of the package, as Git knows them."""
    listed = run("git", "ls-files", "src/roamax", capture_output=True, text=True).stdout
    return [ROOT / line for line in listed.splitlines()]


def try_wheel(wheel, python):
    """Install the wheel in a new environment, and run what the README shows there."""
    with tempfile.TemporaryDirectory() as folder:
        away = Path(folder)
        run(python, "-m", "venv", away / "env")
        programs = away / "env" / ("Scripts" if os.name == "nt" else "bin")
        installed = programs / "python"
        run(installed, "-m", "pip", "install", "--quiet", wheel, "--constraint", ROOT / "constraints.txt")
        # Nothing of the repository, nor of whoever runs this, may help.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROAMAX", "JAX"))}
        run(installed, "-m", "pip", "check", cwd=away, env=clean)
        script = away / "readme.py"
        script.write_text("\n\n".join(blocks(ROOT / "README.md", "python")), encoding="utf-8")
        run(installed, script, cwd=away, env=clean)
        run(programs / "roamax", "--version", cwd=away, env=clean)
        run(programs / "roamax", "demo", cwd=away, env=clean)
        assert (away / "demo" / "report.html").stat().st_size > 0


if __name__ == "__main__":
    sdist, wheel = build()
    check_contents(sdist, wheel)
    try_wheel(wheel, sys.argv[1] if len(sys.argv) > 1 else sys.executable)
    print(f"{sdist.name} and {wheel.name} work.")
