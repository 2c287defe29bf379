"""Data sets: parsers of the published formats, downloads, files of the user's, splits, toys, augmentation."""

import gzip
import hashlib
import io
import json
import re
import shutil
import struct
import tarfile
import threading
import tracemalloc
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import published_files as published
from roamax import data
from roamax.data import archives, corruptions, downloads, registry, text, toys
from roamax.data import dataset as datasets
from roamax.data.formats import cifar, idx, images, matlab, npz, reviews
from roamax.errors import FileError, InputError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


# --- the published formats


def write_mnist(folder):
    arrays = {"x_train": published.images(6, 28, 28), "y_train": published.labels(6, 10),
              "x_test": published.images(3, 28, 28), "y_test": published.labels(3, 10)}  # fmt: skip
    paths = [published.write(folder, f"{name}.gz", published.idx(array)) for name, array in arrays.items()]
    return idx.mnist, paths, arrays


def write_emnist(folder):
    arrays = {"x_train": published.images(6, 28, 28), "y_train": published.labels(6, 26) + 1,
              "x_test": published.images(3, 28, 28), "y_test": published.labels(3, 26) + 1}  # fmt: skip
    path = published.emnist(folder / "gzip.zip", "letters", arrays)
    upright = {name: array.transpose(0, 2, 1) if name[0] == "x" else array - 1 for name, array in arrays.items()}
    return idx.emnist("letters", 1), [path], upright


def write_medmnist(folder):
    parts = {"train": 6, "val": 2, "test": 3}
    arrays = {f"{part}_images": published.images(number, 28, 28, 3) for part, number in parts.items()}
    arrays |= {f"{part}_labels": published.labels(number, 8)[:, None] for part, number in parts.items()}
    np.savez_compressed(folder / "bloodmnist.npz", **arrays)
    ours = {"train": "train", "val": "valid", "test": "test"}
    expected = {f"x_{ours[part]}": arrays[f"{part}_images"] for part in parts}
    expected |= {f"y_{ours[part]}": arrays[f"{part}_labels"] for part in parts}
    return npz.medmnist, [folder / "bloodmnist.npz"], expected


def write_cifar10(folder):
    parts = [published.images(2, 3, 32, 32) for _ in range(6)]
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)] + ["cifar-10-batches-bin/test_batch.bin"]
    y = published.labels(2, 10)
    path = published.tar(folder / "cifar.tar.gz", {
        "cifar-10-batches-bin/batches.meta.txt": b"airplane\n",
        **{name: published.cifar_records(part, y) for name, part in zip(names, parts, strict=True)},
    })  # fmt: skip
    expected = {"x_train": np.concatenate(parts[:5]).transpose(0, 2, 3, 1), "y_train": np.tile(y, 5),
                "x_test": parts[5].transpose(0, 2, 3, 1), "y_test": y}  # fmt: skip
    return registry.REGISTRY["cifar10"].read, [path], expected


def write_cifar100(folder):
    train, test = published.images(4, 3, 32, 32), published.images(2, 3, 32, 32)
    fine, coarse = np.asarray([99, 3, 50, 7], np.uint8), np.asarray([19, 0, 10, 1], np.uint8)
    path = published.tar(folder / "cifar.tar.gz", {
        "cifar-100-binary/train.bin": published.cifar_records(train, coarse, fine),
        "cifar-100-binary/test.bin": published.cifar_records(test, coarse[:2], fine[:2]),
    })  # fmt: skip
    expected = {"x_train": train.transpose(0, 2, 3, 1), "y_train": fine,
                "x_test": test.transpose(0, 2, 3, 1), "y_test": fine[:2]}  # fmt: skip
    return registry.REGISTRY["cifar100"].read, [path], expected


def write_svhn(folder):
    expected = {"x_train": published.images(4, 32, 32, 3), "y_train": np.asarray([0, 1, 9, 0], np.uint8),
                "x_test": published.images(2, 32, 32, 3), "y_test": np.asarray([5, 0], np.uint8)}  # fmt: skip
    paths = [published.svhn(folder / f"{part}.mat", expected[f"x_{part}"], np.where(expected[f"y_{part}"] == 0, 10,
             expected[f"y_{part}"]).astype(np.uint8)) for part in ("train", "test")]  # fmt: skip
    return matlab.svhn, paths, expected


def write_cifar10_c(folder):
    path = published.cifar10_c(folder / "c.tar", corruptions.KINDS, 2)
    codes = [10 * place + severity for place in range(15) for severity in range(1, 6)]
    pixels = np.repeat(np.asarray(codes, np.uint8), 2)[:, None, None, None]
    expected = {"x_test": np.broadcast_to(pixels, (150, 32, 32, 3)), "y_test": np.tile([0, 1], 75)}
    return cifar.cifar10_c, [path], expected


def write_notmnist(folder):
    pixels = published.images(3, 28, 28)
    names = ["notMNIST_small/B/x.png", "notMNIST_small/A/y.png", "notMNIST_small/J/z=.png"]
    members = {name: published.picture(image, "PNG") for name, image in zip(names, pixels, strict=True)}
    path = published.tar(
        folder / "n.tar.gz", {**members, "notMNIST_small/F/empty.png": b"", "notMNIST_small/._A": b"?"}
    )
    return images.notmnist, [path], {"x_test": pixels[[1, 0, 2]], "y_test": np.asarray([0, 1, 9])}


def flat_pictures(*levels):
    """Pictures of one colour, which JPEG keeps as it is."""
    return [np.full((64, 64, 3), level, np.uint8) for level in levels]


def write_tiny_imagenet(folder):
    train = {"n00000002": flat_pictures(10, 20), "n00000001": flat_pictures(30)}
    valid = {"n00000001": flat_pictures(40), "n00000002": flat_pictures(50)}
    path = published.tiny_imagenet(folder / "t.zip", train, valid)
    levels = (
        np.asarray([30, 10, 20], np.uint8)[:, None, None, None],
        np.asarray([40, 50], np.uint8)[:, None, None, None],
    )
    expected = {"x_train": np.broadcast_to(levels[0], (3, 64, 64, 3)), "y_train": np.asarray([0, 1, 1]),
                "x_test": np.broadcast_to(levels[1], (2, 64, 64, 3)), "y_test": np.asarray([0, 1])}  # fmt: skip
    return images.tiny_imagenet(64), [path], expected


def write_imdb(folder):
    path = published.tar(folder / "i.tar.gz", {
        "aclImdb/README": b"",
        "aclImdb/train/pos/0_9.txt": b"Good, GOOD film!<br /><br />Isn't it?",
        "aclImdb/train/neg/0_1.txt": b"bad film",
        "aclImdb/train/unsup/0_0.txt": b"ignored",
        "aclImdb/test/pos/1_8.txt": b"a good 'bad' film",
    })  # fmt: skip
    words = {"film": 2, "good": 3, "!": 4, "?": 5, "bad": 6, "isn't": 7, "it": 8}
    rows = [["bad", "film"], ["good", "good", "film", "!", "isn't", "it", "?"], ["a", "good", "bad", "film"]]
    ids = np.zeros((3, 400), np.int32)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = [words.get(token, 1) for token in tokens]
    return reviews.imdb, [path], {"x_train": ids[:2], "y_train": np.asarray([0, 1]),
                                  "x_test": ids[2:], "y_test": np.asarray([1])}  # fmt: skip


WRITERS = {
    write.__name__.removeprefix("write_"): write
    for write in (write_mnist, write_emnist, write_medmnist, write_cifar10, write_cifar100, write_svhn, write_cifar10_c,
                  write_notmnist, write_tiny_imagenet, write_imdb)
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_a_published_format_is_parsed_exactly(name, tmp_path):
    parse, paths, expected = WRITERS[name](tmp_path)
    arrays = parse(*paths)
    assert arrays.keys() == expected.keys()
    for key in expected:
        np.testing.assert_array_equal(arrays[key], expected[key], err_msg=key)


def test_tiny_imagenet_at_half_size_is_the_mean_of_four_pixels(tmp_path):
    ramp = np.linspace(0, 250, 64).astype(np.uint8)
    picture = np.broadcast_to(ramp[:, None, None], (64, 64, 3)).copy()
    path = published.tiny_imagenet(tmp_path / "t.zip", {"n00000001": [picture]}, {"n00000001": [picture]})
    whole, half = images.tiny_imagenet(64)(path)["x_test"], images.tiny_imagenet(32)(path)["x_test"]
    np.testing.assert_array_equal(half, np.rint(whole.reshape(1, 32, 2, 32, 2, 3).mean((2, 4))).astype(np.uint8))


def test_grey_jpegs_become_colour_images(tmp_path):
    grey = np.full((64, 64), 77, np.uint8)
    path = published.tiny_imagenet(tmp_path / "t.zip", {"n00000001": [grey]}, {"n00000001": [grey]})
    np.testing.assert_array_equal(images.tiny_imagenet(64)(path)["x_train"], np.full((1, 64, 64, 3), 77))


@pytest.mark.skipif(not DEBIAN.exists(), reason="needs Debian's package dataset-fashion-mnist")
def test_the_real_files_of_fashion_mnist():
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    arrays = idx.mnist(*(DEBIAN / f"{name}-ubyte.gz" for name in names))
    assert {name: array.shape for name, array in arrays.items()} == {
        "x_train": (60000, 28, 28), "y_train": (60000,), "x_test": (10000, 28, 28), "y_test": (10000,)}  # fmt: skip
    assert np.bincount(arrays["y_train"]).tolist() == [6000] * 10
    assert arrays["y_train"][:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert abs(arrays["x_train"].mean() / 255 - 0.2860) < 1e-4


# --- damaged files


def outcome(parse, paths):
    try:
        with archives.reading(paths[0]):
            parse(*paths)
    except FileError as error:
        return str(error)
    return "parsed"


@pytest.mark.parametrize("name", WRITERS)
def test_damage_never_raises_anything_but_one_line(name, tmp_path):
    parse, paths, _ = WRITERS[name](tmp_path)
    contents = [path.read_bytes() for path in paths]

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.data())
    def run(draw):
        victim = draw.draw(st.integers(0, len(paths) - 1))
        content = bytearray(contents[victim])
        if draw.draw(st.booleans()):
            del content[draw.draw(st.integers(0, len(content) - 1)) :]
        else:
            for place in draw.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=5)):
                content[place] ^= draw.draw(st.integers(1, 255))
        paths[victim].write_bytes(content)
        message = outcome(parse, paths)
        assert message == "parsed" or (str(tmp_path) in message and "\n" not in message)
        paths[victim].write_bytes(contents[victim])

    run()


def absurd_idx(folder):
    path = published.write(folder, "a.gz", gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 2**16, 2**5, 2**5)))
    return lambda: idx.idx(path.read_bytes())


def absurd_npz(folder):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**26,)})
    path = published.zipped(folder / "a.npz", {"x_test.npy": header.getvalue()})
    return lambda: archives.npz_arrays(path, lambda name: True)


def absurd_tar(folder):
    path = published.tar(folder / "a.tar.gz", {"aclImdb/train/pos/0_9.txt": bytes(2**26)})
    return lambda: reviews.imdb(path)


def absurd_zip(folder):
    name = "tiny-imagenet-200/train/n00000001/images/n00000001_0.JPEG"
    path = published.zipped(folder / "a.zip", {name: bytes(2**26)})
    return lambda: images.tiny_imagenet(64)(path)


def matlab_element(kind, content):
    return struct.pack("<2I", kind, len(content)) + content + bytes(-len(content) % 8)


def absurd_matlab(folder, compressed=False):
    """A matrix X with flags, lengths and a name as they should be, and data of 64 MB that are not there."""
    flags, lengths = struct.pack("<2I", 9, 0), struct.pack("<4i", 32, 32, 3, 2**26 // 3072)
    body = (
        matlab_element(6, flags) + matlab_element(5, lengths) + matlab_element(1, b"X") + struct.pack("<2I", 2, 2**26)
    )
    matrix = matlab_element(14, body)
    matrix = matlab_element(15, zlib.compress(matrix)) if compressed else matrix
    path = published.write(folder, "a.mat", b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM" + matrix)
    return lambda: matlab.svhn(path, path)


def absurd_matlab_compressed(folder):
    return absurd_matlab(folder, compressed=True)


def absurd_picture(folder):
    content = bytearray(published.picture(np.zeros((28, 28), np.uint8), "PNG"))
    struct.pack_into(">2I", content, 16, 9000, 9000)
    struct.pack_into(">I", content, 29, zlib.crc32(content[12:29]))
    path = published.tar(folder / "a.tar.gz", {"notMNIST_small/A/x.png": bytes(content)})
    return lambda: images.notmnist(path)


ABSURD = [
    absurd_idx, absurd_npz, absurd_tar, absurd_zip, absurd_matlab, absurd_matlab_compressed, absurd_picture
]  # fmt: skip


@pytest.mark.parametrize("make", ABSURD)
def test_a_header_that_claims_too_much_allocates_no_memory(make, tmp_path):
    parse = make(tmp_path)
    with pytest.raises(FileError), archives.reading(tmp_path):  # the decoders' modules, out of the measurement
        parse()
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"format \(.*(claims|more than|9000 × 9000)"), archives.reading(tmp_path):
            parse()
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_what_an_archive_calls_its_members_leads_nowhere(tmp_path):
    """Nothing is unpacked, so names with .. and links are just not the ones that are looked for."""
    folder = tmp_path / "data"
    folder.mkdir()
    parse, (path,), expected = write_cifar100(folder)
    with tarfile.open(path) as archive:
        members = {info.name: archive.extractfile(info).read() for info in archive}
    published.tar(path, {"../escaped": b"x", "/roamax_escaped": b"x", **members})
    np.testing.assert_array_equal(parse(path)["y_train"], expected["y_train"])
    link = tarfile.TarInfo("cifar-100-binary/train.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(link)
    with pytest.raises(FileError, match=r"is missing"), archives.reading(path):
        parse(path)
    assert sorted(tmp_path.rglob("*")) == [folder, path]


def test_the_damaged_one_of_several_files_is_named(tmp_path):
    parse, paths, _ = write_mnist(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:50])
    with pytest.raises(FileError, match=r"x_test\.gz is damaged"), archives.reading(paths[0]):
        parse(*paths)


# --- downloads


@pytest.fixture
def server(monkeypatch):
    """Files by path, served on this machine; `counts` says how often each was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.counts[self.path] = self.counts.get(self.path, 0) + 1
            content = self.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"") + 100 * self.path.endswith("short")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *args):
            pass

    Handler.files, Handler.counts = {}, {}
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        Handler.root = f"http://127.0.0.1:{running.server_port}"
        yield Handler
        running.shutdown()


CONTENT = b"published"
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


def register(monkeypatch, *urls, checksum=SHA256, read=None, slow=False):
    file = registry.File("new/file.bin", urls, len(CONTENT), checksum)
    entry = registry.Entry("new", 2, (4,), 2, 2, "MIT", read or read_new, (file,), slow)
    monkeypatch.setitem(registry.REGISTRY, "new", entry)
    return file


def read_new(path):
    assert path.read_bytes() == CONTENT
    x = np.arange(8.0).reshape(2, 4)
    return {"x_train": x, "y_train": np.asarray([0, 1]), "x_test": x + 1, "y_test": np.asarray([1, 0])}


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_fetch_then_load(monkeypatch, server, tmp_path, capsys):
    server.files["/file"] = CONTENT
    register(monkeypatch, f"{server.root}/file")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with pytest.raises(FileError, match=r"new is not in .*: run `roamax data fetch new`, or put new\.npz"):
        data.load("new", tmp_path)
    assert data.fetch("new", tmp_path) == [tmp_path / "new/file.bin"]
    shown = capsys.readouterr().err
    assert "file.bin" in shown
    assert "9/9 bytes" in shown
    assert data.fetch("new", tmp_path, progress=False) == [tmp_path / "new/file.bin"]
    assert capsys.readouterr().err == ""
    assert server.counts == {"/file": 1}
    loaded = data.load("new", tmp_path)
    assert loaded.num_classes == 2
    np.testing.assert_array_equal(loaded.y_test, [1, 0])
    assert files_in(tmp_path) == ["new/file.bin"]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (
            "/wrong",
            r"What 127\.0\.0\.1 serves as file\.bin is not the published file: its md5 differs\. Nothing was kept\.",
        ),
        ("/absent", r"file\.bin could not be fetched: 127\.0\.0\.1 answered 404\."),
        ("/short", r"file\.bin could not be fetched: no connection to 127\.0\.0\.1, or it broke\."),
        ("down", r"file\.bin could not be fetched: no connection to 127\.0\.0\.1, or it broke\."),
    ],
)
def test_a_failed_download_leaves_nothing_and_says_what_to_do(path, complaint, monkeypatch, server, tmp_path):
    server.files |= {"/wrong": b"something", "/short": CONTENT}
    url = "http://127.0.0.1:9/file" if path == "down" else server.root + path
    register(monkeypatch, url, checksum="md5:" + hashlib.md5(CONTENT).hexdigest())
    with pytest.raises(FileError, match=f"^{complaint} Try again later, or save {url} as .*file.bin by") as caught:
        data.fetch("new", tmp_path, progress=False)
    assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == []


def test_the_second_address_serves_when_the_first_does_not(monkeypatch, server, tmp_path):
    server.files["/file"] = CONTENT
    register(monkeypatch, f"{server.root}/absent", f"{server.root}/file")
    assert data.fetch("new", tmp_path, progress=False)[0].read_bytes() == CONTENT


def test_a_file_that_is_not_the_published_one_is_refused_and_left_alone(monkeypatch, server, tmp_path):
    server.files["/file"] = CONTENT
    register(monkeypatch, f"{server.root}/file")
    path = published.write(tmp_path, "new/file.bin", CONTENT[:4])
    for get in (data.load, data.fetch):
        with pytest.raises(
            FileError, match=r"file\.bin is not the published file: its sha256 differs\. Remove it, and"
        ):
            get("new", tmp_path)
    assert path.read_bytes() == CONTENT[:4]
    path.write_bytes(CONTENT)
    data.load("new", tmp_path)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(FileError, match="sha256 differs"):
        data.load("new", tmp_path)


def test_nothing_is_parsed_before_its_checksum_is_right(monkeypatch, tmp_path):
    def parse(path):
        pytest.fail("parsed before it was checked")

    register(monkeypatch, "http://127.0.0.1:9/file", read=parse)
    published.write(tmp_path, "new/file.bin", CONTENT[:-1] + b"?")
    with pytest.raises(FileError, match="sha256 differs"):
        data.load("new", tmp_path)


def test_without_a_published_checksum_the_first_download_is_held_to(monkeypatch, server, tmp_path):
    server.files["/file"] = CONTENT[:-1]
    file = register(monkeypatch, f"{server.root}/file", checksum=None)
    with pytest.raises(FileError, match="is not the published file: it has 8 bytes, not 9"):
        data.fetch("new", tmp_path, progress=False)
    assert files_in(tmp_path) == []
    server.files["/file"] = CONTENT
    data.fetch("new", tmp_path, progress=False)
    recorded = json.loads((tmp_path / downloads.RECORD).read_text())
    assert recorded == {file.path: SHA256}
    shutil.rmtree(tmp_path / "new")
    server.files["/file"] = CONTENT[::-1]
    with pytest.raises(FileError, match="is not the first fetched file: its sha256 differs"):
        data.fetch("new", tmp_path, progress=False)
    row = next(row for row in data.table(tmp_path) if row.name == "new")
    assert (row.present, row.checksum) == (False, "recorded")


def test_what_is_slow_to_parse_is_kept_whole_or_not_at_all(monkeypatch, tmp_path):
    register(monkeypatch, "http://127.0.0.1:9/file", slow=True)
    published.write(tmp_path, "new/file.bin", CONTENT)

    def interrupted(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", interrupted)
        with pytest.raises(KeyboardInterrupt):
            data.load("new", tmp_path)
    assert files_in(tmp_path) == ["new/file.bin"]
    first = data.load("new", tmp_path)
    assert files_in(tmp_path) == ["new.npz", "new/file.bin"]
    shutil.rmtree(tmp_path / "new")
    for now, then in zip(data.load("new", tmp_path), first, strict=True):
        np.testing.assert_array_equal(now, then)


def test_published_sizes_are_held_to(monkeypatch, tmp_path):
    def fewer(path):
        return {name: array[:1] for name, array in read_new(path).items()}

    register(monkeypatch, "http://127.0.0.1:9/file", read=fewer)
    published.write(tmp_path, "new/file.bin", CONTENT)
    with pytest.raises(FileError, match=r"shapes \(2, 4\) and \(2, 4\); got \(1, 4\) and \(1, 4\)"):
        data.load("new", tmp_path)


def test_the_registry_is_well_formed():
    paths = {}
    for name, entry in registry.REGISTRY.items():
        assert entry.licence
        assert entry.what
        assert (name in ("cifar10_c", "notmnist")) == (entry.num_train == 0)
        for file in entry.files:
            assert paths.setdefault(file.path, file) == file
            assert re.fullmatch(r"[a-z0-9_]+/[A-Za-z0-9_.-]+", file.path)
            assert file.num_bytes > 0
            assert all(re.match(r"https?://", url) for url in file.urls)
            assert file.checksum is None or re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.checksum)
    kinds = {row.name: row.checksum for row in data.table("/nowhere")}
    assert (kinds["mnist"], kinds["bloodmnist"]) == ("sha256", "md5")
    assert (kinds["notmnist"], kinds["digits"]) == ("recorded", None)


# --- files of the user's


def arrays_for_npz(**changes):
    arrays = {"x_train": published.images(5, 28, 28), "y_train": published.labels(5, 10),
              "x_test": published.images(3, 28, 28), "y_test": published.labels(3, 10)}  # fmt: skip
    return {name: array for name, array in {**arrays, **changes}.items() if array is not None}


def test_the_users_file_comes_before_the_published_ones(tmp_path, monkeypatch):
    arrays = arrays_for_npz()
    np.savez(tmp_path / "mnist.npz", **arrays)
    published.write(tmp_path, "mnist/train-images-idx3-ubyte.gz", b"not looked at")
    monkeypatch.setenv("ROAMAX_DATA", str(tmp_path))
    assert data.data_dir() == tmp_path
    loaded = data.load("mnist")
    assert loaded.x_train.shape == (5, 28, 28, 1)
    assert (loaded.x_train.dtype, loaded.y_train.dtype, loaded.num_classes) == (np.uint8, np.int32, 10)
    np.testing.assert_array_equal(loaded.x_test[..., 0], arrays["x_test"])
    assert data.fetch("mnist") == [tmp_path / "mnist.npz"]
    assert {row.name for row in data.table() if row.present} >= {"mnist", "digits"}


def test_medmnists_own_npz_is_taken_under_the_same_name(tmp_path):
    _, _, expected = write_medmnist(tmp_path)
    loaded = data.load("bloodmnist", tmp_path)
    np.testing.assert_array_equal(loaded.x_train, expected["x_train"])
    np.testing.assert_array_equal(loaded.y_valid, expected["y_valid"][:, 0])
    assert [len(part[0]) for part in data.split(loaded)] == [6, 2, 3]


def test_any_npz_is_a_data_set_of_its_name(tmp_path):
    np.savez(tmp_path / "letters.npz", x_test=published.images(4, 9, 9, 3), y_test=published.labels(4, 3), names=["a"])
    np.savez(tmp_path / "line.npz", **arrays_for_npz(x_train=np.ones(5), y_train=np.ones(5), x_test=np.zeros(3),
                                                     y_test=np.zeros((3, 1))))  # fmt: skip
    np.savez(tmp_path / "words.npz", x_test=np.ones((2, 7), np.uint16), y_test=[True, False])
    np.savez(tmp_path / "reference.npz", probs=np.ones((2, 3)))
    (tmp_path / "broken.npz").write_bytes(b"PK")
    letters, line, words = (data.load(name, tmp_path) for name in ("letters", "line", "words"))
    assert (letters.x_train.shape, letters.num_classes) == ((0, 9, 9, 3), 3)
    assert (line.x_test.shape, line.y_test.shape, line.y_test.dtype, line.num_classes) == ((3, 1), (3,), np.float32, 0)
    assert (words.x_test.dtype, words.num_classes) == (np.int32, 2)
    own = {row.name: row for row in data.table(tmp_path) if row.name not in data.names()}
    assert own.keys() == {"letters", "line", "words", "broken"}
    assert (own["letters"].classes, own["letters"].sizes, own["line"].classes) == (3, (0, 4), 0)
    assert own["broken"].what.startswith("damaged")
    with pytest.raises(FileError, match=r"reference\.npz must hold x_train, y_train, x_test and y_test"):
        data.load("reference", tmp_path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"x_test": None}, "must hold x_train, y_train, x_test and y_test"),
        ({"x_train": None, "y_train": None, "x_test": None, "y_test": None, "y": [0], "x": [0.0]}, "; got x, y"),
        ({"x_test": published.images(0, 28, 28), "y_test": published.labels(0, 10)}, "at least one test example"),
        ({"y_train": None}, "as many rows in x_train as in y_train; got 5 and none"),
        ({"y_train": published.labels(4, 10)}, "as many rows in x_train as in y_train; got 5 and 4"),
        ({"x_train": published.images(5, 27, 28)}, "examples of one kind and shape in its train and test sets"),
        ({"x_train": published.images(5, 14, 14), "x_test": published.images(3, 14, 14)}, r"of shape \(28, 28, 1\)"),
        ({"x_test": published.images(3, 1, 28, 28)}, r"channels of x_test last; got shape \(3, 1, 28, 28\)"),
        ({"x_test": np.full((3, 4), np.nan)}, "finite in single precision; got NaN or infinity"),
        ({"x_test": np.full((3, 4), 1e300)}, "finite in single precision; got NaN or infinity"),
        ({"x_test": np.asarray(["a", "b", "c"])}, "must hold in x_test uint8 images .*; got <U1 of shape"),
        ({"y_test": np.asarray([0, 1, 10])}, "labels below 10; got labels up to 10"),
        ({"y_test": np.asarray([0, 1, -1])}, "labels in y_test that are >= 0"),
        ({"y_test": np.zeros((3, 10), int)}, "whole labels"),
        ({"y_test": np.zeros(3), "y_train": np.zeros(5)}, "labels below 10; got real targets"),
        ({"y_test": np.asarray([1, 2, None])}, "pickled objects, which are never read"),
    ],
)  # fmt: skip
def test_a_wrong_npz_is_one_line(changes, complaint, tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays_for_npz(**changes))
    with pytest.raises(FileError, match=complaint) as caught:
        data.load("mnist", tmp_path)
    assert str(tmp_path / "mnist.npz") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_an_npz_is_one_line(tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays_for_npz())
    content = (tmp_path / "mnist.npz").read_bytes()
    (tmp_path / "mnist.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match=r"mnist\.npz is damaged or of another format .*: replace it, or remove it"):
        data.load("mnist", tmp_path)


def test_flipped_bits_in_an_npz_are_noticed(tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays_for_npz())
    content = bytearray((tmp_path / "mnist.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(FileError, match="CRC"):
        data.load("mnist", tmp_path)


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    with pytest.raises(InputError, match="did you mean 'fashion_mnist'"):
        data.load("fashion_mnits", tmp_path)
    np.savez(tmp_path / "zebrafish.npz", **arrays_for_npz())
    with pytest.raises(InputError, match="did you mean 'zebrafish'"):
        data.load("zebrafis", tmp_path)
    for get in (data.load, data.fetch):
        with pytest.raises(InputError, match="known:"):
            get("../../etc/x", tmp_path / "nowhere")


# --- splits


def numbered(name, length):
    x = np.arange(length, dtype=np.float32)[:, None]
    return datasets.Dataset(name, x, np.arange(length, dtype=np.int32), x[:7], np.arange(7, dtype=np.int32), length)


@pytest.mark.parametrize(
    ("name", "length", "num_valid", "held_out"),
    [("cifar10", 50_000, None, 9_040), ("cifar100", 50_000, None, 9_040), ("cifar10", 500, None, 50),
     ("mnist", 300, None, 30), ("cifar10", 50_000, 100, 100), ("mnist", 300, 0, 0)],
)  # fmt: skip
def test_a_split_holds_out_what_it_says(name, length, num_valid, held_out):
    train, valid, test = data.split(numbered(name, length), num_valid)
    assert (len(train[0]), len(valid[0]), len(test[0])) == (length - held_out, held_out, 7)
    assert sorted([*train[1], *valid[1]]) == list(range(length))
    for x, y in (train, valid):
        np.testing.assert_array_equal(x[:, 0].astype(int), y)


def test_a_split_follows_from_its_seed():
    held_out = [set(data.split(numbered("mnist", 300), 30, seed).valid[1].tolist()) for seed in (0, 0, 1)]
    assert held_out[0] == held_out[1]
    assert len(held_out[0] & held_out[2]) < 15


@pytest.mark.parametrize("num_valid", [-1, 300, 0.5, True])
def test_a_split_of_nothing_is_refused(num_valid):
    with pytest.raises(InputError, match=r"`num_valid` must be a whole number in \[0, 299\]; got"):
        data.split(numbered("mnist", 300), num_valid)


# --- made data


def test_the_papers_regression_and_the_one_with_a_gap():
    whole, gap = data.load("regression_1d", "/nowhere"), data.load("regression_1d_gap", "/nowhere")
    for loaded in (whole, gap):
        assert (loaded.x_train.shape, loaded.y_train.shape, loaded.num_classes) == ((1000, 1), (1000,), 0)
        assert -5 <= loaded.x_train.min() < -4.9
        assert 3.9 < loaded.x_train.max() <= 4
        np.testing.assert_allclose(loaded.y_train, np.sin(loaded.x_train[:, 0]), atol=1e-6)
        np.testing.assert_allclose(loaded.y_test, np.sin(loaded.x_test[:, 0]), atol=1e-6)
    assert not np.any((gap.x_train > -1) & (gap.x_train < 1))
    assert abs(np.mean((whole.x_train > -1) & (whole.x_train < 1)) - 2 / 9) < 0.04
    assert abs(np.mean(gap.x_train < 0) - 4 / 7) < 0.05
    noisy = toys.regression_1d(noise=0.2)
    assert 0.18 < np.std(noisy["y_train"] - np.sin(noisy["x_train"][:, 0])) < 0.22


def test_digits_are_the_whole_set_once():
    loaded = data.load("digits", "/nowhere")
    assert (loaded.x_train.shape, loaded.x_test.shape) == ((1437, 8, 8, 1), (360, 8, 8, 1))
    assert (loaded.x_train.dtype, loaded.x_train.max()) == (np.uint8, 255)
    everything = np.concatenate([loaded.x_train, loaded.x_test]).reshape(1797, -1)
    from sklearn.datasets import load_digits

    original, labels = load_digits(return_X_y=True)
    assert sorted(np.rint(everything * (16 / 255)).tolist()) == sorted(original.tolist())
    np.testing.assert_array_equal(np.sort(np.concatenate([loaded.y_train, loaded.y_test])), np.sort(labels))


ANGLES = np.pi * (np.arange(100) + 0.5) / 100
UPPER = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
MOONS = np.concatenate([UPPER, [1.0, 0.5] - UPPER])
RING = 4 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)


def mixture_density(points, centres, scale):
    squares = ((points[:, None] - centres) ** 2).sum(2)
    return np.exp(-squares / (2 * scale**2)).mean(1) / (2 * np.pi * scale**2)


@pytest.mark.parametrize(
    ("make", "centres", "scale"), [(toys.two_moons, MOONS, 0.1), (toys.ring_of_gaussians, RING, 0.3)]
)
def test_points_in_the_plane_come_from_mixtures_of_gaussians(make, centres, scale):
    side = np.linspace(-6, 6, 301)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    density = mixture_density(grid, centres, scale)
    weights = density * (side[1] - side[0]) ** 2
    assert abs(weights.sum() - 1) < 1e-3
    x = make(num=20_000)["x_train"]
    mean, spread = weights @ grid, weights @ (grid**2)
    np.testing.assert_allclose(x.mean(0), mean, atol=0.08)
    np.testing.assert_allclose((x**2).mean(0), spread, rtol=0.03)
    entropy = -np.sum(weights * np.log(np.maximum(density, 1e-300)))
    assert abs(-np.log(mixture_density(x, centres, scale)).mean() - entropy) < 0.03


def test_labels_of_the_toys_say_which_part():
    ring = data.load("ring_of_gaussians", "/nowhere")
    angles = np.arctan2(ring.x_train[:, 1], ring.x_train[:, 0])
    np.testing.assert_array_equal(np.rint(angles / (np.pi / 4)).astype(int) % 8, ring.y_train)
    moons = data.load("two_moons", "/nowhere")
    np.testing.assert_allclose(np.linalg.norm(moons.x_train[moons.y_train == 0], axis=1), 1, atol=0.4)
    np.testing.assert_allclose(np.linalg.norm(moons.x_train[moons.y_train == 1] - [1, 0.5], axis=1), 1, atol=0.4)


# --- text


def test_a_vocabulary_is_the_commonest_words_and_the_rest_is_unknown():
    documents = [text.tokens(line) for line in ("b a b c", "a b!", "It's <br />80's rock'n'roll -- c?")]
    assert documents[2] == ["it's", "80's", "rock'n'roll", "c", "?"]
    words = text.vocabulary(documents, 5)
    assert words == {"b": 2, "a": 3, "c": 4}
    np.testing.assert_array_equal(text.encode(documents, words, 4), [[2, 3, 2, 4], [3, 2, 1, 0], [1, 1, 1, 4]])


# --- augmentation


def coded_images(number, dtype):
    """Every pixel of every image is another number, never 0."""
    return jnp.asarray(1 + np.arange(number * 5 * 6).reshape(number, 5, 6, 1), dtype)


def all_crops(image, padding):
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    height, width = image.shape[:2]
    places = [(row, column) for row in range(2 * padding + 1) for column in range(2 * padding + 1)]
    crops = [padded[row : row + height, column : column + width] for row, column in places]
    return {(*place, flipped): crop[:, ::-1] if flipped else crop
            for place, crop in zip(places, crops, strict=True) for flipped in (False, True)}  # fmt: skip


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.float32])
def test_every_crop_and_flip_comes_up_equally_often(dtype):
    image = coded_images(1, dtype)[0]
    crops = {np.asarray(crop).tobytes(): place for place, crop in all_crops(np.asarray(image), 1).items()}
    augment = jax.jit(data.augment, static_argnames="padding")
    out = np.asarray(augment(jax.random.key(0), jnp.broadcast_to(image, (3600, *image.shape)), padding=1))
    assert out.dtype == dtype
    counts = np.unique([str(crops[one.tobytes()]) for one in out], return_counts=True)[1]
    assert len(counts) == 18
    assert np.sum((counts - 200) ** 2 / 200) < 40.8  # the 99.9 % quantile of chi² with 17 degrees of freedom


def test_each_image_is_augmented_from_itself_with_padding_4():
    images = coded_images(8, jnp.float32)
    out = np.asarray(jax.jit(data.augment)(jax.random.key(1), images))
    for image, changed in zip(np.asarray(images), out, strict=True):
        assert any(np.array_equal(changed, crop) for crop in all_crops(image, 4).values())


def test_augmentation_is_a_function_of_the_key_under_every_transformation():
    images, keys = coded_images(4, jnp.uint8), jax.random.split(jax.random.key(2), 3)
    jitted = jax.jit(data.augment)
    under_jit = np.stack([jitted(key, images) for key in keys])
    assert not np.array_equal(under_jit[0], under_jit[1])
    under_vmap = jax.jit(jax.vmap(data.augment, (0, None)))(keys, images)
    under_scan = jax.lax.scan(lambda carry, key: (carry, data.augment(key, images)), 0, keys)[1]
    np.testing.assert_array_equal(under_vmap, under_jit)
    np.testing.assert_array_equal(under_scan, under_jit)


def test_without_padding_and_flip_nothing_changes():
    images = coded_images(4, jnp.float32)
    np.testing.assert_array_equal(data.augment(jax.random.key(0), images, padding=0, flip=False), images)


def test_augmentation_refuses_what_is_no_batch_of_images():
    with pytest.raises(InputError, match="`images` must have shape"):
        data.augment(jax.random.key(0), jnp.zeros((4, 28, 28)))
    with pytest.raises(InputError, match="`padding` must be a whole number >= 0; got -1"):
        data.augment(jax.random.key(0), jnp.zeros((4, 28, 28, 1)), padding=-1)
