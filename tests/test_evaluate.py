"""What `roamax evaluate` measures, apart from the command line."""

import numpy as np
import pytest

from roamax.errors import InputError
from roamax.evaluation.images import as_shape


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
