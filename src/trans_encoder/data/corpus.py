"""A corpus: rows of a table, each with an id, a text and whatever other columns the file has.

Unlike `text.Text`, a corpus is not split into sentences and nothing is left out for its length: a row is what people
ask about (a ticket, a question, a product), however short.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.data.columns import ColumnError, Select, free_names, positions, require, text_column
from trans_encoder.data.documents import TEXT_FORMATS, text_files
from trans_encoder.data.records import BROKEN_UTF8, arrow_batches, decoded, line_records
from trans_encoder.data.report import ReadReport, Tally
from trans_encoder.data.screening import as_texts, text_faults
from trans_encoder.data.sources import file_format, numbered_lines, open_bytes
from trans_encoder.data.words import is_encodable
from trans_encoder.errors import DataError

ID, TEXT = "id", "text"
"""The columns that every corpus has; others keep their names."""

_BATCH = 1 << 13


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Rows in their order: `id`, `text` and the other columns of the file."""

    table: pa.Table
    report: ReadReport | None = field(default=None)
    id_column: str | None = field(default=None)
    """The file's column that ids came from; None if rows were numbered."""

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        id: str | None = None,  # noqa: A002 (what people write)
        column: str | None = None,
        skip_bad: bool = False,
    ) -> Self:
        """Read a file, a folder or a glob of JSONL, TSV, CSV, Parquet, or of text with a row on each line; also `.gz`.

        `id` names the column of ids (by default `id` if there is one, else rows are numbered by line), `column` the
        column of the text. Bad rows raise DataError, or with `skip_bad` are left out and counted in `report`.
        """
        tally, files = Tally(str(path)), text_files(path)
        parts = [_read_file(file, tally, id_column=id, column=column, alone=len(files) == 1) for file in files]
        report = tally.report(skip_bad=skip_bad)
        table = _unique_ids(_joined([table for table, _ in parts]), source=str(path))
        return cls(table, report, next((name for _, name in parts if name is not None), None))

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> Self:
        """Take texts as they are; without ids they are numbered from 1."""
        names = [str(number + 1) for number in range(len(texts))] if ids is None else [str(name) for name in ids]
        lengths = {ID: len(names), TEXT: len(texts), **{name: len(values) for name, values in (columns or {}).items()}}
        if len(set(lengths.values())) > 1:
            raise DataError(f"columns of different lengths: {lengths}")
        given = columns or {}
        others = dict(zip(_free(list(given)), map(pa.array, given.values()), strict=True))
        table = pa.table({ID: pa.array(names, pa.large_string()), TEXT: pa.array(texts, pa.large_string()), **others})
        for fault, why in text_faults(table[TEXT].combine_chunks()):
            if fault.any():
                raise DataError(f"text {int(fault.argmax()) + 1} {why}; leave it out")
        return cls(_unique_ids(table, source="the given ids"), id_column=None if ids is None else ID)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        first = f", first {self.texts[0].as_py()!r}" if len(self) else ""
        return f"Corpus({len(self):,} rows{first})"

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids."""
        return self.table[ID]

    @property
    def texts(self) -> pa.ChunkedArray:
        """The texts."""
        return self.table[TEXT]


def _read_file(
    file: Path, tally: Tally, *, id_column: str | None, column: str | None, alone: bool
) -> tuple[pa.Table, str | None]:
    """Read one file; return its good rows and the column that ids came from."""
    tally.start_file(str(file))
    kind = file_format(file, known=TEXT_FORMATS)
    if kind == "markdown":
        raise DataError(f"{file}: a Markdown file has no rows; give a table, or text with one row on each line")
    if kind == "text" and (id_column or column):
        raise DataError(f"{file}: plain text has no columns, but {id_column or column!r} was asked for; give a table")
    prefix = "" if alone else f"{file.name}:"
    reader = _Reader(id_column, column)
    try:
        batches = reader.batches(file, kind=kind, tally=tally)
        tables = [part for lines, table in batches if len(part := _sound(lines, table, tally, prefix=prefix))]
    except ColumnError as error:
        raise DataError(f"{file}: {error}") from None
    return _joined(tables), reader.id_name


class _Reader:
    """Yields (lines, table) from a file; a table has the columns of the file under their names, and `text` and `id`."""

    def __init__(self, id_column: str | None, column: str | None) -> None:
        self._id, self._column = id_column, column
        self.id_name: str | None = None

    def batches(self, file: Path, *, kind: str, tally: Tally) -> Iterator[tuple[Sequence[int], pa.Table]]:
        if kind == "text":
            with open_bytes(file) as stream:
                lines = decoded(numbered_lines(stream), tally)
                while part := list(islice(lines, _BATCH)):
                    numbers, texts = zip(*part, strict=True)
                    yield numbers, pa.table({TEXT: pa.array(texts, pa.large_string())})
        elif kind in ("parquet", "arrow"):
            yield from self._arrow(file, kind=kind, tally=tally)
        else:
            yield from self._lines(file, kind=kind, tally=tally)

    def _names(self, seen: Sequence[str]) -> list[str]:
        """Return the file's names with the text first and, if there is one, the id second."""
        (text,) = text_column(self._column)(seen)
        usual = next((name for name in seen if name.strip().casefold() == ID), None)
        self.id_name = usual if self._id is None else require(seen, [self._id])[0]
        special = [str(text), *([self.id_name] if self.id_name is not None else [])]
        return [*special, *(name for name in seen if name not in special)]

    def _renamed(self, names: Sequence[str]) -> list[str]:
        special = 1 if self.id_name is None else 2
        return [TEXT, ID][:special] + _free(names[special:])

    def _arrow(self, file: Path, *, kind: str, tally: Tally) -> Iterator[tuple[Sequence[int], pa.Table]]:
        lines = count(1)
        for batch in arrow_batches(file, kind=kind, select=self._names):
            names = self._names(batch.schema.names)
            texts, broken = as_texts(batch[names[0]], name=names[0])
            numbers = np.array(list(islice(lines, len(batch))))
            table = pa.table([texts, *(batch[name] for name in names[1:])], names=self._renamed(names))
            if broken.any():
                tally.reject(numbers[broken].tolist(), BROKEN_UTF8)
                numbers, table = numbers[~broken], table.filter(pa.array(~broken))
            yield numbers.tolist(), table

    def _lines(self, file: Path, *, kind: str, tally: Tally) -> Iterator[tuple[Sequence[int], pa.Table]]:
        headerless = positions([name for name in (self._column, self._id) if name is not None] or None)
        if headerless is not None and self._id is not None:
            self.id_name = self._id
        latest: list[str] = [TEXT, ID][: len(headerless)] if headerless else []

        # `line_records` calls this before the record it concerns, and again only when a JSON object has other keys.
        def select(seen: Sequence[str]) -> Sequence[str | None]:
            names = self._names(seen)
            latest[:] = self._renamed(names)
            return names

        wanted: Select = select
        records = line_records(file, kind=kind, select=wanted, headerless=headerless, tally=tally)
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        for number, values in records:
            if not isinstance(values[0], str):
                found = "missing" if values[0] is None else f"a {type(values[0]).__name__}, not text"
                tally.reject([number], f"the text is {found}")
                continue
            rows.append(dict(zip(latest, values, strict=True)))
            numbers.append(number)
            if len(rows) == _BATCH:
                yield numbers, _table_of(rows)
                rows, numbers = [], []
        if rows:
            yield numbers, _table_of(rows)


def _free(names: Sequence[str]) -> list[str]:
    return free_names(names, taken=(TEXT, ID), change=lambda name: f"{name}_")


def _table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> pa.Array:
    if name == TEXT:
        return pa.array([value if is_encodable(value) else None for value in values], pa.large_string())
    try:
        return pa.array(values)
    except (pa.ArrowException, UnicodeError, OverflowError):
        texts = [None if value is None else str(value) for value in values]
        return pa.array([text if text is None or is_encodable(text) else None for text in texts], pa.large_string())


def _sound(lines: Sequence[int], table: pa.Table, tally: Tally, *, prefix: str) -> pa.Table:
    """Return the rows whose text and id can be used, `id` and `text` first; count the others."""
    numbers = np.asarray(lines, dtype=np.int64)
    texts = table[TEXT].combine_chunks()
    ids = _ids(table, numbers, prefix=prefix)
    good = np.ones(len(table), dtype=bool)
    faults = [(fault, f"the text {why}") for fault, why in text_faults(texts)]
    faults += [(fault, f"the id {why}") for fault, why in text_faults(ids)]
    for fault, why in faults:
        found = good & fault
        if found.any():
            tally.reject(numbers[found].tolist(), why)
            good &= ~fault
    tally.read += int(good.sum())
    others = [name for name in table.column_names if name not in (ID, TEXT)]
    whole = pa.table([ids, texts, *(table[name] for name in others)], names=[ID, TEXT, *others])
    return whole if good.all() else whole.filter(pa.array(good))


def _ids(table: pa.Table, lines: np.ndarray[Any, Any], *, prefix: str) -> pa.Array:
    if ID not in table.column_names:
        return pa.array([f"{prefix}{line}" for line in lines], pa.large_string())
    column = table[ID].combine_chunks()
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        raise ColumnError(f"the column of ids holds {column.type}; ids must be texts or numbers") from None


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Put tables with possibly different columns together; a column of mixed types becomes text."""
    if not tables:
        return pa.table({ID: pa.array([], pa.large_string()), TEXT: pa.array([], pa.large_string())})
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        return pa.concat_tables([_as_text(table) for table in tables], promote_options="permissive")


def _as_text(table: pa.Table) -> pa.Table:
    columns = [
        column if name in (ID, TEXT) else _texts_of(column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        values = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(values, pa.large_string())])


def _unique_ids(table: pa.Table, *, source: str) -> pa.Table:
    """Refuse ids that several rows share."""
    counts = pc.value_counts(table[ID])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        shown = ", ".join(repr(name[:40]) for name in repeated.field("values")[:5].to_pylist())
        raise DataError(
            f"{source}: {len(repeated):,} ids are those of several rows (first: {shown}); an id must name one row: "
            "mend them, or name another column with --id (id=...)"
        )
    return table
