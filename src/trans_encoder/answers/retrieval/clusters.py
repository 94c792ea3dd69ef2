"""An inverted file of faiss: a query is compared with the vectors of the clusters nearest to it.

Its scores with all of these are estimated from codes of four bits for two dimensions (product quantisation, which is
fast because processors look up many codes at a time), and those that score best are compared in 16 bits.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import faiss
import numpy as np
import numpy.typing as npt

from trans_encoder.files import atomic_file

_CLUSTER = 512
_TRAINING = 64
"""Vectors for each cluster that k-means looks at."""
_ITERATIONS = 6
_POOL = 256
"""Vectors that a query is compared with in 16 bits, at the least."""
_BLOCK = 1 << 16

Vectors = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]


class Clusters:
    """Inner-product search in the clusters nearest to each query."""

    def __init__(self, vectors: npt.NDArray[Any], codes: Any) -> None:
        """Take the vectors and the inverted file of their codes (see `build` and `read`)."""
        self._codes = codes
        self._halves = faiss.IndexScalarQuantizer(codes.d, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        self._halves.is_trained = True
        for start in range(0, len(vectors), _BLOCK):
            self._halves.add(_float32(vectors[start : start + _BLOCK]))
        self._index = faiss.IndexRefine(codes, self._halves)

    @classmethod
    def build(cls, vectors: npt.NDArray[Any], *, seed: int) -> "Clusters":
        """Find the clusters of vectors."""
        width, count = vectors.shape[1], -(-len(vectors) // _CLUSTER)
        parts = width // 2 if width % 2 == 0 else width
        codes: Any = faiss.index_factory(width, f"IVF{count},PQ{parts}x4fs", faiss.METRIC_INNER_PRODUCT)
        for training in (codes.cp, codes.pq.cp):
            training.seed, training.min_points_per_centroid = seed, 1
        codes.cp.niter, codes.cp.max_points_per_centroid = _ITERATIONS, _TRAINING
        chosen = np.random.default_rng(seed).choice(
            len(vectors), size=min(len(vectors), count * _TRAINING), replace=False
        )
        codes.train(_float32(vectors[np.sort(chosen)]))
        for start in range(0, len(vectors), _BLOCK):
            codes.add(_float32(vectors[start : start + _BLOCK]))
        return cls(vectors, codes)

    @classmethod
    def read(cls, vectors: npt.NDArray[Any], path: Path) -> "Clusters | None":
        """Read what `write` wrote for the same vectors; None if it is not there or damaged: it can be made again."""
        # A ZIP archive with checksums, because faiss does not expect damaged files.
        damaged = (OSError, ValueError, KeyError, EOFError, RuntimeError, BadZipFile)
        with suppress(*damaged), np.load(path, allow_pickle=False) as stored:
            codes = faiss.deserialize_index(stored["codes"])
            if (codes.ntotal, codes.d) == vectors.shape:
                return cls(vectors, codes)
        return None

    def write(self, path: Path) -> None:
        """Keep the clusters and codes in a file; vectors are not in it."""
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, codes=faiss.serialize_index(self._codes))

    def order(self) -> Positions:
        """Return all positions, those of a cluster next to each other."""
        lists = self._codes.invlists
        sizes = [lists.list_size(number) for number in range(lists.nlist)]
        members = [faiss.rev_swig_ptr(lists.get_ids(number), size) for number, size in enumerate(sizes) if size]
        return np.concatenate(members)

    def search(self, queries: Vectors, depth: int, *, probed: int) -> tuple[Positions, Vectors]:
        """Return the positions and scores of the nearest vectors of each query, best first; -1 where there is none."""
        looking: Any = faiss.IVFSearchParameters()
        looking.nprobe = min(probed, self._codes.nlist)
        comparing: Any = faiss.IndexRefineSearchParameters()
        comparing.k_factor, comparing.base_index_params = max(_POOL / depth, 2), looking
        scores, positions = self._index.search(_float32(queries), depth, params=comparing)
        return positions, np.where(positions >= 0, scores, 0).astype(np.float32)


def _float32(vectors: npt.NDArray[Any]) -> Vectors:
    return np.ascontiguousarray(vectors, dtype=np.float32)
