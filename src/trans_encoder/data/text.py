"""Raw text as sentences: streamed from files of any size, within limits of length, each sentence once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.data.documents import LineMeaning, read_sentences
from trans_encoder.data.report import ReadReport, Tally
from trans_encoder.data.storage import content_hash, open_table, save_table, spool, spool_filtered
from trans_encoder.data.words import WORD_RE2
from trans_encoder.errors import DataError

Duplicates = Literal["keep", "exact", "near"]
"""Which duplicates are left out: none, equal texts, or also texts that differ only in case, digits and punctuation."""

_SCHEMA = pa.schema([("sentence", pa.large_string()), ("document", pa.int64())])
_BATCH = 1 << 13
_NOT_LETTERS = r"[^\p{L}\p{M}]+"


@dataclass(frozen=True)
class Limits:
    """How short and how long a sentence may be; a character counts as a word in scripts without spaces."""

    min_words: int = 3
    max_words: int = 128
    max_characters: int = 1000


@dataclass(frozen=True)
class TextReport:
    """How many sentences were found and what became of them; `lines` accounts for the lines they came from."""

    lines: ReadReport
    kept: int
    too_short: int = 0
    too_long: int = 0
    duplicate: int = 0
    near_duplicate: int = 0

    @property
    def read(self) -> int:
        """All sentences that were found."""
        return self.kept + self.too_short + self.too_long + self.duplicate + self.near_duplicate

    @property
    def bad(self) -> int:
        """Lines that could not be used."""
        return self.lines.bad

    def __str__(self) -> str:
        dropped = {"too short": self.too_short, "too long": self.too_long, "duplicate": self.duplicate}
        dropped |= {"near duplicate": self.near_duplicate, "bad lines": self.bad}
        parts = [f"{number:,} {what}" for what, number in dropped.items() if number]
        return ", ".join([f"{self.lines.source}: {self.kept:,} of {self.read:,} sentences kept", *parts])


@dataclass(frozen=True, eq=False, repr=False)
class Text:
    """Sentences in their order; those next to each other with the same document number are neighbours."""

    table: pa.Table
    report: TextReport | None = field(default=None)

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        line: LineMeaning | None = None,
        column: str | None = None,
        language: str = "en",
        limits: Limits | None = None,
        duplicates: Duplicates = "exact",
        skip_bad: bool = False,
    ) -> Self:
        """Read a file, a folder or a glob of plain text, Markdown, JSONL, TSV, CSV or Parquet, also `.gz`.

        `line` says what a line or row is (see `documents`); `column` names a table's text; `language` helps the
        sentence splitter, no language is dropped. Memory stays within some 50 bytes a sentence.
        """
        tally, counts, keys = Tally(str(path)), Counter[str](), _Keys(duplicates)
        sentences = read_sentences(path, tally=tally, line=line, column=column, language=language)
        batches = _screened(sentences, limits=limits or Limits(), counts=counts, keys=keys)
        table = spool(batches, schema=_SCHEMA)
        lines = tally.report(skip_bad=skip_bad)
        first, duplicate, near_duplicate = keys.firsts()
        if duplicate or near_duplicate:
            table = spool_filtered(table, first)
        report = TextReport(lines, len(table), **counts, duplicate=duplicate, near_duplicate=near_duplicate)
        if not report.kept:
            raise DataError(f"{report}; widen the limits of length or give other text")
        return cls(table, report)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a file written by `save`, memory-mapped."""
        table = open_table(Path(path))
        if not table.schema.equals(_SCHEMA):
            raise DataError(f"{path} does not hold sentences (columns: {', '.join(table.column_names)})")
        return cls(table)

    @classmethod
    def from_sentences(cls, sentences: Sequence[str], *, documents: Sequence[int] | None = None) -> Self:
        """Take sentences as they are; without document numbers each is its own document."""
        numbers = range(len(sentences)) if documents is None else documents
        return cls(pa.table([pa.array(sentences, pa.large_string()), pa.array(numbers, pa.int64())], schema=_SCHEMA))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        first = f", first {self.sentences[0].as_py()!r}" if len(self) else ""
        return f"Text({len(self):,} sentences{first})"

    @property
    def sentences(self) -> pa.ChunkedArray:
        """The sentences."""
        return self.table["sentence"]

    @property
    def document(self) -> npt.NDArray[np.int64]:
        """The number of each sentence's document; numbers grow, with gaps where a document was left out."""
        return np.asarray(self.table["document"].to_numpy(), dtype=np.int64)

    @cached_property
    def hash(self) -> str:
        """A SHA-256 of the sentences and document numbers, in their order."""
        return content_hash(self.table)

    def sample(self, n: int, seed: int) -> "Text":
        """Return `n` different sentences chosen at random, in their original order."""
        if not 0 <= n <= len(self):
            raise DataError(f"cannot sample {n:,} of {len(self):,} sentences; ask for at most {len(self):,}")
        chosen = np.sort(np.random.default_rng(seed).choice(len(self), size=n, replace=False))
        return Text(self.table.take(pa.array(chosen)))

    def save(self, path: str | Path) -> None:
        """Write the sentences as an Arrow file, atomically; `open` maps it back."""
        save_table(self.table, Path(path))


class _Keys:
    """64-bit hashes of all sentences, by which duplicates are found without holding the texts."""

    def __init__(self, duplicates: Duplicates) -> None:
        self._wanted = {"keep": 0, "exact": 1, "near": 2}[duplicates]
        self._exact: list[npt.NDArray[np.uint64]] = []
        self._near: list[npt.NDArray[np.uint64]] = []

    def add(self, texts: pa.Array) -> None:
        """Remember the sentences of a batch."""
        if self._wanted >= 1:
            self._exact.append(_hashes(texts))
        if self._wanted >= 2:
            self._near.append(_hashes(_normalised(texts)))

    def firsts(self) -> tuple[npt.NDArray[np.bool_], int, int]:
        """Return which sentences are the first of their kind, and how many equal and near ones are not."""
        if not self._exact:
            return np.ones(0, dtype=bool), 0, 0
        exact = _first_of_kind(np.concatenate(self._exact))
        near = _first_of_kind(np.concatenate(self._near)) if self._near else exact
        # Equal texts are also near each other, so the first of a near kind is the first of its equal kind.
        return near, int((~exact).sum()), int((exact & ~near).sum())


def _hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    digests = (blake2b(text, digest_size=8).digest() for text in texts.cast(pa.large_binary()).to_pylist())
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _first_of_kind(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    first = np.zeros(len(keys), dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def _normalised(texts: pa.Array) -> pa.Array:
    """Return texts in lower case with letters only; one without letters stays as it is."""
    lower = pc.utf8_lower(pc.utf8_normalize(texts, form="NFKC"))
    letters = pc.utf8_trim_whitespace(pc.replace_substring_regex(lower, pattern=_NOT_LETTERS, replacement=" "))
    return pc.if_else(pc.equal(letters, ""), texts, letters)


def _screened(
    sentences: Iterator[tuple[int, str]], *, limits: Limits, counts: Counter[str], keys: _Keys
) -> Iterator[pa.RecordBatch]:
    """Yield batches of sentences within the limits; count the others."""
    while part := list(islice(sentences, _BATCH)):
        documents, texts = zip(*part, strict=True)
        batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string()), pa.array(documents)], schema=_SCHEMA)
        words = pc.count_substring_regex(batch["sentence"], pattern=WORD_RE2).to_numpy()
        characters = pc.utf8_length(batch["sentence"]).to_numpy()
        too_short = words < limits.min_words
        too_long = (words > limits.max_words) | (characters > limits.max_characters)
        too_long &= ~too_short
        counts.update(too_short=int(too_short.sum()), too_long=int(too_long.sum()))
        kept = batch.filter(pa.array(~(too_short | too_long)))
        keys.add(kept["sentence"])
        yield kept
