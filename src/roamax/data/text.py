"""Text as token ids: 0 is padding, 1 an unknown word; words are numbered from 2."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

VOCABULARY_SIZE = 20_000
"""The number of ids, including the two special ones."""
LENGTH = 400
PAD, UNKNOWN, FIRST_WORD = 0, 1, 2

_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*|[!?]")


def tokens(text: str) -> list[str]:
    """Split a text into lower-case words, with inner apostrophes, and the marks ! and ?, which carry sentiment."""
    return _TOKEN.findall(text.lower().replace("<br />", " "))


def vocabulary(documents: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Number the most common words in order of frequency, ties in alphabetical order."""
    counts = Counter(word for document in documents for word in document)
    words = sorted(counts, key=lambda word: (-counts[word], word))[: size - FIRST_WORD]
    return {word: FIRST_WORD + rank for rank, word in enumerate(words)}


def encode(documents: Sequence[Sequence[str]], words: Mapping[str, int], length: int) -> np.ndarray:
    """Return the ids of the first `length` tokens of each document, padded at the end: int32 of shape (n, length)."""
    ids = np.full((len(documents), length), PAD, np.int32)
    for row, document in zip(ids, documents, strict=True):
        kept = document[:length]
        row[: len(kept)] = [words.get(word, UNKNOWN) for word in kept]
    return ids
