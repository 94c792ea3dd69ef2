"""Which pairs of texts are worth a closer look: neighbours by vectors and by words, together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trans_encoder.answers.retrieval.dense import DenseIndex
from trans_encoder.answers.retrieval.embedded import Embedded, Positions
from trans_encoder.answers.retrieval.lexical import LexicalIndex

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
    near = np.zeros((count, 2), dtype=np.float32)
    keys = []
    for queries, positions, scores in dense.neighbours(DENSE_DEPTH):
        there = _note(near, queries, positions, scores)
        kept = there & (scores >= floor)
        keys.append(_keys(np.repeat(queries, kept.sum(axis=1)), positions[kept], count))
    if lexical is not None:
        keys += [_keys(*found, count) for found in lexical.neighbours(LEXICAL_DEPTH)]
    unique = np.unique(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)
    left, right = unique // count, unique % count
    scores = pair_scores(rows, left, right)
    kept = scores >= floor
    left, right, scores = left[kept], right[kept], scores[kept]
    return Candidates(left, right, scores, _crowd(near, left, right, scores))


def crowd_of(rows: Embedded, left: Positions, right: Positions, scores: npt.NDArray[Any]) -> Floats:
    """Return the crowd of any pairs of texts (see `Candidates`)."""
    near = np.zeros((len(rows.texts), 2), dtype=np.float32)
    for found in DenseIndex(rows.vectors).neighbours(DENSE_DEPTH):
        _note(near, *found)
    return _crowd(near, left, right, np.asarray(scores, dtype=np.float32))


def pair_scores(rows: Embedded, left: Positions, right: Positions) -> Floats:
    """Return the inner products of pairs of positions."""
    scores = np.empty(len(left), dtype=np.float32)
    for start in range(0, len(left), _BLOCK):
        part = slice(start, start + _BLOCK)
        scores[part] = np.einsum("ij,ij->i", rows.take_vectors(left[part]), rows.take_vectors(right[part]))
    return scores


def _note(near: Floats, queries: Positions, positions: Positions, scores: Floats) -> npt.NDArray[np.bool_]:
    """Note the sum of each text's neighbours' scores and their number; return which neighbours there are."""
    there = positions >= 0
    near[queries, 0] = np.where(there, scores, 0).sum(axis=1)
    near[queries, 1] = there.sum(axis=1)
    return there


def _keys(left: Positions, right: Positions, count: int) -> Positions:
    return np.minimum(left, right) * count + np.maximum(left, right)


def _crowd(near: Floats, left: Positions, right: Positions, scores: Floats) -> Floats:
    """Return the mean score of the neighbours of each pair's texts, without the pair itself."""
    total = near[left] + near[right]
    # A pair that both sides found counts once on each side; one that only words found is on neither, which is little.
    others = np.where(total[:, 1] > 2, total[:, 1] - 2, np.nan)
    return np.asarray((total[:, 0] - 2 * scores) / others, dtype=np.float32)
