"""Functions in C++: compiled once, and done without where they cannot be."""

import ctypes
import shutil

import pytest

from roamax.host import native
from roamax.samplers.learned import _kernel

ANSWER = 'extern "C" int answer() { return 42; }'


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A source file, an empty cache folder, and a process that has not looked for functions yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "_found", {})
    path = tmp_path / "source.cc"
    path.write_text(ANSWER)
    return path


@pytest.mark.skipif(not any(map(shutil.which, native.COMPILERS)), reason="there is no C++ compiler")
@pytest.mark.skipif(native.platform.system() != "Linux", reason="the cache folder is where the test says on Linux only")
def test_a_library_is_compiled_once_and_again_if_it_is_damaged_or_its_source_changed(source, monkeypatch):
    library = native._built(source)
    assert ctypes.CDLL(str(library)).answer() == 42
    first, content = library.stat().st_ino, library.read_bytes()
    assert native._built(source) == library
    assert library.stat().st_ino == first
    for damaged in (content[: len(content) // 2], content[:-1] + bytes([content[-1] ^ 1]), b""):
        # A new file, since this process has mapped the old one.
        library.unlink()
        library.write_bytes(damaged)
        assert native._built(source).read_bytes() == content
    source.write_text(ANSWER.replace("42", "43"))
    assert ctypes.CDLL(str(native._built(source))).answer() == 43
    source.write_text("not C++")
    assert not native.has_function("answer", source)
    assert sorted(path.suffix for path in library.parent.iterdir()) == [".sha256", ".sha256", ".so", ".so"]


@pytest.mark.parametrize("hindrance", [("PATH", ""), (native.SWITCH, "0")])
def test_without_a_compiler_or_switched_off_there_are_no_native_functions_and_no_error(source, monkeypatch, hindrance):
    monkeypatch.setenv(*hindrance)
    assert not native.has_function(_kernel.FUNCTION, _kernel.SOURCE)
    assert not native.has_function(_kernel.FUNCTION, source)
