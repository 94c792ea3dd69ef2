"""Search by words: TF-IDF cosines, with a bound on how common a word may be where all rows are compared with all."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from trans_encoder.answers.retrieval.embedded import Positions
from trans_encoder.data import Scores
from trans_encoder.data.words import WORD

_COMMON = 500
"""A word of more texts than this finds no neighbours: it would cost the square of their number and tell little."""
_BLOCK = 4096


class LexicalIndex:
    """TF-IDF vectors of texts."""

    def __init__(self, texts: Sequence[str] | pa.ChunkedArray) -> None:
        """Index the texts."""
        strings = texts.to_pylist() if isinstance(texts, pa.ChunkedArray) else list(texts)
        self._vectorizer = TfidfVectorizer(token_pattern=WORD, sublinear_tf=True, dtype=np.float32)
        try:
            self._matrix = self._vectorizer.fit_transform(strings).tocsr()
        except ValueError:  # no text has a word
            self._matrix = sparse.csr_matrix((len(strings), 1), dtype=np.float32)
            self._vectorizer = None
        self._columns: Any = None

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Return the positions and cosines of the texts that share most with a text, best first."""
        if self._vectorizer is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        if self._columns is None:
            self._columns = self._matrix.tocsc()
        query = self._vectorizer.transform([text])
        scores = np.zeros(self._matrix.shape[0], dtype=np.float32)
        for word, weight in zip(query.indices, query.data, strict=True):
            start, stop = self._columns.indptr[word : word + 2]
            scores[self._columns.indices[start:stop]] += weight * self._columns.data[start:stop]
        depth = min(depth, int((scores > 0).sum()))
        found = np.argpartition(-scores, max(depth - 1, 0))[:depth]
        found = found[np.argsort(-scores[found], kind="stable")]
        return found.astype(np.int64), scores[found]

    def neighbours(self, depth: int, *, among: Positions | None = None) -> Iterator[tuple[Positions, Positions]]:
        """Yield, block by block, pairs of positions: each text and those that share most of its rarer words with it.

        `among` are the positions that may be neighbours, if not all.
        """
        rare = self._rare()
        targets = (rare if among is None else rare[among]).T.tocsr()
        for start in range(0, rare.shape[0], _BLOCK):
            found = (rare[start : start + _BLOCK] @ targets).tocsr()
            rows, columns = _best_of_each(found, depth + (among is None))
            if among is not None:
                columns = among[columns]
            rows += start
            other = rows != columns
            yield rows[other], columns[other]

    def cosines(self, left: Positions, right: Positions) -> Scores:
        """Return the cosine of each pair of positions."""
        parts = [
            np.asarray(
                self._matrix[left[start : start + 65536]]
                .multiply(self._matrix[right[start : start + 65536]])
                .sum(axis=1)
            ).ravel()
            for start in range(0, len(left), 65536)
        ]
        return np.concatenate(parts).astype(np.float32) if parts else np.empty(0, dtype=np.float32)

    def _rare(self) -> Any:
        """Return the matrix without the words that too many texts have."""
        frequency = np.bincount(self._matrix.indices, minlength=self._matrix.shape[1])
        return self._matrix[:, frequency <= _COMMON].tocsr()


def _best_of_each(matrix: Any, depth: int) -> tuple[Positions, Positions]:
    """Return the rows and columns of the `depth` largest entries of each row of a sparse matrix."""
    starts, counts = matrix.indptr[:-1], np.diff(matrix.indptr)
    kept = [np.arange(start, start + min(count, depth)) for start, count in zip(starts, counts, strict=True)]
    for row in np.flatnonzero(counts > depth):  # one by one: a sort of all entries takes ten times as long
        values = matrix.data[starts[row] : starts[row] + counts[row]]
        kept[row] = starts[row] + np.argpartition(-values, depth)[:depth]
    rows = np.repeat(np.arange(len(counts)), np.minimum(counts, depth))
    return rows.astype(np.int64), matrix.indices[np.concatenate(kept)].astype(np.int64)
