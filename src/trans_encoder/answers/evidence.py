"""What two texts themselves tell about whether they mean the same, beside what a model scores them."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.answers.embedded import Positions

TEXT_FEATURES = ("numbers", "negation")
"""Whether the numbers of two texts differ, and whether one of them alone negates (English words)."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot)\b|n['\u2019]t\b", re.I
)


def text_evidence(texts: pa.ChunkedArray, left: Positions, right: Positions) -> npt.NDArray[np.float64]:
    """Return `TEXT_FEATURES` for each pair of positions."""
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    strings: list[Any] = texts.take(pa.array(used)).to_pylist()
    numbers = [frozenset(_NUMBER.findall(text)) for text in strings]
    negates = np.array([_NEGATION.search(text) is not None for text in strings], dtype=bool)
    first, second = place[: len(left)], place[len(left) :]
    differ = np.fromiter((numbers[a] != numbers[b] for a, b in zip(first, second, strict=True)), bool, len(left))
    return np.column_stack([differ, negates[first] != negates[second]]).astype(np.float64)
