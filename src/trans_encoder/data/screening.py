"""The checks that every pair must pass, a batch at a time."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.data.columns import ColumnError
from trans_encoder.data.report import Tally
from trans_encoder.data.sources import MAX_LINE_BYTES

Mask = npt.NDArray[np.bool_]
ROUNDING = 1e-3
"""A cosine of unit vectors in half precision may leave [-1, 1] by this much."""
PAIR_SCHEMA = pa.schema([("sentence1", pa.large_string()), ("sentence2", pa.large_string()), ("score", pa.float64())])

OTHERS = "\0others"
"""Holds, while lines are read, a JSON object of each line's other columns; no file has a column of this name."""

_RAW = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


class Rows(NamedTuple):
    """Pairs as they were read, not yet checked, with the number of each one's line."""

    lines: npt.NDArray[np.int64]
    batch: pa.RecordBatch


def pair_rows(lines: Sequence[int], *columns: Any) -> Rows:
    """Build rows from line numbers and three columns: sentence, sentence, score; a fourth holds `OTHERS`."""
    schema = (
        PAIR_SCHEMA if len(columns) == len(PAIR_SCHEMA) else PAIR_SCHEMA.append(pa.field(OTHERS, pa.large_string()))
    )
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    return Rows(np.asarray(lines, dtype=np.int64), pa.RecordBatch.from_arrays(arrays, schema=schema))


def as_texts(column: pa.Array, *, name: str) -> tuple[pa.Array, Mask]:
    """Return a column as large strings and where its UTF-8 is broken; raise ColumnError if it holds something else."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if kind not in (*_RAW, pa.null()):
        raise ColumnError(f"column {name!r} holds {column.type}, not text; name the right columns with --columns")
    try:
        column.validate(full=True)
        return column.cast(pa.large_string()), np.zeros(len(column), dtype=bool)
    except pa.ArrowException as error:
        if kind != column.type:
            raise _damaged(name, error) from error
    try:
        raw = column.view(_RAW[kind])
        raw.validate(full=True)
    except pa.ArrowException as error:
        raise _damaged(name, error) from error
    values = raw.to_pylist()
    texts = [None if value is None else value.decode(errors="replace") for value in values]
    broken = [value is not None and not _is_utf8(value) for value in values]
    return pa.array(texts, pa.large_string()), np.array(broken, dtype=bool)


def _damaged(name: str, error: pa.ArrowException) -> ColumnError:
    return ColumnError(f"column {name!r} is damaged ({error}); make or download the file again")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_scores(column: pa.Array, *, name: str) -> pa.Array:
    """Return a column of numbers or booleans as float64; raise ColumnError if it holds something else."""
    kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    ):
        raise ColumnError(
            f"column {name!r}, the score, holds {kind}, not numbers; --columns LEFT,RIGHT reads the pairs without it"
        )
    try:
        column.validate()
        return column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise _damaged(name, error) from error


def screen(rows: Rows, tally: Tally, *, score_range: tuple[float, float] | None = None) -> pa.RecordBatch:
    """Return the good pairs of a batch and count the others."""
    good = np.ones(len(rows.lines), dtype=bool)
    for fault, why in _faults(rows.batch, score_range):
        found = good & fault
        if found.any():
            tally.reject(rows.lines[found].tolist(), why)
            good &= ~fault
    batch, lines = rows.batch, rows.lines
    if not good.all():
        batch, lines = batch.filter(pa.array(good)), lines[good]
    tally.read += len(lines)
    unscored = _mask(pc.is_null(batch["score"]))
    if unscored.any():
        tally.note_unscored(lines[unscored].tolist())
    return batch


def _faults(batch: pa.RecordBatch, score_range: tuple[float, float] | None) -> Iterator[tuple[Mask, str]]:
    for name in ("sentence1", "sentence2"):
        texts = batch[name]
        for fault, why in text_faults(texts):
            yield fault, f"{name} {why}"
    yield _mask(pc.invert(pc.is_finite(batch["score"]))), "the score is not a finite number"
    if score_range is not None:
        low, high = score_range
        outside = pc.or_(pc.less(batch["score"], low - ROUNDING), pc.greater(batch["score"], high + ROUNDING))
        yield _mask(outside), f"the score is outside {low:g} to {high:g}"


def text_faults(texts: pa.Array) -> Iterator[tuple[Mask, str]]:
    """Yield, for each reason why a text can be unusable, which texts it applies to and the message."""
    size = pc.binary_length(texts)
    yield _mask(pc.is_null(texts)), "is missing"
    yield _mask(pc.or_(pc.equal(size, 0), pc.utf8_is_space(texts))), "is empty"
    yield _mask(pc.match_substring(texts, "\0")), "holds a NUL character"
    yield _mask(pc.greater(size, MAX_LINE_BYTES)), f"is longer than {MAX_LINE_BYTES:,} bytes"


def _mask(flags: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), dtype=bool)
