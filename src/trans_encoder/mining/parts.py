"""Two parts of one passage: similar pairs for texts in which no two sentences mean the same.

Neighbours in a text about all kinds of things are rarely more than related. Parts of one passage are alike to every
degree, from next to nothing in common to nearly the same, and a teacher that knows which words matter grades them.
"""

import numpy as np

from trans_encoder.data.words import joined, words_of

_PASSAGE = (8, 18)
_SMALLEST_PART, _FEWEST_WORDS = 0.3, 3


def two_parts(sentence: str, *, rng: np.random.Generator) -> tuple[str, str]:
    """Return two parts, each at least a third or so, of a passage of the sentence."""
    passage = _cut(words_of(sentence), int(rng.integers(*_PASSAGE, endpoint=True)), rng=rng)
    first, second = (_cut(passage, round(len(passage) * rng.uniform(_SMALLEST_PART, 1)), rng=rng) for _ in range(2))
    return joined(first, like=sentence), joined(second, like=sentence)


def _cut(words: list[str], length: int, *, rng: np.random.Generator) -> list[str]:
    length = min(max(length, _FEWEST_WORDS), len(words))
    start = int(rng.integers(len(words) - length + 1))
    return words[start : start + length]
