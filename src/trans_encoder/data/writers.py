"""Pairs out: the format comes from the file's name."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from trans_encoder.data.pairs import PairSet
from trans_encoder.data.storage import SLICE_ROWS
from trans_encoder.errors import ConfigurationError
from trans_encoder.files import atomic_file


def write_pairs(pairs: PairSet, out: Path) -> None:
    """Write pairs with their scores and other columns, if they have any, as .jsonl, .csv or .parquet, atomically."""
    write = writer_of(out)
    with atomic_file(out) as temporary:
        write(pairs, temporary)


def writer_of(out: Path) -> Callable[[PairSet, Path], None]:
    """Find the writer for a file's name, before any work is done for it."""
    writers = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
    if out.suffix not in writers:
        raise ConfigurationError(f"cannot write {out}; give a name that ends in {', '.join(writers)}")
    return writers[out.suffix]


def _write_jsonl(pairs: PairSet, file: Path) -> None:
    with file.open("w", encoding="utf-8") as lines:
        for batch in pairs.table.to_batches(SLICE_ROWS):
            # What JSON has no type for, such as a date in a Parquet file, is written as text.
            lines.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())


def _write_csv(pairs: PairSet, file: Path) -> None:
    table = pairs.table
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):  # no CSV has lists or tables: their JSON
            texts = [None if value is None else json.dumps(value, default=str) for value in table[place].to_pylist()]
            table = table.set_column(place, field.name, pa.array(texts, pa.large_string()))
    pyarrow.csv.write_csv(table, file)


def _write_parquet(pairs: PairSet, file: Path) -> None:
    pyarrow.parquet.write_table(pairs.table, file)
