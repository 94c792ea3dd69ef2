"""Arrow tables that live on disk: spooled while they are read, memory-mapped afterwards, hashed by content."""

import hashlib
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.errors import DataError, RunError
from trans_encoder.files import atomic_file

SLICE_ROWS = 1 << 16
"""Rows handled at a time wherever a whole column would be too much."""


def spool(batches: Iterable[pa.RecordBatch], *, schema: pa.Schema) -> pa.Table:
    """Write batches to an anonymous temporary file as they come and return them as one memory-mapped table."""
    # The file has no name from the start, so neither a crash nor a kill leaves it behind.
    with tempfile.TemporaryFile() as file:
        writer = pa.ipc.new_file(pa.PythonFile(file, mode="w"), schema)
        for batch in batches:
            with _writing():
                writer.write_batch(batch)
        with _writing():
            writer.close()
            file.flush()
        return _mapped(cast(IO[bytes], file))


def spool_filtered(table: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows to keep as another memory-mapped table, made a slice at a time, however many there are."""
    starts = range(0, len(table), SLICE_ROWS)
    parts = (table.slice(start, SLICE_ROWS).filter(pa.array(keep[start : start + SLICE_ROWS])) for start in starts)
    return spool((batch for part in parts for batch in part.to_batches()), schema=table.schema)


def spool_array(pieces: Iterable[npt.NDArray[Any]], *, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Write pieces to an anonymous temporary file as they come and return them as one memory-mapped array."""
    with tempfile.TemporaryFile() as file:
        for piece in pieces:
            with _writing():
                file.write(np.ascontiguousarray(piece, dtype=dtype).data)
        with _writing():
            file.flush()
        if file.tell() == 0:
            return np.empty(0, dtype=dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=dtype)


@contextmanager
def _writing() -> Iterator[None]:
    """Say what to do where temporary data cannot be written; only around writes, as reading fails for other reasons."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write temporary data to {tempfile.gettempdir()}: {error.strerror or error}; "
            "free some space there or set TMPDIR to a folder with enough space"
        ) from error


def _mapped(file: IO[bytes]) -> pa.Table:
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapping))).read_all()


def save_table(table: pa.Table, path: Path) -> None:
    """Write a table as an Arrow IPC file, atomically."""
    # Given a path, the writer would leave its file open, and Windows renames no open file.
    with (
        atomic_file(path) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=SLICE_ROWS)


def open_table(path: Path) -> pa.Table:
    """Open an Arrow IPC file, memory-mapped."""
    try:
        with path.open("rb") as file:
            table = _mapped(file)
        table.validate()
        table.column_names  # noqa: B018 (names of a damaged file may not be text)
        return table
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror or error}") from error
    except (ValueError, pa.ArrowException) as error:
        raise DataError(f"{path} is not a whole Arrow file ({error}); make it again from its source") from error


def content_hash(table: pa.Table) -> str:
    """Return a SHA-256 of the columns' names and values, whatever their chunks."""
    digest = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"{name}:{column.type}:{len(column)};".encode())
        for part in _column_digests(column):
            digest.update(part)
    return digest.hexdigest()


def _column_digests(column: pa.ChunkedArray) -> list[bytes]:
    """Digest the values and, for texts, their lengths: together they determine the column."""
    values, lengths = hashlib.sha256(), hashlib.sha256()
    is_text = pa.types.is_large_string(column.type)
    for chunk in column.chunks:
        for start in range(0, len(chunk), SLICE_ROWS):
            part = chunk.slice(start, SLICE_ROWS)
            if is_text:
                lengths.update(memoryview(pc.binary_length(part).to_numpy()))
                values.update(_text_bytes(part))
            else:
                values.update(memoryview(part.to_numpy(zero_copy_only=False)))
    return [values.digest(), lengths.digest()]


def _text_bytes(texts: pa.Array) -> memoryview:
    """Return the bytes of an array of large strings, one after the other."""
    _, offsets, data = texts.buffers()
    if data is None:
        return memoryview(b"")
    bounds = np.frombuffer(offsets, dtype=np.int64, count=texts.offset + len(texts) + 1)
    return memoryview(data)[bounds[texts.offset] : bounds[-1]]
