"""What `roamax evaluate` measures, apart from the command line."""

import dataclasses

import jax
import numpy as np
import pytest

import roamax
from roamax import runs
from roamax.errors import FileError, InputError
from roamax.evaluation.images import as_shape
from roamax.evaluation.run import open_run
from roamax.tasks import TaskSpec, arrays


def write_data(folder, **changes):
    x = np.random.default_rng(0).integers(0, 255, (60, 4), np.uint8)
    y = np.arange(60) % 2
    arrays = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    np.savez(folder / "mine.npz", **arrays | changes)


@pytest.mark.parametrize(("part", "what"), [("train", "training"), ("test", "test")])
def test_data_that_changed_since_a_run_was_made_are_refused(tmp_path, part, what):
    write_data(tmp_path)
    spec = TaskSpec("mine", "mlp", {"hidden": [2]}, batch_size=8)
    task = spec.build(tmp_path)
    sampler = roamax.sgld(task.posterior, step_size=1e-3)
    about = {"task": dataclasses.asdict(spec), "test": runs.fingerprint(task.test)}
    options = {"num_samples": 1, "batch_size": 8, "about": about, "out": tmp_path / "run"}
    roamax.sample(jax.random.key(0), sampler, task.init, task.train, **options)
    assert open_run(tmp_path / "run", tmp_path).draws.num_samples == 1
    arrays._load.cache_clear()
    write_data(tmp_path, **{f"y_{part}": 1 - np.load(tmp_path / "mine.npz")[f"y_{part}"]})
    with pytest.raises(FileError, match=rf"the {what} data of mine.* are not those of the run in .*run: restore"):
        open_run(tmp_path / "run", tmp_path)


@pytest.mark.parametrize("size", [(28, 28), (40, 33), (96, 80)])
def test_images_of_another_size_are_resized_as_scikit_image_does(size):
    from skimage.data import astronaut
    from skimage.transform import resize

    pieces = np.stack([astronaut()[y : y + size[0], y : y + size[1]] for y in (0, 100, 200)])
    expected = np.stack([resize(piece, (32, 32), anti_aliasing=True) for piece in pieces])
    # Both round a value that lies between two bytes.
    np.testing.assert_allclose(as_shape(pieces, (32, 32, 3), "pieces"), 255 * expected, atol=0.5001)


def test_halved_images_are_averaged_and_channels_repeated_or_averaged():
    blocks = np.repeat(np.repeat(np.arange(24, dtype=np.uint8).reshape(2, 3, 4, 1), 2, axis=1), 2, axis=2)
    small = as_shape(blocks, (3, 4, 3), "blocks")
    np.testing.assert_array_equal(small, np.repeat(np.arange(24).reshape(2, 3, 4, 1), 3, axis=3))
    np.testing.assert_array_equal(as_shape(small, (3, 4, 1), "blocks"), small[..., :1])


def test_inputs_that_are_no_images_must_have_the_right_shape():
    words = np.zeros((2, 7), np.int32)
    assert as_shape(words, (7,), "words") is words
    with pytest.raises(InputError, match=r"`ood` must name data of shape \(8,\); got 'words' of shape \(7,\)"):
        as_shape(words, (8,), "words")
