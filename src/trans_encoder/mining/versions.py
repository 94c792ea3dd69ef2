"""Two versions of a passage: pairs that are alike, where a text has no two sentences that say the same.

Neighbours in a text about all kinds of things are seldom more than related. Two parts of one passage, one of them with
some words dropped or exchanged, are alike to every degree, and a teacher that knows which words matter grades them.
"""

import numpy as np

from trans_encoder.data.words import joined, words_of

_PASSAGE = (8, 18)
_SMALLEST_PART, _FEWEST = 0.3, 3
_MOST_EDITED = 0.8


def two_versions(sentence: str, *, other: str, rng: np.random.Generator) -> tuple[str, str]:
    """Return two overlapping parts of a passage of the sentence, the second edited with words of another one."""
    passage = _cut(words_of(sentence), int(rng.integers(*_PASSAGE, endpoint=True)), rng=rng)
    first, second = (_cut(passage, round(len(passage) * rng.uniform(_SMALLEST_PART, 1)), rng=rng) for _ in range(2))
    edited = _edited(second, words_of(other), share=rng.uniform(0, _MOST_EDITED), rng=rng)
    return joined(first, like=sentence), joined(edited or second, like=sentence)


def _cut(words: list[str], length: int, *, rng: np.random.Generator) -> list[str]:
    length = min(max(length, _FEWEST), len(words))
    start = int(rng.integers(len(words) - length + 1))
    return words[start : start + length]


def _edited(words: list[str], foreign: list[str], *, share: float, rng: np.random.Generator) -> list[str]:
    """Drop a share of the words, or put others in their place."""
    edited = []
    for word in words:
        if rng.random() >= share:
            edited.append(word)
        elif rng.random() < 0.5:
            edited.append(foreign[int(rng.integers(len(foreign)))])
    return edited
