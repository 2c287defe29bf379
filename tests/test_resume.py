"""Draws on disk: nothing lost, nothing damaged unseen, a resumed run bit-identical to an unbroken one."""

import json
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax.errors import FileError, InputError
from targets import linear_regression

TARGET = linear_regression(num_data=50)


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


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="with other files in it"):
        run(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != ".lock") == ["thesis.tex"]


def test_damage_is_named(tmp_path):
    run(tmp_path / "run")
    folder = tmp_path / "run" / "draws"
    draw = folder / "draw-000003-chain-001.safetensors"
    whole = draw.read_bytes()

    draw.write_bytes(whole[:-4])
    with pytest.raises(FileError, match=r"draw-000003-chain-001.safetensors is damaged"):
        theta(roamax.Draws.load(tmp_path / "run"))
    draw.write_bytes(whole)

    manifest = folder / "manifest.json"
    good = manifest.read_text()
    listed = json.loads(good)
    listed["draws"][0][0]["file"] = "../../escape.safetensors"
    for bad in (good[:-20], "[]", '{"format": 1, "num_chains": 2, "draws": [[]]}', json.dumps(listed)):
        manifest.write_text(bad)
        with pytest.raises(FileError, match=r"manifest.json is damaged"):
            roamax.Draws.load(tmp_path / "run")
    manifest.write_text(good)

    state = next((tmp_path / "run" / "state").glob("*.safetensors"))
    state.write_bytes(b"\0" * 40)
    with pytest.raises(FileError, match=r"state/step-\d+.safetensors is damaged"):
        run(tmp_path / "run", num_samples=9)


def test_a_draw_that_the_manifest_does_not_list_does_not_exist(tmp_path):
    run(tmp_path / "run", num_samples=3)
    (tmp_path / "run" / "draws" / "draw-000003-chain-000.safetensors").write_bytes(b"half a dr")
    assert roamax.Draws.load(tmp_path / "run").num_samples == 3
    np.testing.assert_array_equal(theta(run(tmp_path / "run")), theta(run(None)))


def test_what_a_dead_process_left_half_written_is_swept_away(tmp_path):
    run(tmp_path / "run", num_samples=3)
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = tmp_path / "run" / "state" / f".checkpoint.json.{dead.pid}.part"
    under_way = tmp_path / "run" / f".metrics.json.{os.getpid()}.part"
    for path in (left, under_way):
        path.write_bytes(b"half a ch")
    run(tmp_path / "run", num_samples=4)
    assert (left.exists(), under_way.exists()) == (False, True)


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


def test_what_is_renamed_into_place_has_reached_the_disk(tmp_path, monkeypatch):
    synced = set()
    fsync, replace = os.fsync, os.replace

    def syncing(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def replacing(source, target):
        # The machine loses its power here: what was only in memory is gone.
        if os.stat(source).st_ino not in synced:
            os.truncate(source, 0)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    draws = run(tmp_path / "run", num_samples=3)
    np.testing.assert_array_equal(theta(roamax.Draws.load(tmp_path / "run")), theta(draws))
    run(tmp_path / "run", num_samples=4)


CYCLE = {"step_size": 0.02, "friction": 1.0, "cycle_length": 10, "exploration_ratio": 0.6}


def run_cycles(out, num_samples=2, **options):
    sampler = roamax.cyclical(TARGET.posterior, **CYCLE, **options)
    start = {"theta": jnp.zeros(3)}
    return roamax.sample(jax.random.key(0), sampler, start, TARGET.data, batch_size=8, num_samples=num_samples, out=out)


def as_before(out, thinning):
    """Make the folder one of the version in which cyclical runs took their draws by thinning."""
    config = json.loads((out / "config.json").read_text())
    del config["sampler"]["draws_per_cycle"]
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
