"""Draws on disk: nothing lost, nothing damaged unseen, a resumed run bit-identical to an unbroken one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import roamax
from roamax import runs
from roamax.errors import FileError, InputError, NumDataWarning
from roamax.host import files
from roamax.runs.folder import _identity
from targets import linear_regression

TARGET = linear_regression(num_data=50)
START = {"theta": jnp.zeros(3)}


def run(out, **options):
    settings = {"batch_size": 8, "num_samples": 8, "burn_in": 20, "thinning": 5, "num_chains": 2} | options
    step_size = settings.pop("step_size", 0.02)
    start = settings.pop("start", {"net": {"theta": jnp.zeros(3)}})
    posterior = roamax.Posterior(
        lambda params, batch: TARGET.posterior.log_likelihood(params["net"], batch),
        roamax.priors.gaussian(variance=1.0),
        50,
    )
    sampler = roamax.sghmc(posterior, step_size=step_size, friction=1.0)
    return roamax.sample(settings.pop("key", jax.random.key(0)), sampler, start, TARGET.data, out=out, **settings)


def theta(draws):
    return draws.positions["net"]["theta"]


def test_a_run_can_be_made_longer(tmp_path):
    run(tmp_path / "run", num_samples=3)
    longer = run(tmp_path / "run", num_samples=8)
    np.testing.assert_array_equal(theta(longer), theta(run(None)))


def test_loading_gives_back_structure_and_bits(tmp_path):
    draws = run(tmp_path / "run")
    loaded = roamax.Draws.load(tmp_path / "run")
    np.testing.assert_array_equal(theta(loaded), theta(draws))
    typed = roamax.Draws.load(tmp_path / "run", like={"net": {"theta": 0}})
    assert jax.tree.structure(typed[0, 0]) == jax.tree.structure(draws[0, 0])


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"burn_in": 30}, "burn_in"),
        ({"num_samples": 4}, "num_samples"),
        ({"step_size": 0.03}, r"sampler\.step_size"),
        ({"key": jax.random.key(1)}, "key"),
        ({"start": {"net": {"theta": jnp.ones(3)}}}, r"init_position"),
    ],
)
def test_a_folder_of_other_arguments_is_refused_by_name(tmp_path, option, named):
    run(tmp_path / "run")
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(InputError, match=rf"`out` must .* where `{named}"):
        run(tmp_path / "run", **option)
    assert (tmp_path / "run" / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["thesis.tex", ".lock", f".draft.{2**22}.part", "sub/.x.1.part"], "with other files in it"),
        ([".lock"], "with other files in it"),
        (["config.json", ".lock", f".config.json.{2**22}.part"], r"where `key` is None"),
    ],
)
def test_a_folder_of_somebody_else_is_refused_and_not_touched(tmp_path, names, said):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"precious": 1}')
    with pytest.raises(InputError, match=said):
        run(tmp_path)
    left = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == dict.fromkeys(names, '{"precious": 1}')


def test_a_sweep_takes_only_parts_of_our_own_files(tmp_path):
    run(tmp_path / "run", num_samples=3)
    others = [tmp_path / "run" / name for name in (f".thesis.{2**22}.part", f"mine/.config.json.{2**22}.part")]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
    run(tmp_path / "run", num_samples=4)
    assert all(path.read_text() == "precious" for path in others)


@pytest.mark.parametrize("refused", [{"batch_size": 51}, {"start": {"a\n": jnp.zeros(3)}}, {"thinning": 0}])
def test_a_refused_call_leaves_no_folder_behind(tmp_path, refused):
    with pytest.raises(InputError):
        run(tmp_path / "run", **refused)
    assert not list(tmp_path.iterdir())


def test_a_call_that_only_the_first_step_refuses_leaves_its_folder_to_others(tmp_path):
    sampler = roamax.hmc(TARGET.posterior)
    with pytest.raises(InputError, match="`batch_size` must be the whole data set"):
        roamax.sample(jax.random.key(0), sampler, START, TARGET.data, batch_size=5, num_samples=1, out=tmp_path / "run")
    assert run(tmp_path / "run", num_samples=1).num_samples == 1


def test_a_run_that_was_to_be_longer_can_end_where_it_is(tmp_path):
    run(tmp_path / "run", num_samples=3)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "num_samples": 1000}))
    with pytest.raises(InputError, match="where `num_samples` is 3, not 2"):
        run(tmp_path / "run", num_samples=2)
    assert run(tmp_path / "run", num_samples=3).num_samples == 3
    np.testing.assert_array_equal(theta(run(tmp_path / "run")), theta(run(None)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_dtype_is_read_back(tmp_path, dtype):
    posterior = roamax.Posterior(
        lambda params, batch: -jnp.square(params["theta"].sum() - batch), lambda params: -params["theta"].sum(), 4
    )
    start = {"theta": jnp.ones(3, dtype)}
    options = {"burn_in": 2, "num_samples": 2, "data": jnp.zeros(4, dtype)}
    sampler = roamax.sgld(posterior, step_size=1e-3)
    kept, held = (
        roamax.sample(jax.random.key(0), sampler, start, out=out, **options) for out in (tmp_path / "run", None)
    )
    assert kept.positions["theta"].dtype == dtype
    np.testing.assert_array_equal(kept.positions["theta"], held.positions["theta"])
    np.testing.assert_array_equal(roamax.Draws.load(tmp_path / "run").positions["theta"], held.positions["theta"])


@pytest.mark.parametrize("name", ["__metadata__", "a\0b", "\ud800", "tab\t"])
def test_leaves_that_files_cannot_hold_are_refused_before_the_first_step(tmp_path, name):
    posterior = roamax.Posterior(lambda params, batch: 0 * batch[1], lambda params: -jnp.sum(params[name] ** 2), 50)
    sampler = roamax.sgld(posterior, step_size=1e-3)
    with pytest.raises(InputError, match="`init_position` must have names and dtypes that files can hold"):
        roamax.sample(jax.random.key(0), sampler, {name: jnp.ones(2)}, TARGET.data, num_samples=1, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def decay(rate):
    return lambda step: 0.01 / (1 + rate * jnp.asarray(step, float))


def variants():
    """Pairs of samplers whose settings read alike, and the part in which they differ."""
    likelihood, prior = TARGET.posterior.log_likelihood, TARGET.posterior.log_prior
    other = roamax.Posterior(lambda params, batch: likelihood(jax.tree.map(jnp.tanh, params), batch), prior, 50)
    wide = roamax.Posterior(likelihood, roamax.priors.gaussian(variance=9.0), 50)
    narrow = roamax.Posterior(likelihood, roamax.priors.gaussian(variance=4.0), 50)

    def member(rate):
        return roamax.ensemble(TARGET.posterior, member_steps=5, optimizer=optax.sgd(rate))

    def sgld(posterior, step_size=0.01):
        return roamax.sgld(posterior, step_size=step_size)

    return {
        "posterior.log_prior": (sgld(wide), sgld(narrow)),
        "posterior.log_likelihood": (sgld(TARGET.posterior), sgld(other)),
        "sampler.step_size": (sgld(wide, decay(0.1)), sgld(wide, decay(0.2))),
        "sampler.optimizer": (member(0.01), member(0.02)),
    }


@pytest.mark.parametrize("part", ["posterior.log_prior", "posterior.log_likelihood", "sampler.step_size",
                                  "sampler.optimizer"])  # fmt: skip
def test_what_is_sampled_is_part_of_a_run(tmp_path, part):
    def draws(sampler, num_samples):
        return roamax.sample(jax.random.key(0), sampler, START, TARGET.data, batch_size=8, num_samples=num_samples,
                             out=tmp_path / "run")  # fmt: skip

    one, other = variants()[part]
    draws(one, 1)
    with pytest.raises(InputError, match=rf"whose `{part}` computes something else"):
        draws(other, 1)
    # The same, made anew, is the same; and so is any for another version of JAX, whose programs are others.
    assert draws(variants()[part][0], 2).num_samples == 2
    config = files.read_json(tmp_path / "run" / "config.json")
    config["programs"]["traced_by"] = "jax 0.0.1, roamax 0.1.0, cpu"
    config["run"] = _identity(config, "num_samples")
    files.write_json(tmp_path / "run" / "config.json", config)
    shutil.rmtree(tmp_path / "run" / "draws")
    shutil.rmtree(tmp_path / "run" / "state")
    assert draws(other, 2).num_samples == 2


def test_num_data_is_part_of_a_run_and_said_to_differ_from_the_rows(tmp_path):
    def draws(num_data):
        posterior = roamax.Posterior(TARGET.posterior.log_likelihood, TARGET.posterior.log_prior, num_data)
        sampler = roamax.sgld(posterior, step_size=0.01)
        return roamax.sample(jax.random.key(0), sampler, START, TARGET.data, num_samples=1, out=tmp_path / "run")

    draws(50)
    with (
        pytest.warns(NumDataWarning, match="is 100, but `data` has 50 rows: each counts 2 times"),
        pytest.raises(InputError, match="where `num_data` is 50, not 100"),
    ):
        draws(100)


def checksums():
    return [runs.programs(one, START, TARGET.data) for pair in variants().values() for one in pair]


def test_programs_have_the_same_checksums_in_every_process():
    code = "import sys; sys.path[:0] = sys.argv[1:]; import test_resume; print(test_resume.checksums())"
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    elsewhere = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert elsewhere == f"{checksums()}\n"


def test_damage_is_named(tmp_path):
    run(tmp_path / "run")
    place = tmp_path / "run" / "draws"
    draw = place / "draw-000003-chain-001.safetensors"
    whole = draw.read_bytes()

    draw.write_bytes(whole[:-4])
    with pytest.raises(FileError, match=r"draw-000003-chain-001.safetensors is damaged"):
        theta(roamax.Draws.load(tmp_path / "run"))
    draw.write_bytes(whole)

    journal = place / "journal.jsonl"
    good = journal.read_text()
    lines = good.splitlines(keepends=True)
    changed = [line.replace("draw-000001", "draw-000002") for line in lines]
    for bad in (changed, [*lines[:2], *lines[3:]], [*lines, "[]\n"], [lines[0], "\n"], []):
        journal.write_text("".join(bad))
        with pytest.raises(FileError, match=r"journal.jsonl is damaged"):
            roamax.Draws.load(tmp_path / "run")
    journal.write_text("".join(lines[:-1]))
    with pytest.raises(FileError, match=r"journal.jsonl is older than the checkpoint: it lists 7 draws, not 8"):
        roamax.Draws.load(tmp_path / "run")
    journal.write_text(good)

    state = next((tmp_path / "run" / "state").glob("*.safetensors"))
    state.write_bytes(b"\0" * 40)
    with pytest.raises(FileError, match=r"state/step-\d+.safetensors is damaged"):
        run(tmp_path / "run", num_samples=9)


def test_a_draw_that_the_journal_does_not_list_does_not_exist(tmp_path):
    run(tmp_path / "run", num_samples=3)
    (tmp_path / "run" / "draws" / "draw-000003-chain-000.safetensors").write_bytes(b"half a dr")
    assert roamax.Draws.load(tmp_path / "run").num_samples == 3
    np.testing.assert_array_equal(theta(run(tmp_path / "run")), theta(run(None)))


def test_the_last_line_of_a_journal_that_a_crash_tore_is_dropped(tmp_path):
    run(tmp_path / "run", num_samples=3)
    with open(tmp_path / "run" / "draws" / "journal.jsonl", "a") as file:
        file.write('{"step": 40, "files": [["draw-0000')
    assert roamax.Draws.load(tmp_path / "run").num_samples == 3
    np.testing.assert_array_equal(theta(run(tmp_path / "run")), theta(run(None)))
    assert roamax.Draws.load(tmp_path / "run").num_samples == 8


def test_a_journal_that_is_missing_or_older_than_the_checkpoint_hides_no_draw(tmp_path):
    journal = tmp_path / "run" / "draws" / "journal.jsonl"
    run(tmp_path / "run", num_samples=3)
    old = journal.read_bytes()
    run(tmp_path / "run", num_samples=5)
    new, pointer = journal.read_bytes(), tmp_path / "run" / "state" / "checkpoint.json"
    draws = {path: path.read_bytes() for path in journal.parent.glob("draw-*")}
    journal.write_bytes(old)
    for action in (lambda: run(tmp_path / "run"), lambda: roamax.Draws.load(tmp_path / "run")):
        with pytest.raises(FileError, match="older than the checkpoint"):
            action()
    # A checkpoint of before it counted draws tells by its step.
    facts = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({name: facts[name] for name in ("file", "sha256", "step", "seconds")}))
    with pytest.raises(FileError, match="does not list the draws that the run had taken at step 45"):
        run(tmp_path / "run")
    journal.unlink()
    with pytest.raises(FileError, match=r"journal.jsonl is missing"):
        run(tmp_path / "run")
    assert {path: path.read_bytes() for path in journal.parent.glob("draw-*")} == draws
    journal.write_bytes(new)
    np.testing.assert_array_equal(theta(run(tmp_path / "run")), theta(run(None)))


def test_draws_and_state_of_another_seed_are_refused(tmp_path):
    for name, seed in (("run", 0), ("other", 1)):
        run(tmp_path / name, num_samples=3, key=jax.random.key(seed))
    for part, named in (("draws", "journal.jsonl"), ("state", "checkpoint.json")):
        os.rename(tmp_path / "run" / part, tmp_path / "kept")
        shutil.copytree(tmp_path / "other" / part, tmp_path / "run" / part)
        for action in (lambda: run(tmp_path / "run"), lambda: roamax.Draws.load(tmp_path / "run")):
            with pytest.raises(FileError, match=rf"{named} is of another run than .*config.json"):
                action()
        shutil.rmtree(tmp_path / "run" / part)
        os.rename(tmp_path / "kept", tmp_path / "run" / part)
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "key": [0, 1]}))
    with pytest.raises(FileError, match=r"config.json is damaged"):
        run(tmp_path / "run", key=jax.random.key(1))


def as_of_the_manifest(out):
    """Make the folder one of the version that wrote a manifest of all draws for every draw, and no identity."""
    journal = out / "draws" / "journal.jsonl"
    _, *listed = (json.loads(line) for line in journal.read_text().splitlines())
    draws = [[{"file": n, "step": draw["step"], "sha256": s, "bytes": 1} for n, s in draw["files"]] for draw in listed]
    files.write_sealed(out / "draws" / "manifest.json", {"format": 1, "num_chains": 2, "draws": draws})
    journal.unlink()
    config, pointer = (json.loads((out / name).read_text()) for name in ("config.json", "state/checkpoint.json"))
    for name in ("run", "programs", "num_data"):
        del config[name]
    files.write_json(out / "config.json", config)
    kept = {name: pointer[name] for name in ("file", "sha256", "step", "seconds")}
    files.write_sealed(out / "state" / "checkpoint.json", kept)


def test_a_folder_of_before_the_journal_is_read_and_resumes(tmp_path):
    run(tmp_path / "run", num_samples=3)
    as_of_the_manifest(tmp_path / "run")
    assert len(list(roamax.Draws.load(tmp_path / "run"))) == 6
    np.testing.assert_array_equal(theta(run(tmp_path / "run")), theta(run(None)))
    assert not (tmp_path / "run" / "draws" / "manifest.json").exists()
    with pytest.raises(InputError, match="where `num_samples` is 8, not 4"):
        run(tmp_path / "run", num_samples=4)


def test_a_draw_costs_as_much_late_as_early(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    content = []
    for name in ("write_bytes", "write_new"):
        write = getattr(files, name)
        monkeypatch.setattr(files, name, lambda path, new, w=write: (content.append(len(new)), w(path, new)))
    append = files.append
    monkeypatch.setattr(files, "append", lambda path, new, after: (content.append(len(new)), append(path, new, after)))
    run(tmp_path / "half", num_samples=100, thinning=1, num_chains=1)
    half = sum(content)
    run(tmp_path / "whole", num_samples=200, thinning=1, num_chains=1)
    assert sum(content) - half < 2.2 * half, "bytes that were written"


def test_what_a_dead_process_left_half_written_is_swept_away(tmp_path):
    run(tmp_path / "run", num_samples=3)
    dead = subprocess.Popen(["true"])
    dead.wait()
    names = ("state/.checkpoint.json", ".statistics.jsonl")
    left = [tmp_path / "run" / f"{name}.{dead.pid}.part" for name in names]
    under_way = tmp_path / "run" / f".metrics.json.{os.getpid()}.part"
    for path in (*left, under_way):
        path.write_bytes(b"half a ch")
    run(tmp_path / "run", num_samples=4)
    assert ([path.exists() for path in left], under_way.exists()) == ([False, False], True)


def test_damage_is_seen_when_a_run_resumes(tmp_path):
    run(tmp_path / "run", num_samples=3)
    draw = tmp_path / "run" / "draws" / "draw-000001-chain-000.safetensors"
    whole = draw.read_bytes()
    draw.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FileError, match=r"draw-000001-chain-000.safetensors is damaged"):
        theta(run(tmp_path / "run", num_samples=4))
    draw.write_bytes(whole)

    pointer = tmp_path / "run" / "state" / "checkpoint.json"
    facts = json.loads(pointer.read_text())
    pointer.write_text(json.dumps(facts | {"seconds": facts["seconds"] + 1}))
    with pytest.raises(FileError, match=r"checkpoint.json is damaged"):
        run(tmp_path / "run", num_samples=5)


def test_a_run_ends_with_one_checkpoint_of_its_last_step(tmp_path):
    draws = run(tmp_path / "seldom", checkpoint_seconds=1e9)
    run(tmp_path / "often", checkpoint_seconds=0.0)
    for name in ("seldom", "often"):
        (state,) = (tmp_path / name / "state").glob("*.safetensors")
        assert state.stem == f"step-{draws.steps[-1]:012d}"


def test_what_counts_has_reached_the_disk(tmp_path, monkeypatch):
    """A machine that loses its power keeps of each file what was flushed of it."""
    safe, fsync, replace = {}, os.fsync, os.replace

    def syncing(descriptor):
        found = os.fstat(descriptor)
        safe[found.st_ino] = found.st_size
        names = {path.stat().st_ino: path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
        if names.get(found.st_ino) == "journal.jsonl":
            assert all(inode in safe for inode, name in names.items() if name.startswith("draw-"))
        fsync(descriptor)

    def replacing(source, target):
        os.truncate(source, safe.get(os.stat(source).st_ino, 0))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    draws = run(tmp_path / "run", num_samples=3)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path.stat().st_size:
            os.truncate(path, safe.get(path.stat().st_ino, 0))
    np.testing.assert_array_equal(theta(roamax.Draws.load(tmp_path / "run")), theta(draws))
    run(tmp_path / "run", num_samples=4)


CYCLE = {"step_size": 0.02, "friction": 1.0, "cycle_length": 10, "exploration_ratio": 0.6}


def run_cycles(out, num_samples=2, **options):
    sampler = roamax.cyclical(TARGET.posterior, **CYCLE, **options)
    return roamax.sample(jax.random.key(0), sampler, START, TARGET.data, batch_size=8, num_samples=num_samples, out=out)


def as_before(out, thinning):
    """Make the folder one of the version in which cyclical runs took their draws by thinning."""
    config = json.loads((out / "config.json").read_text())
    del config["sampler"]["draws_per_cycle"], config["run"]
    (out / "config.json").write_text(json.dumps({**config, "thinning": thinning}))


@pytest.mark.parametrize(("draws_per_cycle", "thinning"), [(1, 4), (2, 2), (4, 1)])
def test_a_cyclical_run_of_before_it_knew_its_draws_resumes(tmp_path, draws_per_cycle, thinning):
    run_cycles(tmp_path / "run", draws_per_cycle=draws_per_cycle)
    as_before(tmp_path / "run", thinning)
    longer = run_cycles(tmp_path / "run", 5, draws_per_cycle=draws_per_cycle)
    unbroken = run_cycles(None, 5, draws_per_cycle=draws_per_cycle)
    assert longer.steps == unbroken.steps
    np.testing.assert_array_equal(longer.positions["theta"], unbroken.positions["theta"])


@pytest.mark.parametrize(
    ("thinning", "known"), [(1, "is 4, not 1"), (3, "is counted across cycles, by thinning=3, not 1")]
)
def test_a_cyclical_run_of_before_with_other_draws_is_refused(tmp_path, thinning, known):
    run_cycles(tmp_path / "run")
    as_before(tmp_path / "run", thinning)
    with pytest.raises(InputError, match=rf"`sampler\.draws_per_cycle` {known}\. Choose another folder"):
        run_cycles(tmp_path / "run")
