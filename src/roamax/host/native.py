"""Functions in C++ that XLA calls, compiled on this machine once, where it has a compiler."""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import threading
from importlib.metadata import version
from pathlib import Path

import jax

from roamax.errors import FileError
from roamax.host import files

SWITCH = "ROAMAX_NATIVE"
"""The environment variable that turns compiled functions off, if it is 0."""
HEADER = Path(__file__).with_name("native.h")
"""What all of these functions include."""
COMPILERS = "c++", "g++", "clang++"
PATIENCE = 30
"""The seconds after which a compiler is given up."""

_logger = logging.getLogger("roamax.native")
_lock = threading.Lock()
_found: dict[str, bool] = {}


def has_function(name: str, source: Path) -> bool:
    """Return whether XLA can call the function `name` of a C++ file on CPUs; compile and register it if it cannot yet.

    Without a compiler, or if anything else fails, the answer is False, for the rest of the process.
    """
    with _lock:
        if name not in _found:
            _found[name] = _register(name, source)
        return _found[name]


def _register(name: str, source: Path) -> bool:
    if os.environ.get(SWITCH) == "0" or platform.system() not in ("Linux", "Darwin"):
        return False
    try:
        function = getattr(ctypes.CDLL(str(_built(source))), name)
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
    except (OSError, FileError, AttributeError, subprocess.SubprocessError) as error:
        _logger.debug("%s is not used: %s", name, error)
        return False
    return True


def _built(source: Path) -> Path:
    """Return the library of a C++ file, from the user's cache folder if it is there and whole."""
    import platformdirs

    content = files.read_bytes(source) + files.read_bytes(HEADER)
    library = Path(platformdirs.user_cache_dir("roamax")) / "native" / f"{source.stem}-{_key(content)}.so"
    seal = library.with_suffix(".sha256")
    try:
        # The system may kill a process that loads half a library.
        files.read_bytes(library, files.read_bytes(seal).decode())
    except (FileError, ValueError):
        files.make_folder(library.parent)
        with files.replacing(library) as part:
            _compile(source, part)
        files.write_bytes(seal, files.checksum(files.read_bytes(library)).encode())
    return library


def _key(content: bytes) -> str:
    """Return what tells libraries apart: the source, the version of XLA, and the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    except OSError:
        processor = [platform.processor()]
    parts = [platform.machine(), version("jaxlib"), *_options(), *processor]
    return hashlib.sha256(content + "\n".join(parts).encode()).hexdigest()[:16]


def _options() -> list[str]:
    tuned = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    return ["-std=c++17", "-O2", "-fopenmp-simd", tuned, "-shared", "-fPIC"]


def _compile(source: Path, target: Path) -> None:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise FileError(f"{source.name} could not be compiled: there is no C++ compiler.")
    command = [
        compiler,
        *_options(),
        f"-I{jax.ffi.include_dir()}",
        f"-I{HEADER.parent}",
        str(source),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
