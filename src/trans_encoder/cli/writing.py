"""Pairs out: the format comes from the file's name."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from trans_encoder.data.pairs import PairSet
from trans_encoder.errors import ConfigurationError
from trans_encoder.files import atomic_file


def write_pairs(pairs: PairSet, out: Path) -> None:
    """Write pairs with their scores, if they have any, as .jsonl, .csv or .parquet, atomically."""
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
        for sentence1, sentence2, score in pairs.rows():
            row = {"sentence1": sentence1, "sentence2": sentence2} | ({} if score is None else {"score": score})
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_csv(pairs: PairSet, file: Path) -> None:
    pyarrow.csv.write_csv(pairs.table, file)


def _write_parquet(pairs: PairSet, file: Path) -> None:
    pyarrow.parquet.write_table(pairs.table, file)
