"""Search by vectors: exact for small collections, in clusters for large ones.

Large collections are cut into clusters of about `_CLUSTER` vectors, and every text looks into the `_PROBED` clusters
nearest to it; so the cost per text does not grow with the collection, but for finding the clusters, which is small.
Where the neighbours of all texts are wanted, those that look into a cluster do so together: a product of matrices is
several times as fast as a scan for each text.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import faiss
import numpy as np
import numpy.typing as npt
import torch

from trans_encoder.answers.retrieval.embedded import Positions
from trans_encoder.files import atomic_file
from trans_encoder.progress import progress

EXACT = 20_000
"""The largest number of vectors that is searched exhaustively."""
_CLUSTER = 256
_PROBED = 96
_TRAINING = 32
"""Vectors for each cluster that k-means looks at."""
_ITERATIONS = 6
_BLOCK = 8192

Vectors = npt.NDArray[np.float32]
Keep = Callable[[Callable[[Path], None]], None]
"""Is given what writes the clusters to a file, and decides whether and where that is done."""


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
        keep: Keep | None = None,
    ) -> None:
        """Prepare the search; above `exact` vectors in clusters, read from `cache` and kept there or by `keep`."""
        self._count, self._probed = len(vectors), probed
        self._clusters: _Clusters | None = None
        if len(vectors) > exact:
            self._clusters = _Clusters(vectors, seed=seed, cache=cache, keep=keep)
        else:
            self._vectors = np.asarray(vectors, dtype=np.float32)

    def search(self, queries: Vectors, depth: int, *, probed: int | None = None) -> tuple[Positions, Vectors]:
        """Return the positions and scores of the nearest texts of each query, best first; `probed` clusters each."""
        depth = min(depth, self._count)
        if self._clusters is None:
            return _knn(queries, self._vectors, depth)
        return self._clusters.search(queries, depth, probed=probed or self._probed)

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
    """An inverted file: vectors in 16 bits, by cluster; every query looks into the clusters nearest to itself."""

    def __init__(self, vectors: npt.NDArray[Any], *, seed: int, cache: Path | None, keep: Keep | None) -> None:
        centroids, assigned = _cached_clusters(vectors, seed=seed, cache=cache, keep=keep)
        self._order, self._vectors, self._width = np.argsort(assigned, kind="stable"), vectors, centroids.shape[1]
        self._centroids = faiss.IndexFlatIP(self._width)
        self._centroids.add(centroids)
        half = faiss.ScalarQuantizer.QT_fp16
        self._index = faiss.IndexIVFScalarQuantizer(self._centroids, self._width, len(centroids), half, _INNER, False)
        self._index.is_trained = True  # the centroids are there, and 16-bit floats need no training
        for start in range(0, len(vectors), _BLOCK):
            self._add(vectors[start : start + _BLOCK], np.ascontiguousarray(assigned[start : start + _BLOCK]))

    def _add(self, vectors: npt.NDArray[Any], assigned: Positions) -> None:
        """Add vectors whose clusters are known; faiss has this for C arrays only."""
        part = np.ascontiguousarray(vectors, dtype=np.float32)
        self._index.add_core(len(part), faiss.swig_ptr(part), None, faiss.swig_ptr(assigned))

    def _cluster(self, number: int) -> tuple[Positions, npt.NDArray[np.float16]]:
        """Return the positions and vectors of a cluster, as they lie in the inverted file."""
        lists: Any = self._index.invlists
        size = lists.list_size(number)
        if not size:
            return np.empty(0, dtype=np.int64), np.empty((0, self._width), dtype=np.float16)
        codes = faiss.rev_swig_ptr(lists.get_codes(number), size * self._index.code_size)
        return faiss.rev_swig_ptr(lists.get_ids(number), size), codes.view(np.float16).reshape(size, self._width)

    def neighbours(self, depth: int, *, probed: int) -> Iterator[tuple[Positions, tuple[Positions, Vectors]]]:
        """Search all vectors, in blocks of clusters that follow each other."""
        probed = min(probed, self._index.nlist)
        for start in range(0, len(self._order), _BLOCK):
            queries = self._order[start : start + _BLOCK]
            vectors = np.asarray(self._vectors[queries], dtype=np.float32)
            yield queries, self._together(vectors, self._centroids.search(vectors, probed)[1], depth)

    def _together(self, queries: Vectors, clusters: Positions, depth: int) -> tuple[Positions, Vectors]:
        """Search for queries in the clusters that each looks into, cluster by cluster."""
        asking, best = torch.from_numpy(queries), torch.full((len(queries), depth), -torch.inf)
        found = torch.full((len(queries), depth), -1, dtype=torch.int64)
        order = np.argsort(clusters, axis=None, kind="stable")
        numbers, starts = np.unique(clusters.ravel()[order], return_index=True)
        for number, part in zip(numbers.tolist(), np.split(order // clusters.shape[1], starts[1:]), strict=True):
            positions, vectors = self._cluster(number)
            if not len(positions):
                continue
            rows = torch.from_numpy(part)
            scores = asking[rows] @ torch.from_numpy(vectors).float().T
            better = scores.amax(1) > best[rows, -1]
            rows, scores = rows[better], scores[better]
            top, place = scores.topk(min(depth, len(positions)), dim=1)
            merged, chosen = torch.cat([best[rows], top], dim=1).topk(depth, dim=1)
            there = torch.cat([found[rows], torch.from_numpy(positions)[place]], dim=1)
            best[rows], found[rows] = merged, there.gather(1, chosen)
        return found.numpy(), np.where(found >= 0, best, 0).astype(np.float32)

    def search(self, queries: Vectors, depth: int, *, probed: int) -> tuple[Positions, Vectors]:
        """Search for each query in the clusters nearest to it."""
        self._index.nprobe = min(probed, self._index.nlist)
        scores, positions = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), depth)
        return np.asarray(positions, dtype=np.int64), np.where(positions >= 0, scores, 0).astype(np.float32)


_INNER = faiss.METRIC_INNER_PRODUCT


def _knn(queries: Vectors, vectors: Vectors, depth: int) -> tuple[Positions, Vectors]:
    scores, positions = faiss.knn(np.ascontiguousarray(queries), vectors, depth, metric=_INNER)
    return np.asarray(positions, dtype=np.int64), np.asarray(scores, dtype=np.float32)


def _cached_clusters(
    vectors: npt.NDArray[Any], *, seed: int, cache: Path | None, keep: Keep | None
) -> tuple[Vectors, Positions]:
    """Return centroids and the cluster of each vector, from the file if it is there and whole."""
    if cache is not None and cache.exists():
        # The file is a ZIP archive: whatever is wrong with it, the clusters can be found again.
        with (
            suppress(OSError, ValueError, KeyError, EOFError, BadZipFile),
            np.load(cache, allow_pickle=False) as stored,
        ):
            centroids, assigned = stored["centroids"], stored["assigned"]
            if centroids.shape[1:] == vectors.shape[1:] and assigned.shape == vectors.shape[:1]:
                return centroids, assigned
    centroids = _centroids(vectors, -(-len(vectors) // _CLUSTER), seed=seed)
    assigned = np.empty(len(vectors), dtype=np.int64)
    for start in range(0, len(vectors), _BLOCK):
        part = np.asarray(vectors[start : start + _BLOCK], dtype=np.float32)
        assigned[start : start + _BLOCK] = _knn(part, centroids, 1)[0][:, 0]

    def write(path: Path) -> None:
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, centroids=centroids, assigned=assigned)

    if keep is not None:
        keep(write)
    elif cache is not None:
        write(cache)
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
