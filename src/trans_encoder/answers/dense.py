"""Search by vectors: exact for small collections, in clusters for large ones.

Large collections are cut into clusters of about `_CLUSTER` vectors. All members of a cluster are searched together, in
the clusters nearest to theirs, as one matrix multiplication; so the cost per text does not grow with the collection,
but for finding the clusters themselves, which is small.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from trans_encoder.answers.embedded import Positions
from trans_encoder.files import atomic_file
from trans_encoder.progress import progress

EXACT = 20_000
"""The largest number of vectors that is searched exhaustively."""
_CLUSTER = 256
_PROBED = 48
_TRAINING = 32
"""Vectors for each cluster that k-means looks at."""
_ITERATIONS = 6
_BLOCK = 8192

Vectors = npt.NDArray[np.float32]


class Neighbours(NamedTuple):
    """For some queries, the positions of their nearest texts, best first, with their scores; -1 where there is none."""

    queries: Positions
    positions: Positions
    scores: Vectors


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
    ) -> None:
        """Prepare the search; above `exact` vectors this finds clusters, which are kept in the file `cache`."""
        self._count, self._probed = len(vectors), probed
        self._clusters: _Clusters | None = None
        if len(vectors) > exact:
            self._clusters = _Clusters(vectors, seed=seed, cache=cache)
        else:
            self._vectors = np.asarray(vectors, dtype=np.float32)

    def search(self, queries: Vectors, depth: int) -> tuple[Positions, Vectors]:
        """Return the positions and scores of the nearest texts of each query, best first."""
        depth = min(depth, self._count)
        if self._clusters is None:
            return _knn(queries, self._vectors, depth)
        positions = np.full((len(queries), depth), -1, dtype=np.int64)
        scores = np.zeros((len(queries), depth), dtype=np.float32)
        for row, query in enumerate(queries):
            found, score = self._clusters.search(query[None], depth, probed=self._probed, near=query)
            positions[row, : found.shape[1]], scores[row, : score.shape[1]] = found[0], score[0]
        return positions, scores

    def neighbours(self, depth: int) -> Iterator[Neighbours]:
        """Yield the nearest other texts of every text, in blocks and in no particular order."""
        with progress("finding candidates", total=self._count) as advance:
            for queries, (positions, scores) in self._blocks(min(depth + 1, self._count)):
                yield _without_self(queries, positions, scores, depth)
                advance(len(queries))

    def _blocks(self, depth: int) -> Iterator[tuple[Positions, tuple[Positions, Vectors]]]:
        if self._clusters is not None:
            yield from self._clusters.neighbours(depth, probed=self._probed)
            return
        for start in range(0, self._count, _BLOCK):
            queries = np.arange(start, min(start + _BLOCK, self._count))
            yield queries, _knn(self._vectors[queries], self._vectors, depth)


class _Clusters:
    """Vectors in the order of their clusters."""

    def __init__(self, vectors: npt.NDArray[Any], *, seed: int, cache: Path | None) -> None:
        self._centroids, assigned = _cached_clusters(vectors, seed=seed, cache=cache)
        self._order = np.argsort(assigned, kind="stable")
        self._bounds = np.searchsorted(assigned[self._order], np.arange(len(self._centroids) + 1))
        self._vectors = np.asarray(vectors[self._order], dtype=np.float16)

    def neighbours(self, depth: int, *, probed: int) -> Iterator[tuple[Positions, tuple[Positions, Vectors]]]:
        """Search every cluster's members in the clusters nearest to it."""
        for start, stop, centroid in zip(self._bounds[:-1], self._bounds[1:], self._centroids, strict=True):
            if stop > start:
                members = np.asarray(self._vectors[start:stop], dtype=np.float32)
                yield self._order[start:stop], self.search(members, depth, probed=probed, near=centroid)

    def search(self, queries: Vectors, depth: int, *, probed: int, near: Vectors) -> tuple[Positions, Vectors]:
        """Search the clusters nearest to a vector."""
        _, clusters = faiss.knn(near[None], self._centroids, min(probed, len(self._centroids)), metric=_INNER)
        slices = [(self._bounds[cluster], self._bounds[cluster + 1]) for cluster in clusters[0]]
        vectors = np.concatenate([self._vectors[start:stop] for start, stop in slices]).astype(np.float32)
        order = np.concatenate([self._order[start:stop] for start, stop in slices])
        depth = min(depth, len(vectors))
        positions, scores = _knn(queries, vectors, depth)
        return np.where(positions >= 0, order[positions], -1), scores


_INNER = faiss.METRIC_INNER_PRODUCT


def _knn(queries: Vectors, vectors: Vectors, depth: int) -> tuple[Positions, Vectors]:
    scores, positions = faiss.knn(np.ascontiguousarray(queries), vectors, depth, metric=_INNER)
    return np.asarray(positions, dtype=np.int64), np.asarray(scores, dtype=np.float32)


def _cached_clusters(vectors: npt.NDArray[Any], *, seed: int, cache: Path | None) -> tuple[Vectors, Positions]:
    """Return centroids and the cluster of each vector, from the file if it is there."""
    if cache is not None and cache.exists():
        with np.load(cache, allow_pickle=False) as stored:
            if len(stored["assigned"]) == len(vectors):
                return stored["centroids"], stored["assigned"]
    centroids = _centroids(vectors, -(-len(vectors) // _CLUSTER), seed=seed)
    assigned = np.empty(len(vectors), dtype=np.int64)
    for start in range(0, len(vectors), _BLOCK):
        part = np.asarray(vectors[start : start + _BLOCK], dtype=np.float32)
        assigned[start : start + _BLOCK] = _knn(part, centroids, 1)[0][:, 0]
    if cache is not None:
        with atomic_file(cache) as temporary, temporary.open("wb") as file:
            np.savez(file, centroids=centroids, assigned=assigned)
    return centroids, assigned


def _centroids(vectors: npt.NDArray[Any], count: int, *, seed: int) -> Vectors:
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(vectors), size=min(len(vectors), count * _TRAINING), replace=False))
    sample = np.asarray(vectors[chosen], dtype=np.float32)
    kmeans = faiss.Kmeans(
        sample.shape[1], count, niter=_ITERATIONS, spherical=True, seed=seed, min_points_per_centroid=1
    )
    kmeans.train(sample)
    return np.asarray(kmeans.centroids, dtype=np.float32)


def _without_self(queries: Positions, positions: Positions, scores: Vectors, depth: int) -> Neighbours:
    """Leave each query out of its own neighbours."""
    own = positions == queries[:, None]
    own[~own.any(axis=1), -1] = True  # more equal vectors than were asked for: drop the last instead
    width = positions.shape[1] - 1
    kept = ~own
    return Neighbours(
        queries,
        positions[kept].reshape(len(queries), width)[:, :depth],
        scores[kept].reshape(len(queries), width)[:, :depth],
    )
