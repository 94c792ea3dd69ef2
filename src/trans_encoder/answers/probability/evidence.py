"""What two texts themselves tell about whether they mean the same, beside what a model scores them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.answers.retrieval import Positions
from trans_encoder.evaluation.flipped import Difference, flip_between, wording
from trans_encoder.evaluation.flips import NEGATION

TEXT_FEATURES = ("numbers", "negation")
"""Whether the numbers of two texts differ, and whether one of them alone negates (English words)."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
FLIPPED = 0.15
"""The highest probability of texts that differ by a flip alone. People judged 2 of 12 such pairs of the STS sets the
same, two garbled lines (`benchmarks/duplicates.py flips`)."""

Differences = npt.NDArray[np.object_]
"""For each pair the flip that alone separates its texts, or None."""


def text_evidence(texts: pa.ChunkedArray, left: Positions, right: Positions) -> npt.NDArray[np.float64]:
    """Return `TEXT_FEATURES` for each pair of positions."""
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    strings: list[Any] = texts.take(pa.array(used)).to_pylist()
    numbers = [frozenset(_NUMBER.findall(text)) for text in strings]
    negates = np.array([NEGATION.search(text) is not None for text in strings], dtype=bool)
    first, second = place[: len(left)], place[len(left) :]
    differ = np.fromiter((numbers[a] != numbers[b] for a, b in zip(first, second, strict=True)), bool, len(left))
    return np.column_stack([differ, negates[first] != negates[second]]).astype(np.float64)


def flips_of(texts: pa.ChunkedArray, left: Positions, right: Positions) -> Differences:
    """Return for each pair of positions the flip that alone separates the two texts, or None."""
    found = np.full(len(left), None, dtype=object)
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    strings: list[Any] = texts.take(pa.array(used)).to_pylist()
    # Millions of pairs may be asked about, and few have the same wording: only these are looked at one by one.
    words = np.array([hash(wording(text)) for text in strings], dtype=np.int64)
    first, second = place[: len(left)], place[len(left) :]
    for pair in np.flatnonzero(words[first] == words[second]).tolist():
        found[pair] = flip_between(strings[first[pair]], strings[second[pair]])
    return found


def is_flip(differences: Differences) -> npt.NDArray[np.bool_]:
    """Return which pairs differ by a flip alone."""
    return np.fromiter((difference is not None for difference in differences), bool, len(differences))


def lowered(
    text: str, others: Sequence[str], probabilities: npt.NDArray[np.float64]
) -> list[tuple[float, Difference | None]]:
    """Return the probability that each of `others` means the same as a text, lowered where a flip separates them."""
    differences = [flip_between(text, other) for other in others]
    return [
        (float(probability) if difference is None else min(float(probability), FLIPPED), difference)
        for probability, difference in zip(probabilities, differences, strict=True)
    ]
