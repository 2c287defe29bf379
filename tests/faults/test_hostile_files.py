"""Damaged and hostile files: one line that names the file, or the right content; nothing else.

Bytes are flipped, cut, doubled and overwritten with absurd numbers; values in JSON are replaced by what nobody expects,
with and without the seal made anew, as an attacker would.
"""

import copy
import functools
import json
import resource
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roamax
from faults import jobs
from roamax import Draws, runs
from roamax.data import archives, dataset
from roamax.data.downloads import RECORD, verify
from roamax.data.registry import File
from roamax.errors import FileError, InputError
from roamax.evaluation.run import open_run, read_predictive
from roamax.host import files
from roamax.meta import checkpoint, log
from roamax.meta.config import to_json
from roamax.meta.folder import as_arguments
from roamax.meta.outer import outer_optimizer
from roamax.numerics import trees
from roamax.runs import journal
from roamax.samplers.learned import _network
from roamax.samplers.learned.l2e import WIDTHS
from test_data import WRITERS
from test_meta import toy_family

SHORT, LONG = 50, 5500
"""Inputs for each parser; the long form makes more than 10^5 in all."""


ABOUT = {"task": {"data": "digits", "model": "mlp", "options": {"hidden": [2]}}}


class Parser(NamedTuple):
    """Files in a folder, which of them are tampered with, and what reads them. `sealed` files cannot change unseen."""

    files: tuple[str, ...]
    read: Any
    sealed: bool = False


@functools.cache
def chain_start():
    return jax.eval_shape(lambda: {"theta": np.zeros(3, np.float32)})


def chain_run(folder):
    jobs.sample(folder, about=ABOUT)
    (state,) = (path.name for path in (folder / "state").glob("*.safetensors"))

    def read_draws():
        draws = Draws.load(folder)
        return draws.steps, list(draws)

    def read_like():
        return list(Draws.load(folder, like=chain_start()))

    def go_on():
        return list(jobs.sample(folder, about=ABOUT))

    draw = "draws/draw-000001-chain-001.safetensors"
    return {
        "journal": Parser(("draws/journal.jsonl",), read_draws, sealed=True),
        "draw": Parser((draw,), read_draws, sealed=True),
        "draw of known shape": Parser((draw, "draws/journal.jsonl"), read_like, sealed=True),
        "checkpoint": Parser(("state/checkpoint.json", f"state/{state}"), go_on, sealed=True),
        "config": Parser(("config.json",), go_on, sealed=True),
        "config of a task": Parser(("config.json",), lambda: open_run(folder)),
    }


def meta_run(folder):
    """The files of meta-training, written by what writes them, without the training."""
    config = jobs.training(1, 2)
    weights = toy_family(0.03).init(jax.random.key(0))
    optimizer = outer_optimizer(config, 0).init(weights)
    carry = [[np.ones(3, np.float32), np.asarray(2)]] * 2
    state = checkpoint.TrainState(2, weights, optimizer, weights, 0.5, (checkpoint.Slot(1, tuple(carry)),), 40, 1.5)
    checkpoint.save(folder / "state", state, "identity")
    files.write_json(folder / "config.json", {**to_json(config), "task_names": ["a"]})
    rows = log.Log(folder / "log.csv", -1)
    for step in range(3):
        rows.add(log.Row(step, 0, "es", 0.5, 0.25, 1.0, 0, 10, 1.0, 0.5, "blobs/a, b"))
    rows.close()

    def load():
        pointer = checkpoint.read_pointer(folder / "state")
        assert pointer is not None
        return dict(enumerate(jax.tree.leaves(checkpoint.load(folder / "state", pointer, weights, optimizer))))

    path = folder / "config.json"
    kept = ("state/checkpoint.json", "state/step-000000000002.safetensors")
    return {
        "training state": Parser(kept, load, sealed=True),
        "training config": Parser(("config.json",), lambda: as_arguments(path, runs.read_config(path))),
        "training log": Parser(("log.csv",), lambda: log._column(log.read_rows(folder / "log.csv"), "loss")),
    }


def weights_and_data(folder):
    weights = trees.named_leaves(_network.init_mlp(jax.random.key(0), WIDTHS))
    tensors = {name.replace("/", "."): np.asarray(leaf) for name, leaf in weights.items()}
    files.write_bytes(folder / "mine.safetensors", files.pack_tensors(tensors))
    files.write_json(folder / "mine.json", {"sampler": "l2e", "step_size": 0.1, "friction": 1.0, "output_scale": 0.1})
    arrays = {"x_train": np.ones((4, 3)), "y_train": np.arange(4), "x_test": np.ones((2, 3)), "y_test": np.arange(2)}
    np.savez(folder / "own.npz", **arrays)
    np.savez_compressed(folder / "probs.npz", probs=np.full((3, 2), 0.5))
    published = File("published.bin", (), 5, None)
    (folder / published.path).write_bytes(b"12345")
    verify(published, folder)

    def check_download():
        from roamax.data import downloads

        downloads._verified.clear()
        verify(published, folder)

    posterior = jobs.TARGET.posterior
    return {
        "weights": Parser(
            ("mine.safetensors", "mine.json"), lambda: roamax.l2e(posterior, folder / "mine.safetensors")
        ),
        "own data": Parser(("own.npz",), lambda: dataset.read_npz(folder / "own.npz", "own")),
        "predictive": Parser(("probs.npz",), lambda: read_predictive(folder / "probs.npz")),
        "recorded checksums": Parser((RECORD,), check_download),
    }


def published_data(folder):
    def parser(name):
        place = folder / name
        place.mkdir()
        parse, paths, _ = WRITERS[name](place)

        def read():
            with archives.reading(paths[0]):
                return parse(*paths)

        return Parser(tuple(str(path.relative_to(folder)) for path in paths), read)

    return {f"published {name}": parser(name) for name in WRITERS}


MAKERS = {
    **dict.fromkeys(["journal", "draw", "draw of known shape", "checkpoint", "config", "config of a task"], chain_run),
    **dict.fromkeys(["training state", "training config", "training log"], meta_run),
    **dict.fromkeys(["weights", "own data", "predictive", "recorded checksums"], weights_and_data),
    **dict.fromkeys([f"published {name}" for name in WRITERS], published_data),
}

HOSTILE = [
    None, True, -1, 0, 2, 10**30, 1.5, float("inf"), float("nan"), "", "x", "..", "../../escape", "/etc/passwd", "a\0b",
    "\ud800", "ä" * 300, "step-000000000009.safetensors", "0" * 64, [], {}, [[]], [{}], [None], {"a": {"b": 1}}, "1e5",
]  # fmt: skip
NUMBERS = [0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]


def tampered_bytes(draw, content: bytes) -> bytes:
    changed = bytearray(content)
    place = draw(st.integers(0, max(0, len(changed) - 1)))
    way = draw(st.sampled_from(["flip", "cut", "number", "double", "empty", "noise"]))
    if way == "flip":
        for place in draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=4)):
            changed[place] ^= 1 << draw(st.integers(0, 7))
    elif way == "cut":
        del changed[place:]
    elif way == "number":
        width = draw(st.sampled_from([4, 8]))
        number = draw(st.sampled_from(NUMBERS)) % 256**width
        place = draw(st.sampled_from([0, place]))
        changed[place : place + width] = number.to_bytes(width, draw(st.sampled_from(["little", "big"])))
    elif way == "double":
        changed += changed[place:]
    elif way == "noise":
        changed[place : place + 40] = draw(st.binary(max_size=60))
    return b"" if way == "empty" else bytes(changed)


def tampered_json(draw, content: bytes) -> bytes:
    """A value at any depth replaced, removed or renamed; sealed again, or not."""
    whole = json.loads(content)
    nodes = [(whole, key) for key in whole]
    for container, key in nodes:
        value = container[key]
        nodes.extend((value, k) for k in (value if isinstance(value, dict) else range(len(value)))) if isinstance(
            value, dict | list
        ) else None
    container, key = draw(st.sampled_from(nodes))
    way = draw(st.sampled_from(["replace", "replace", "remove", "more"]))
    if way == "replace":
        container[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
    elif way == "remove":
        del container[key]
    elif isinstance(container, dict):
        container["unknown"] = 1
    if "seal" in whole and draw(st.booleans()):
        seal = {name: value for name, value in whole.items() if name != "seal"}
        whole["seal"] = files._seal(seal)
    return json.dumps(whole).encode()


def tampered_journal(draw, content: bytes) -> bytes:
    """A value in one of the lines replaced, removed or renamed, with all seals made anew."""
    lines = content.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = tampered_json(draw, lines[place])
    sealed, seal = b"", ""
    for entry in map(json.loads, lines):
        entry.pop("seal", None)
        line, seal = journal._sealed(entry, seal)
        sealed += line
    return sealed


def tampered_tensors(draw, content: bytes) -> bytes:
    """Another shape, dtype or name, or a NaN, in a file that is valid otherwise."""
    from safetensors.numpy import load, save

    tensors = load(content)
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = tensors.pop(name)
    ways = {
        "nan": lambda: np.full_like(tensor, np.nan) if tensor.dtype.kind == "f" else tensor - 1,
        "shape": lambda: np.concatenate([np.ravel(tensor), np.ravel(tensor)]),
        "double": lambda: tensor.astype(np.float64),
        "whole": lambda: tensor.astype(np.int64),
        "flags": lambda: np.zeros(tensor.shape, bool),
        "empty": lambda: tensor[:0] if tensor.ndim else tensor,
    }
    name = draw(st.sampled_from([name, name, name, "", f"{name}/x", f"{name}.0", "../x", "a\nb"]))
    return save({**tensors, name: np.ascontiguousarray(ways[draw(st.sampled_from(sorted(ways)))]())})


def listed_again(folder: Path, file: str, content: bytes) -> None:
    """Let journal and pointer list the checksum of a tampered file, as whoever tampered with it would."""
    listed, pointer = folder / "draws" / "journal.jsonl", folder / "state" / "checkpoint.json"
    if listed.exists():
        entries = journal.Journal(listed).entries
        for entry in entries[1:]:
            entry["files"] = [[n, files.checksum(content) if n == Path(file).name else s] for n, s in entry["files"]]
        journal.Journal.create(listed, entries)
    if pointer.exists():
        value = json.loads(pointer.read_bytes())
        if value["file"] == Path(file).name:
            value["sha256"] = files.checksum(content)
        value.pop("seal", None)
        files.write_sealed(pointer, value)


def reading_outcome(read: Any) -> Any:
    """What a reader gives, or the line it refuses with. Anything else that it raises fails the test."""
    try:
        return read(), None
    except (FileError, InputError) as error:
        return None, str(error)


def same(one: Any, other: Any) -> bool:
    """Whether two results hold the same numbers, whatever they are made of."""
    one, other = ([np.asarray(leaf) for leaf in jax.tree.leaves(value)] for value in (one, other))
    return len(one) == len(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def fuzz(name: str, folder: Path, examples: int) -> None:
    home = folder / "home"
    home.mkdir()
    parser = MAKERS[name](home)[name]
    whole = copy.deepcopy(reading_outcome(parser.read)[0])
    assert whole is not None or name == "recorded checksums" or not parser.sealed
    kept = folder / "kept"
    shutil.copytree(home, kept)
    lists = [path for listed in ("journal.jsonl", "checkpoint.json") for path in kept.rglob(listed)]
    originals = {kept / file for file in parser.files} | set(lists)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
              database=None)  # fmt: skip
    @given(st.data())
    def run(data):
        for original in originals:
            shutil.copy(original, home / original.relative_to(kept))
        file = data.draw(st.sampled_from(parser.files))
        path, content = home / file, (kept / file).read_bytes()
        kinds = {
            ".json": [tampered_bytes, tampered_json, tampered_json],
            ".jsonl": [tampered_bytes, tampered_journal],
            ".safetensors": [tampered_bytes, tampered_tensors],
        }
        tamper = data.draw(st.sampled_from(kinds.get(path.suffix, [tampered_bytes])))
        changed = tamper(data.draw, content)
        path.write_bytes(changed)
        if tamper is tampered_tensors and data.draw(st.booleans()):
            listed_again(home, file, changed)
        found, message = reading_outcome(parser.read)
        if message is not None:
            assert str(home) in message, message
            assert "\n" not in message
            assert len(message) < 600
        elif parser.sealed and tamper is tampered_bytes:
            assert same(found, whole), "damage that nobody noticed"

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024, "a header made memory grow"
    assert sorted(path.name for path in folder.iterdir()) == ["home", "kept"]
    assert {path.relative_to(home) for path in home.rglob("*")} == {path.relative_to(kept) for path in kept.rglob("*")}


@pytest.mark.parametrize("name", MAKERS)
def test_tampering_is_refused_in_one_line(name, tmp_path):
    fuzz(name, tmp_path, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MAKERS)
def test_tampering_is_refused_in_one_line_at_length(name, tmp_path):
    fuzz(name, tmp_path, LONG)


def test_there_are_enough_inputs_in_the_long_form():
    assert LONG * len(MAKERS) >= 10**5
