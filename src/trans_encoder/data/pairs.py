"""Pairs of sentences: immutable, on Arrow, memory-mapped where they come from a file, known by a hash."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.data.columns import pair_columns
from trans_encoder.data.readers import arrow_rows, collect, read_pairs
from trans_encoder.data.report import ReadReport
from trans_encoder.data.screening import PAIR_SCHEMA
from trans_encoder.data.storage import SLICE_ROWS, content_hash, open_table, save_table, spool_filtered
from trans_encoder.errors import DataError

Scores = npt.NDArray[np.float32]
"""One score for each pair."""


@dataclass(frozen=True, eq=False)
class Distinct:
    """Each distinct sentence once, in order of appearance, and for each pair the places of its two sentences."""

    sentences: pa.Array
    index: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class PairSet:
    """Pairs of sentences with, where known, a score each. Make one with `read`, `open` or a `from_` function."""

    table: pa.Table
    report: ReadReport | None = field(default=None)

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        scores: bool = True,
        score_range: tuple[float, float] | None = None,
        skip_bad: bool = False,
        others: bool = False,
    ) -> Self:
        """Read JSONL, TSV, CSV, Parquet or Arrow (also `.gz`), a folder of Parquet shards, or a glob (see `readers`).

        `columns` names the two sentences and, third, the score; with two names, or without `scores`, no score is read.
        Bad lines, among them scores outside a given `score_range`, raise DataError, or with `skip_bad` are left out and
        counted in `report`. With `others`, `table` keeps all other columns (ids, dates, ...) behind those of the pairs.
        """
        return cls(
            *read_pairs(path, columns=columns, scores=scores, score_range=score_range, skip_bad=skip_bad, others=others)
        )

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a file written by `save`, memory-mapped."""
        table = open_table(Path(path))
        if not table.schema.equals(pa.schema(list(PAIR_SCHEMA)[: len(table.schema)])) or len(table.schema) < 2:
            raise DataError(
                f"{path} does not hold saved pairs (columns: {', '.join(table.column_names)}); read it instead"
            )
        return cls(table)

    @classmethod
    def from_lists(
        cls,
        sentence1: Sequence[str],
        sentence2: Sequence[str],
        *,
        scores: Sequence[float] | npt.NDArray[Any] | None = None,
    ) -> Self:
        """Make pairs of two lists of equal length, with scores if given."""
        columns = {"sentence1": sentence1, "sentence2": sentence2} | ({} if scores is None else {"score": scores})
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"lists of different lengths: {lengths}")
        try:
            arrays = {name: pa.array(values) for name, values in columns.items()}
        except (pa.ArrowException, UnicodeError) as error:
            raise DataError(f"the lists cannot be used: {error}; expected texts, and numbers as scores") from error
        return cls.from_table(pa.table(arrays))

    @classmethod
    def of(cls, pairs: "PairSet | Sequence[tuple[str, str]]") -> "PairSet":
        """Return a pair set as it is, or make one of (text, text) tuples."""
        if isinstance(pairs, PairSet):
            return pairs
        for row, pair in enumerate(pairs, start=1):
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise DataError(f'pair {row} is {pair!r}; expected two texts, such as ("a cat", "a dog")')
        # Not read as a file is: an empty text is scored like any other, so that there is a score for each pair.
        columns = [pa.array([pair[side] for pair in pairs], PAIR_SCHEMA.types[side]) for side in (0, 1)]
        return cls(pa.table(columns, schema=pa.schema(list(PAIR_SCHEMA)[:2])))

    @classmethod
    def from_table(cls, table: pa.Table, *, columns: Sequence[str] | None = None, skip_bad: bool = False) -> Self:
        """Take the pairs out of an Arrow table; its columns are found or given as in `read`."""
        return cls._from_batches(table.to_batches(SLICE_ROWS), source="table", columns=columns, skip_bad=skip_bad)

    @classmethod
    def from_dataset(cls, dataset: Any, *, columns: Sequence[str] | None = None, skip_bad: bool = False) -> Self:
        """Take the pairs out of a `datasets.Dataset` (one split); its columns are found or given as in `read`."""
        if isinstance(dataset, dict):
            raise DataError(f"this is a set of splits ({', '.join(dataset)}); give one of them, as dataset[split]")
        tables = dataset.with_format("arrow").iter(batch_size=SLICE_ROWS)
        # A shuffled data set comes in chunks of single rows.
        batches = (batch for table in tables for batch in table.combine_chunks().to_batches())
        return cls._from_batches(batches, source="dataset", columns=columns, skip_bad=skip_bad)

    @classmethod
    def _from_batches(cls, batches: Any, *, source: str, columns: Sequence[str] | None, skip_bad: bool) -> Self:
        select = pair_columns(columns)
        found = collect(lambda tally: arrow_rows(batches, select=select, tally=tally), source=source, skip_bad=skip_bad)
        return cls(*found)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        scored = ", scored" if "score" in self.table.column_names else ""
        first = next(self.rows(1), None)
        return f"PairSet({len(self):,} pairs{scored}{f', first {first[:2]!r}' if first else ''})"

    @property
    def sentence1(self) -> pa.ChunkedArray:
        """The first sentences."""
        return self.table["sentence1"]

    @property
    def sentence2(self) -> pa.ChunkedArray:
        """The second sentences."""
        return self.table["sentence2"]

    @property
    def scores(self) -> npt.NDArray[np.float64] | None:
        """The scores, or None."""
        if "score" not in self.table.column_names:
            return None
        return np.asarray(self.table["score"].to_numpy(), dtype=np.float64)

    @property
    def all_alike(self) -> bool:
        """Whether there are several pairs and all have the same two texts."""
        columns = (self.sentence1, self.sentence2)
        return len(self) > 1 and all(pc.all(pc.equal(column, column[0])).as_py() for column in columns)

    @cached_property
    def hash(self) -> str:
        """A SHA-256 of the texts and scores, in their order."""
        return content_hash(self._core())

    def rows(self, limit: int | None = None) -> Iterator[tuple[str, str, float | None]]:
        """Yield the first pairs, all without a limit, as (sentence, sentence, score or None)."""
        for batch in self.table.slice(0, limit).to_batches(SLICE_ROWS):
            columns = batch.to_pydict()
            yield from zip(
                columns["sentence1"], columns["sentence2"], columns.get("score", [None] * len(batch)), strict=True
            )

    def swapped(self) -> "PairSet":
        """Return the pairs in the other order; no text is copied."""
        names = ["sentence2", "sentence1", *self.table.column_names[2:]]
        return PairSet(self.table.select(names).rename_columns(self.table.column_names))

    def between(self, start: int, stop: int) -> "PairSet":
        """Return the pairs from one place up to another; no text is copied."""
        return PairSet(self.table.slice(start, stop - start))

    def take(self, indices: npt.ArrayLike) -> "PairSet":
        """Return the pairs at these places, in this order."""
        return PairSet(self.table.take(pa.array(np.asarray(indices, dtype=np.int64))))

    def sample(self, n: int, seed: int) -> "PairSet":
        """Return `n` different pairs chosen at random, in their original order."""
        if not 0 <= n <= len(self):
            raise DataError(f"cannot sample {n:,} of {len(self):,} pairs; ask for at most {len(self):,}")
        chosen = np.zeros(len(self), dtype=bool)
        chosen[np.random.default_rng(seed).choice(len(self), size=n, replace=False)] = True
        return PairSet(spool_filtered(self.table, chosen))

    def distinct(self) -> Distinct:
        """Return each distinct sentence once and the places of every pair's sentences among them."""
        encoded = pa.chunked_array(self.sentence1.chunks + self.sentence2.chunks, pa.large_string()).dictionary_encode()
        if not encoded.num_chunks:
            return Distinct(pa.array([], pa.large_string()), np.empty((0, 2), dtype=np.int32))
        index = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
        return Distinct(encoded.chunk(0).dictionary, np.ascontiguousarray(index.reshape(2, -1).T))

    def deduplicated(self, *, swapped: bool = True) -> "PairSet":
        """Return each pair once, the first of its kind; a swapped pair is the same unless `swapped` is False."""
        _, first = np.unique(_keys(self.distinct(), ordered=not swapped), return_index=True)
        return self if len(first) == len(self) else self.take(np.sort(first))

    def without(self, other: "PairSet") -> "PairSet":
        """Return the pairs that are not in `other`, in either order; only the texts of `other` are held in memory."""
        refused = {frozenset(row[:2]) for row in other.rows()}
        known = pa.chunked_array(other.sentence1.chunks + other.sentence2.chunks, pa.large_string()).unique()
        kept = np.ones(len(self), dtype=bool)
        for start in range(0, len(self), SLICE_ROWS):
            left, right = (column.slice(start, SLICE_ROWS) for column in (self.sentence1, self.sentence2))
            both = pc.and_(pc.is_in(left, value_set=known), pc.is_in(right, value_set=known))
            for row in np.flatnonzero(both.to_numpy()):
                kept[start + row] = frozenset((left[row].as_py(), right[row].as_py())) not in refused
        return PairSet(spool_filtered(self.table, kept))

    def with_scores(self, scores: npt.ArrayLike) -> "PairSet":
        """Return the same pairs with these scores."""
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != (len(self),):
            raise DataError(f"{len(self):,} pairs need as many scores, not an array of shape {values.shape}")
        return PairSet(self.without_scores().table.add_column(2, "score", pa.array(values)))

    def without_scores(self) -> "PairSet":
        """Return the same pairs unlabelled."""
        return PairSet(self.table.drop_columns("score")) if "score" in self.table.column_names else self

    def _core(self) -> pa.Table:
        """Return the table without other columns."""
        return self.table.select([name for name in PAIR_SCHEMA.names if name in self.table.column_names])

    def concat(self, other: "PairSet") -> "PairSet":
        """Return these pairs followed by the others; scores and other columns are kept only if both have them."""
        if self.table.schema.equals(other.table.schema):
            return PairSet(pa.concat_tables([self.table, other.table]))
        return PairSet(pa.concat_tables([each.without_scores()._core() for each in (self, other)]))

    def save(self, path: str | Path) -> None:
        """Write the pairs, without other columns, as an Arrow file, atomically; `open` maps it back."""
        save_table(self._core(), Path(path))


def _keys(distinct: Distinct, *, ordered: bool = False) -> npt.NDArray[np.int64]:
    """Return one hash for each pair, the same for both orders unless order counts."""
    first, second = distinct.index.astype(np.int64).T
    if not ordered:
        first, second = np.minimum(first, second), np.maximum(first, second)
    keys: npt.NDArray[np.int64] = first * len(distinct.sentences) + second
    return keys


def check_varied(pairs: PairSet) -> None:
    """Refuse pairs that are all the same: their labels are, too, and nothing can be learnt from equal labels."""
    if pairs.all_alike:
        raise DataError(f"all {len(pairs):,} pairs have the same two texts; give pairs that differ")
