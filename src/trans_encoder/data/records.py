"""Records out of files: JSON lines, tab- or comma-separated lines, and batches of Parquet or Arrow files."""

import csv
import json
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.data.columns import ColumnError, Select
from trans_encoder.data.report import Tally
from trans_encoder.data.sources import MAX_LINE_BYTES, numbered_lines, open_bytes
from trans_encoder.data.storage import SLICE_ROWS
from trans_encoder.errors import DataError

TOO_LONG = f"longer than {MAX_LINE_BYTES:,} bytes"
BROKEN_UTF8 = "broken UTF-8"

Line = tuple[int, bytes | None]
Record = tuple[int, Sequence[Any]]


def line_records(
    file: Path,
    *,
    kind: str,
    select: Select,
    headerless: Sequence[int | None] | None,
    tally: Tally,
    others: bool = False,
) -> Iterator[Record]:
    """Yield (line number, wanted values) from a JSONL, TSV or CSV file; bad lines go to the tally.

    With `others`, the last value is a JSON object of all that was not wanted.
    """
    with open_bytes(file) as stream:
        lines = numbered_lines(stream)
        if kind == "jsonl":
            yield from _json_records(lines, select=select, tally=tally, others=others)
        else:
            rows = _csv_rows(lines) if kind == "csv" else _tsv_rows(lines)
            yield from _delimited_records(rows, select=select, headerless=headerless, tally=tally, others=others)


def decoded(lines: Iterable[Line], tally: Tally) -> Iterator[tuple[int, str]]:
    """Yield the lines that are text; count the blank ones and reject the broken ones."""
    for number, line in lines:
        if line is None:
            tally.reject([number], TOO_LONG)
        elif not line or line.isspace():
            tally.blank += 1
        else:
            try:
                yield number, line.decode()
            except UnicodeDecodeError:
                tally.reject([number], BROKEN_UTF8)


def _json_records(lines: Iterable[Line], *, select: Select, tally: Tally, others: bool) -> Iterator[Record]:
    keys: tuple[str, ...] | None = None
    names: Sequence[str | None] = ()
    for number, line in decoded(lines, tally):
        try:
            item = json.loads(line)
            if not isinstance(item, dict):
                tally.reject([number], f"a JSON {_json_type(item)}, not an object")
                continue
            if keys != (seen := tuple(item)):
                names, keys = select(seen), seen
        except json.JSONDecodeError as error:
            tally.reject([number], f"broken JSON: {error.msg} at column {error.colno}")
        except RecursionError:
            tally.reject([number], "broken JSON: nested too deeply")
        except (ValueError, ColumnError) as error:
            tally.reject([number], str(error))
        else:
            values = [None if name is None else item[name] for name in names]
            rest = {name: value for name, value in item.items() if name not in names} if others else {}
            yield number, [*values, json.dumps(rest)] if others else values


def _json_type(value: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names.get(type(value), "object")


def _tsv_rows(lines: Iterable[Line]) -> Iterator[tuple[int, list[str] | str]]:
    """Yield (number, fields), or (number, what is wrong): no quoting, so a line is a row."""
    for number, line in lines:
        yield number, TOO_LONG if line is None else _plain_fields(line, separator="\t")


def _csv_rows(lines: Iterator[Line]) -> Iterator[tuple[int, list[str] | str]]:
    """Yield (number of the first line, fields), or (number, what is wrong).

    When a quoted field does not end (before a bad line, the size limit or the end of the file), only the line on which
    it starts is bad and reading goes on after it, so that one stray quotation mark cannot swallow a file.
    """
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_LINE_BYTES))
    ahead: deque[Line] = deque()
    while (first := ahead.popleft() if ahead else next(lines, None)) is not None:
        number, line = first
        if line is None:
            yield number, TOO_LONG
        elif b'"' not in line:
            yield number, _plain_fields(line, separator=",")
        else:
            taken: list[Line] = []
            try:
                fields = next(csv.reader(_quoted_lines(line, lines, ahead=ahead, taken=taken), strict=True))
                yield number, fields
            except (UnicodeDecodeError, csv.Error) as error:
                ahead.extendleft(reversed(taken))
                yield number, BROKEN_UTF8 if isinstance(error, UnicodeDecodeError) else f"broken quoting: {error}"


def _plain_fields(line: bytes, *, separator: str) -> list[str] | str:
    try:
        return line.decode().split(separator)
    except UnicodeDecodeError:
        return BROKEN_UTF8


def _quoted_lines(first: bytes, lines: Iterator[Line], *, ahead: deque[Line], taken: list[Line]) -> Iterator[str]:
    """Yield a line and, as long as the CSV reader asks for more, those after it; `taken` holds the latter."""
    size = len(first)
    yield first.decode() + "\n"
    while (item := ahead.popleft() if ahead else next(lines, None)) is not None:
        taken.append(item)
        size += len(item[1] or b"")
        if item[1] is None or size > MAX_LINE_BYTES:
            return
        try:
            text = item[1].decode()
        except UnicodeDecodeError:
            return
        yield text + "\n"


def _delimited_records(
    rows: Iterator[tuple[int, list[str] | str]],
    *,
    select: Select,
    headerless: Sequence[int | None] | None,
    tally: Tally,
    others: bool,
) -> Iterator[Record]:
    width, indices, header = 0, headerless, []
    for number, fields in rows:
        if fields == [""]:
            tally.blank += 1
        elif indices is None:
            if isinstance(fields, str):
                raise ColumnError(f"line {number}, the header, cannot be used: {fields}")
            width, header = len(fields), fields
            indices = [None if name is None else fields.index(name) for name in select(fields)]
        elif isinstance(fields, str):
            tally.reject([number], fields)
        elif width and len(fields) != width:
            tally.reject([number], f"{len(fields)} fields, expected {width}")
        else:
            if not width:  # the first line of a file without a header
                width, header = len(fields), [f"column{place}" for place in range(1, len(fields) + 1)]
                if width <= max(index or 0 for index in indices):
                    raise ColumnError(f"line {number} has {width} fields, fewer than the columns that were given")
            values: list[Any] = [None if index is None else fields[index] for index in indices]
            if others:
                rest = {header[place]: field for place, field in enumerate(fields) if place not in indices}
                values.append(json.dumps(rest))
            yield number, values


def arrow_batches(file: Path, *, kind: str, select: Select) -> Iterator[pa.RecordBatch]:
    """Yield the wanted columns of a Parquet or Arrow file, batch by batch."""
    try:
        with _seekable(file) as source:
            if kind == "parquet":
                content = pq.ParquetFile(source, pre_buffer=False)
                names = [name for name in select(content.schema_arrow.names) if name is not None]
                yield from content.iter_batches(batch_size=SLICE_ROWS, columns=names)
            else:
                for batch in _ipc_batches(source):
                    yield batch.select([name for name in select(batch.schema.names) if name is not None])
    except (pa.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:
        # A damaged length may ask for more bytes than any machine has.
        reason = str(error) or "a part of it claims to be larger than the memory"
        raise DataError(
            f"{file}: not a whole {kind.capitalize()} file ({reason}); make or download it again"
        ) from error


def _ipc_batches(source: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file, or of an Arrow stream such as the `datasets` library keeps."""
    try:
        content = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        yield from pa.ipc.open_stream(source)
    else:
        yield from (content.get_batch(index) for index in range(content.num_record_batches))


@contextmanager
def _seekable(file: Path) -> Iterator[IO[bytes]]:
    """Open a file that is not read from start to end; a `.gz` one is unpacked to a temporary file first."""
    with open_bytes(file) as stream:
        if not file.name.lower().endswith(".gz"):
            yield stream
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(stream, unpacked)
            unpacked.seek(0)
            yield unpacked
