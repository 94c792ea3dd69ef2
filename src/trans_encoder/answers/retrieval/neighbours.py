"""The nearest texts of every text, put together from searches that may miss some of them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trans_encoder.answers.retrieval.embedded import Positions

_BLOCK = 1 << 16

Vectors = npt.NDArray[np.float32]


class Neighbours(NamedTuple):
    """The positions of the nearest other texts of every text, best first, with their scores; -1 where there is none."""

    positions: npt.NDArray[np.int32]
    scores: Vectors


class Nearest:
    """Collects what a search finds for each text.

    A search in clusters misses a neighbour in a cluster that it does not look into, but the search for that neighbour
    often finds the text. So, if `mutual`, each text is offered to those that were found for it.
    """

    def __init__(self, count: int, depth: int, *, mutual: bool) -> None:
        """Collect the `depth` nearest for each of `count` texts."""
        self._positions = np.full((count, depth), -1, dtype=np.int32)
        self._scores = np.full((count, depth), -np.inf, dtype=np.float32)
        self._mutual = mutual and depth > 0
        self._offers: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Vectors]] = []

    def add(self, queries: Positions, positions: npt.NDArray[Any], scores: Vectors) -> None:
        """Add what was found for some texts, best first; those beyond `depth` serve for offers alone."""
        depth = self._positions.shape[1]
        self._positions[queries], self._scores[queries] = positions[:, :depth], scores[:, :depth]
        if self._mutual:
            wanted = (positions >= 0) & (scores > self._scores[positions, -1])
            asking = np.repeat(queries, wanted.sum(axis=1)).astype(np.int32)
            self._offers.append((positions[wanted].astype(np.int32), asking, scores[wanted]))

    def found(self) -> Neighbours:
        """Return the nearest of all texts, once all have been searched for."""
        if self._offers:
            texts, others, scores = (np.concatenate(part) for part in zip(*self._offers, strict=True))
            self._offers = []
            kept = scores > self._scores[texts, -1]
            order = np.argsort(texts[kept], kind="stable")
            texts, others, scores = (values[kept][order] for values in (texts, others, scores))
            for start in range(0, len(self._positions), _BLOCK):
                part = slice(*np.searchsorted(texts, (start, start + _BLOCK)))
                self._offer(start, texts[part] - start, others[part], scores[part])
        return Neighbours(self._positions, np.where(self._positions >= 0, self._scores, np.float32(0)))

    def _offer(self, start: int, rows: Any, others: Any, scores: Any) -> None:
        """Offer others to a block of texts, sorted by text."""
        positions, known = self._positions[start : start + _BLOCK], self._scores[start : start + _BLOCK]
        new = ~(positions[rows] == others[:, None]).any(axis=1)
        rows, others, scores = rows[new], others[new], scores[new]
        order = np.lexsort((-scores, rows))
        rows, others, scores = rows[order], others[order], scores[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        depth = positions.shape[1]
        first = rank < depth
        wide = np.full((len(positions), depth), -1, dtype=np.int32), np.full(positions.shape, -np.inf, np.float32)
        wide[0][rows[first], rank[first]], wide[1][rows[first], rank[first]] = others[first], scores[first]
        every, every_score = np.concatenate([positions, wide[0]], axis=1), np.concatenate([known, wide[1]], axis=1)
        best = np.argsort(-every_score, axis=1, kind="stable")[:, :depth]
        positions[:], known[:] = (np.take_along_axis(values, best, axis=1) for values in (every, every_score))
