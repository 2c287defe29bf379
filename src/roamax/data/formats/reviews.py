"""Text files in a tar archive: IMDB."""

import re
from pathlib import Path

import numpy as np

from roamax.data import archives, text
from roamax.data.archives import Arrays


def imdb(archive: Path) -> Arrays:
    """Read IMDB's reviews as token ids: the first 400 per review, of the 20,000 that the training set defines."""
    name_of = re.compile(r"aclImdb/(train|test)/(neg|pos)/\d+_\d+\.txt").fullmatch
    members = archives.tar_members(archive, lambda name: name_of(name) is not None, 2**20)
    reviews = {name: text.tokens(content.decode("utf-8")) for name, content in members}
    names = {
        part: sorted(name for name in reviews if name.startswith(f"aclImdb/{part}/")) for part in ("train", "test")
    }
    words = text.vocabulary((reviews[name] for name in names["train"]), text.VOCABULARY_SIZE)
    arrays = {}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = text.encode([reviews[name] for name in names[part]], words, text.LENGTH)
        arrays[f"y_{part}"] = np.asarray(["/pos/" in name for name in names[part]], np.int32)
    return arrays
