"""Neighbours of sentences within one shard: BM25 over words, or cosines of a bi-encoder."""

from collections.abc import Sequence
from typing import Literal, Protocol

import faiss
import numpy as np
import numpy.typing as npt

from trans_encoder.data.words import WORD
from trans_encoder.encoders import BiEncoder
from trans_encoder.errors import import_extra

Method = Literal["lexical", "dense"]
Positions = npt.NDArray[np.int64]


class Searcher(Protocol):
    """Ranks the sentences of a shard by their likeness to some of them."""

    def search(self, queries: Positions, depth: int) -> Positions:
        """Return the positions of the `depth` sentences nearest to each query, best first; -1 where there is none."""


class LexicalSearcher:
    """BM25 over the words of the sentences; only sentences that share a word are neighbours."""

    def __init__(self, sentences: Sequence[str]) -> None:
        """Index the sentences."""
        bm25s = import_extra("bm25s", extra="mining")
        tokenizer = bm25s.tokenization.Tokenizer(splitter=WORD, stopwords=None)
        self._words = tokenizer.tokenize(sentences, update_vocab=True, return_as="ids", show_progress=False)
        self._index = bm25s.BM25()
        self._index.index((self._words, tokenizer.get_vocab_dict()), show_progress=False)

    def search(self, queries: Positions, depth: int) -> Positions:
        """Rank by BM25."""
        words = [self._words[query] for query in queries]
        found, scores = self._index.retrieve(words, k=min(depth, len(self._words)), show_progress=False)
        return np.where(scores > 0, found, -1).astype(np.int64)


class DenseSearcher:
    """Exact search by the cosine of a bi-encoder's embeddings; queries have the prompt of the first texts of pairs."""

    def __init__(self, sentences: Sequence[str], encoder: BiEncoder) -> None:
        """Embed and index the sentences."""
        found = _unit(encoder.encode(sentences, side=1))
        self._index = faiss.IndexFlatIP(found.shape[1])
        self._index.add(found)
        first, second = encoder.prompts
        self._queries = found if first == second else _unit(encoder.encode(sentences, side=0))

    def search(self, queries: Positions, depth: int) -> Positions:
        """Rank by cosine."""
        _, found = self._index.search(self._queries[queries], min(depth, self._index.ntotal))
        return np.asarray(found, dtype=np.int64)


def _unit(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    vectors = np.array(embeddings, dtype=np.float32)
    faiss.normalize_L2(vectors)
    return vectors
