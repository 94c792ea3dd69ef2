"""Search by vectors: exact for small collections, in clusters for large ones.

Large collections are cut into clusters of about 512 vectors, and every text looks into the `_PROBED` clusters nearest
to it; so the cost per text does not grow with the collection, but for finding the clusters, which is small.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from trans_encoder.answers.retrieval.clusters import Clusters
from trans_encoder.answers.retrieval.embedded import Positions
from trans_encoder.answers.retrieval.neighbours import Nearest, Neighbours
from trans_encoder.progress import progress

EXACT = 20_000
"""The largest number of vectors that is searched exhaustively."""
_PROBED = 160
_WIDE = 128
"""Neighbours of each text that a search in clusters looks for; see `Nearest`."""
_BLOCK = 8192

Vectors = npt.NDArray[np.float32]
Keep = Callable[[Callable[[Path], None]], None]
"""Is given what writes the clusters to a file, and decides whether and where that is done."""


class DenseIndex:
    """Inner-product search over vectors of length one."""

    def __init__(
        self,
        vectors: npt.NDArray[Any],
        *,
        exact: int = EXACT,
        probed: int = _PROBED,
        seed: int = 0,
        cache: Path | None = None,
        keep: Keep | None = None,
    ) -> None:
        """Prepare the search; above `exact` vectors in clusters, read from `cache` and kept there or by `keep`."""
        self._vectors, self._probed = vectors, probed
        self._clusters: Clusters | None = None
        if len(vectors) > exact:
            self._clusters = _clusters(vectors, seed=seed, cache=cache, keep=keep)
        else:
            self._vectors = np.asarray(vectors, dtype=np.float32)

    def search(self, queries: Vectors, depth: int) -> tuple[Positions, Vectors]:
        """Return the positions and scores of the nearest texts of each query, best first; -1 where there is none."""
        depth = min(depth, len(self._vectors))
        if self._clusters is None:
            return _knn(queries, self._vectors, depth)
        return self._clusters.search(queries, depth, probed=self._probed)

    def neighbours(self, depth: int) -> Neighbours:
        """Return the nearest other texts of every text."""
        count = len(self._vectors)
        depth = max(min(depth, count - 1), 0)
        # A search in clusters misses some, so it looks further than `depth` and lets texts find each other.
        wide = depth if self._clusters is None else max(depth, min(_WIDE, count - 1))
        order = np.arange(count) if self._clusters is None else self._clusters.order()
        nearest = Nearest(count, depth, mutual=self._clusters is not None)
        with progress("finding candidates", total=count) as advance:
            for start in range(0, count, _BLOCK):
                queries = order[start : start + _BLOCK]
                found = self.search(np.asarray(self._vectors[queries], dtype=np.float32), wide + 1)
                nearest.add(queries, *_without_self(queries, *found))
                advance(len(queries))
        return nearest.found()


def _clusters(vectors: npt.NDArray[Any], *, seed: int, cache: Path | None, keep: Keep | None) -> Clusters:
    """Return the clusters of vectors, from the file if it is there and whole."""
    if cache is not None and (stored := Clusters.read(vectors, cache)) is not None:
        return stored
    clusters = Clusters.build(vectors, seed=seed)
    if keep is not None:
        keep(clusters.write)
    elif cache is not None:
        clusters.write(cache)
    return clusters


def _knn(queries: Vectors, vectors: Vectors, depth: int) -> tuple[Positions, Vectors]:
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    scores, positions = faiss.knn(queries, vectors, depth, metric=faiss.METRIC_INNER_PRODUCT)
    return np.asarray(positions, dtype=np.int64), np.asarray(scores, dtype=np.float32)


def _without_self(queries: Positions, positions: Positions, scores: Vectors) -> tuple[Positions, Vectors]:
    """Leave each query out of its own neighbours."""
    own = positions == queries[:, None]
    own[~own.any(axis=1), -1] = True  # more equal vectors than were asked for: drop the last instead
    shape = len(queries), positions.shape[1] - 1
    return positions[~own].reshape(shape), scores[~own].reshape(shape)
