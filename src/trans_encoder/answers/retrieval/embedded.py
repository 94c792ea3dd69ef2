"""Rows with their vectors: what duplicates are found in and searches are made on, in memory or mapped from an index."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trans_encoder.answers.retrieval.embedder import Embedder
from trans_encoder.data import ID, TEXT, Corpus

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Embedded:
    """Rows, the distinct texts that they have, and one unit vector for each of these texts."""

    rows: pa.Table
    """`id` and the other columns."""
    place: Positions
    """For each row, the position of its text."""
    texts: pa.ChunkedArray
    vectors: npt.NDArray[Any]
    """float16 or float32, one row for each text."""

    @classmethod
    def of(cls, corpus: Corpus, embedder: Embedder) -> "Embedded":
        """Embed every distinct text of a corpus once, in memory."""
        texts, place = distinct(corpus.texts)
        vectors = embedder.encode(texts.to_pylist())
        return cls(corpus.table.drop_columns([TEXT]), place, pa.chunked_array([texts]), vectors)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def first_row(self) -> Positions:
        """The first row of each text; -1 for a text that no row has any more."""
        first = np.full(len(self.texts), -1, dtype=np.int64)
        first[self.place[::-1]] = np.arange(len(self.place))[::-1]
        return first

    @cached_property
    def unused(self) -> int:
        """How many texts no row has any more: changed and removed rows leave theirs until the index is made again."""
        return int(np.count_nonzero(self.first_row < 0))

    @cached_property
    def ids(self) -> list[str]:
        """The id of each row."""
        return [str(value) for value in self.rows[ID].to_pylist()]

    def text(self, row: int) -> str:
        """Return the text of a row."""
        return str(self.texts[int(self.place[row])].as_py())

    def columns(self, row: int) -> dict[str, Any]:
        """Return the other columns of a row."""
        return {name: self.rows[name][row].as_py() for name in self.rows.column_names if name != ID}

    def compacted(self) -> "Embedded":
        """Return the same rows without texts that none of them has any more."""
        used = self.first_row >= 0
        if used.all():
            return self
        moved = np.cumsum(used) - 1
        return Embedded(self.rows, moved[self.place], self.texts.filter(pa.array(used)), self.vectors[used])

    def take_vectors(self, positions: Positions | Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the vectors at these positions."""
        return np.asarray(self.vectors[positions], dtype=np.float32)


def distinct(texts: pa.ChunkedArray) -> tuple[pa.Array, Positions]:
    """Return each distinct text once, in order of appearance, and the position of every row's text among them."""
    encoded = pa.chunked_array(texts.chunks, pa.large_string()).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    return encoded.dictionary, np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def joined(first: Embedded, second: Embedded) -> Embedded:
    """Return the rows of both, the first's before the second's; a text that both have is there once."""
    texts = pa.chunked_array([*first.texts.chunks, *second.texts.chunks], pa.large_string())
    unique, place = distinct(texts)
    _, kept = np.unique(place, return_index=True)
    vectors = np.concatenate([np.asarray(first.vectors), np.asarray(second.vectors)])[kept]
    rows = pa.concat_tables([first.rows.select([ID]), second.rows.select([ID])])
    places = np.concatenate([place[: len(first.texts)][first.place], place[len(first.texts) :][second.place]])
    return Embedded(rows, places, pa.chunked_array([unique]), vectors)
