r"""Reading pairs of sentences from JSONL, TSV, CSV, Parquet and Arrow files, each also as `.gz`.

- JSONL: one JSON object a line. TSV: a header, then fields split at tabs, **no quoting at all** (a quotation mark is
  text). CSV: a header and RFC 4180 quoting; a quoted field may hold line ends.
- Lines end in `\n` or `\r\n`; a lone `\r` is text. A byte order mark is ignored. Blank lines are ignored and counted.
- A bad line is one with broken UTF-8, a NUL, too few or too many fields, an unterminated quote, broken JSON, a value of
  the wrong type, an empty sentence, a score that is not a finite number, or more than 1 MiB.
- Any finite score is accepted: the metrics compare ranks. Scores must be there for all lines or for none.
- Columns are found by their usual names (see `columns`) or given; given as 1, 2, ... they are positions in a TSV or CSV
  file without a header.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.data.columns import ColumnError, Select, free_names, pair_columns, positions
from trans_encoder.data.records import BROKEN_UTF8, Record, arrow_batches, line_records
from trans_encoder.data.report import ReadReport, Tally
from trans_encoder.data.screening import OTHERS, PAIR_SCHEMA, Rows, as_scores, as_texts, pair_rows, screen
from trans_encoder.data.sources import expand, file_format
from trans_encoder.data.storage import spool, spool_filtered
from trans_encoder.data.words import is_encodable
from trans_encoder.errors import DataError

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tsv": "tsv",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_OTHER_RANGE = " Scores of another range are mapped to 0 to 1: give it, such as --range 0,5."
_RECORDS = 1 << 13  # Python objects held at a time: few enough to stay in the processor's cache


def read_pairs(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    scores: bool = True,
    score_range: tuple[float, float] | None = None,
    skip_bad: bool = False,
    others: bool = False,
) -> tuple[pa.Table, ReadReport]:
    """Read a file, a folder of Parquet shards or a glob into one memory-mapped table, with an account of every line.

    With `others`, the table has all other columns as well, after those of the pairs.
    """
    select, places = pair_columns(columns, scores=scores), positions(columns)
    headerless = None if places is None else [*places[: 3 if scores else 2], None][:3]
    files = expand(path, endings=(".parquet", ".parquet.gz"))

    def rows(tally: Tally) -> Iterator[Rows]:
        for file in files:
            tally.start_file(str(file))
            kind = file_format(file, known=FORMATS)
            try:
                if kind in ("parquet", "arrow"):
                    batches = arrow_batches(file, kind=kind, select=(lambda seen: seen) if others else select)
                    yield from arrow_rows(batches, select=select, tally=tally, others=others)
                else:
                    records = line_records(
                        file, kind=kind, select=select, headerless=headerless, tally=tally, others=others
                    )
                    yield from _record_rows(records, tally)
            except ColumnError as error:
                raise DataError(f"{file}: {error}") from None

    table, report = collect(rows, source=str(path), score_range=score_range, skip_bad=skip_bad)
    return with_other_columns(table) if others else table, report


def collect(
    rows: Callable[[Tally], Iterable[Rows]],
    *,
    source: str,
    score_range: tuple[float, float] | None = None,
    skip_bad: bool = False,
) -> tuple[pa.Table, ReadReport]:
    """Check rows as they come, spool the good ones to disk and return them, with the report."""
    tally = Tally(source)
    screened = (screen(part, tally, score_range=score_range) for part in rows(tally))
    first = next(screened, None)
    schema = PAIR_SCHEMA if first is None else first.schema
    table = spool(_alike(chain([] if first is None else [first], screened), schema, source=source), schema=schema)
    partly_scored = 0 < tally.unscored < tally.read
    if partly_scored:
        tally.reject_unscored()
    elif tally.unscored:
        table = table.drop_columns("score")
    remedy = ""
    if "score" in "".join(tally.problems):
        remedy = " --columns LEFT,RIGHT reads pairs without their scores." if score_range is None else _OTHER_RANGE
    report = tally.report(skip_bad=skip_bad, remedy=remedy)
    if partly_scored:
        table = spool_filtered(table, pc.is_valid(table["score"]).to_numpy())
    return table, report


def _alike(batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, source: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.schema.equals(schema):
            raise DataError(
                f"{source}: its files have different columns ({', '.join(schema.names)}; then "
                f"{', '.join(batch.schema.names)}), or columns of different types; give files of one kind at a time"
            )
        yield batch


def with_other_columns(table: pa.Table) -> pa.Table:
    """Turn the JSON objects of other columns, if there are any, into columns of their own.

    A column of mixed types holds text: strings as they are, anything else as JSON. One that is called like a column
    of pairs gets `input_` before its name.
    """
    if OTHERS not in table.column_names:
        return table
    rows = [json.loads(text) for text in table[OTHERS].to_pylist()]
    table = table.drop_columns(OTHERS)
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name, free in zip(names, _free(names), strict=True):
        table = table.append_column(free, _as_column([row.get(name) for row in rows]))
    return table


def _free(names: Sequence[str]) -> list[str]:
    return free_names(names, taken=PAIR_SCHEMA.names, change=lambda name: f"input_{name}")


def _as_column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pa.array([text and text.encode(errors="replace").decode() for text in texts], pa.large_string())


def arrow_rows(
    batches: Iterable[pa.RecordBatch], *, select: Select, tally: Tally, others: bool = False
) -> Iterator[Rows]:
    """Take the pairs out of Arrow batches, with `others` the other columns as well; rows are numbered from 1."""
    start = 1
    for batch in batches:
        first, second, score = select(batch.schema.names)
        texts1, broken1 = as_texts(batch[first], name=str(first))
        texts2, broken2 = as_texts(batch[second], name=str(second))
        scores = pa.nulls(len(batch), pa.float64()) if score is None else as_scores(batch[score], name=score)
        rows = pair_rows(range(start, start + len(batch)), texts1, texts2, scores)
        if others:
            rows = Rows(rows.lines, _beside(rows.batch, batch, used={first, second, score}))
        start += len(batch)
        broken = broken1 | broken2
        if broken.any():
            tally.reject(rows.lines[broken].tolist(), BROKEN_UTF8)
            rows = Rows(rows.lines[~broken], rows.batch.filter(pa.array(~broken)))
        yield rows


def _beside(pairs: pa.RecordBatch, batch: pa.RecordBatch, *, used: set[str | None]) -> pa.RecordBatch:
    """Put the columns of a batch that are not in use behind its pairs."""
    more = [name for name in batch.schema.names if name not in used]
    fields = [
        *pairs.schema,
        *(batch.schema.field(name).with_name(free) for name, free in zip(more, _free(more), strict=True)),
    ]
    return pa.RecordBatch.from_arrays([*pairs.columns, *(batch[name] for name in more)], schema=pa.schema(fields))


def _record_rows(records: Iterator[Record], tally: Tally) -> Iterator[Rows]:
    while part := list(islice(records, _RECORDS)):
        try:
            yield _plain_rows(part)
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            # Something in this batch is missing or of the wrong type: look at each value.
            if typed := list(_typed(part, tally)):
                yield pair_rows(*zip(*typed, strict=True))


def _plain_rows(records: Sequence[Record]) -> Rows:
    lines, values = zip(*records, strict=True)
    first, second, scores, *others = zip(*values, strict=True)
    numbers = scores if scores.count(None) == len(scores) else [float(score) for score in scores]
    return pair_rows(lines, first, second, numbers, *others)


def _typed(records: Iterable[Record], tally: Tally) -> Iterator[tuple[Any, ...]]:
    """Yield (line, sentence, sentence, score, ...) where the types are right; reject the others."""
    for line, (first, second, score, *others) in records:
        try:
            yield line, _text(first), _text(second), _number(score), *others
        except (TypeError, ValueError, OverflowError) as error:
            tally.reject([line], str(error))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"a sentence is a {type(value).__name__}, not text")
    if not is_encodable(value):
        raise ValueError("a sentence holds half a surrogate pair, which is not text")
    return value


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, (int, float)):
        return None if value is None else float(value)
    if not isinstance(value, str):
        raise TypeError(f"the score is a {type(value).__name__}, not a number")
    if not value.strip():
        return None
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"the score {value[:40]!r} is not a number") from None
