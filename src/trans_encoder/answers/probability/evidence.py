"""What two texts themselves tell about whether they mean the same, beside what a model scores them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.answers.retrieval import Positions
from trans_encoder.evaluation.flipped import Difference, flip_between, frame, wording
from trans_encoder.evaluation.flips import NEGATION

TEXT_FEATURES = ("numbers", "negation")
"""Whether the numbers of two texts differ, and whether one of them alone negates (English words)."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
FLIPPED = 0.15
"""The highest probability of texts that differ by a flip alone. People judged 2 of 12 such pairs of the STS sets the
same, two garbled lines (`benchmarks/duplicates.py flips`)."""

ALIKE = 0.95
"""The lowest probability of texts that differ in case, spacing or final punctuation alone. People judged 21 of 21 such
pairs of the STS sets and of QQP's training part the same (`benchmarks/duplicates.py flips`)."""

Differences = npt.NDArray[np.object_]
"""For each pair the flip that alone separates its texts, or None."""


def text_evidence(texts: pa.ChunkedArray, left: Positions, right: Positions) -> npt.NDArray[np.float64]:
    """Return `TEXT_FEATURES` for each pair of positions."""
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    strings: list[Any] = texts.take(pa.array(used)).to_pylist()
    # Hashes, because tens of millions of pairs may be compared.
    numbers = np.array([hash(frozenset(_NUMBER.findall(text))) for text in strings], dtype=np.int64)
    negates = np.array([NEGATION.search(text) is not None for text in strings], dtype=bool)
    first, second = place[: len(left)], place[len(left) :]
    return np.column_stack([numbers[first] != numbers[second], negates[first] != negates[second]]).astype(np.float64)


def flips_of(texts: pa.ChunkedArray, left: Positions, right: Positions) -> Differences:
    """Return for each pair of positions the flip that alone separates the two texts, or None."""
    found = np.full(len(left), None, dtype=object)
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    strings: list[Any] = texts.take(pa.array(used)).to_pylist()
    # Millions of pairs may be asked about, and few have the same wording or frame: only these are looked at one by one.
    first, second = place[: len(left)], place[len(left) :]
    candidates = np.zeros(len(left), dtype=bool)
    for key in (wording, frame):
        hashes = np.array([hash(key(text)) for text in strings], dtype=np.int64)
        candidates |= hashes[first] == hashes[second]
    for pair in np.flatnonzero(candidates).tolist():
        found[pair] = flip_between(strings[first[pair]], strings[second[pair]])
    return found


def is_flip(differences: Differences) -> npt.NDArray[np.bool_]:
    """Return which pairs differ by a flip alone."""
    return np.asarray(differences != None, dtype=bool)  # noqa: E711 (by element)


def are_alike(texts: pa.ChunkedArray, left: Positions, right: Positions) -> npt.NDArray[np.bool_]:
    """Return which pairs of positions differ in case, spacing or final punctuation alone."""
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    folded = np.array([hash(fold(str(text))) for text in texts.take(pa.array(used)).to_pylist()], dtype=np.int64)
    return np.asarray(folded[place[: len(left)]] == folded[place[len(left) :]])


def fold(text: str) -> str:
    """Return a text without what case, spacing and final punctuation add to it."""
    return " ".join(text.casefold().split()).rstrip(".!?\u2026 ")


def bounded(values: npt.NDArray[Any], *, flipped: npt.NDArray[np.bool_], alike: npt.NDArray[np.bool_]) -> Any:
    """Return probabilities within what is known of flips and of texts that are all but equal."""
    return np.where(flipped, np.minimum(values, FLIPPED), np.where(alike, np.maximum(values, ALIKE), values))


def adjusted(
    text: str, others: Sequence[str], probabilities: npt.NDArray[np.float64]
) -> list[tuple[float, Difference | None]]:
    """Return the probability that each of `others` means the same as a text, and the flip that separates them."""
    differences = [flip_between(text, other) for other in others]
    flipped = np.array([difference is not None for difference in differences], dtype=bool)
    alike = np.array([fold(text) == fold(other) for other in others], dtype=bool)
    values = bounded(np.asarray(probabilities, dtype=np.float64), flipped=flipped, alike=alike)
    return list(zip(values.tolist(), differences, strict=True))
