"""Which pairs of texts are worth a closer look: neighbours by vectors and by words, together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trans_encoder.answers.retrieval.dense import DenseIndex
from trans_encoder.answers.retrieval.embedded import Embedded, Positions
from trans_encoder.answers.retrieval.lexical import LexicalIndex
from trans_encoder.answers.retrieval.neighbours import Neighbours

DENSE_DEPTH = 16
"""Neighbours of each text by vectors."""
LEXICAL_DEPTH = 4
"""Neighbours of each text by words."""
_BLOCK = 1 << 16

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Pairs of positions of texts, each once, the lower first."""

    left: Positions
    right: Positions
    scores: Floats
    """The inner product of the two vectors."""
    crowd: Floats
    """How near other texts are to the two: the mean of the scores of their neighbours, this pair apart; NaN if there
    are no other texts."""

    def __len__(self) -> int:
        return len(self.left)

    def take(self, chosen: npt.NDArray[np.bool_] | Positions) -> "Candidates":
        """Return some of the pairs."""
        return Candidates(self.left[chosen], self.right[chosen], self.scores[chosen], self.crowd[chosen])


def find_candidates(
    rows: Embedded, *, dense: DenseIndex, lexical: LexicalIndex | None, floor: float = -1.0
) -> Candidates:
    """Return the neighbours of all texts, by vectors and by words, that score at least `floor`."""
    count = len(rows.texts)
    near = dense.neighbours(DENSE_DEPTH)
    kept = (near.positions >= 0) & (near.scores >= floor)
    keys = [_keys(np.repeat(np.arange(count), kept.sum(axis=1)), near.positions[kept], count)]
    if lexical is not None:
        keys += [_keys(*found, count) for found in lexical.neighbours(LEXICAL_DEPTH)]
    unique = np.sort(np.concatenate(keys))  # several times as fast as np.unique, which hashes
    unique = unique[np.diff(unique, prepend=-1) > 0]
    left, right = unique // count, unique % count
    scores = pair_scores(rows, left, right)
    kept = scores >= floor
    left, right, scores = left[kept], right[kept], scores[kept]
    return Candidates(left, right, scores, _crowd(near, left, right, scores))


def crowd_of(rows: Embedded, left: Positions, right: Positions, scores: npt.NDArray[Any]) -> Floats:
    """Return the crowd of any pairs of texts (see `Candidates`)."""
    return _crowd(DenseIndex(rows.vectors).neighbours(DENSE_DEPTH), left, right, np.asarray(scores, dtype=np.float32))


def pair_scores(rows: Embedded, left: Positions, right: Positions) -> Floats:
    """Return the inner products of pairs of positions."""
    scores = np.empty(len(left), dtype=np.float32)
    for start in range(0, len(left), _BLOCK):
        part = slice(start, start + _BLOCK)
        scores[part] = np.einsum("ij,ij->i", rows.take_vectors(left[part]), rows.take_vectors(right[part]))
    return scores


def _keys(left: Positions, right: npt.NDArray[Any], count: int) -> Positions:
    return np.asarray(np.minimum(left, right) * count + np.maximum(left, right), dtype=np.int64)


def _crowd(near: Neighbours, left: Positions, right: Positions, scores: Floats) -> Floats:
    """Return the mean score of the neighbours of each pair's texts, without the pair itself."""
    total, number = near.scores.sum(axis=1), (near.positions >= 0).sum(axis=1, dtype=np.float32)
    # A pair that both sides found counts once on each side; one that only words found is on neither, which is little.
    both = number[left] + number[right]
    others = np.where(both > 2, both - 2, np.nan)
    return np.asarray((total[left] + total[right] - 2 * scores) / others, dtype=np.float32)
