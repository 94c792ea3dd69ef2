"""The same pairs as files of every format."""

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = [("A cat sat.", 'He said "hi", twice.', 0.5), ("Ein Öl-Fass", "你好 🙂", 4.0), ("x\ry", "' y", -1.0)]


def as_jsonl(rows: Iterable[tuple[str, str, float]]) -> bytes:
    return b"".join(json.dumps({"text1": a, "text2": b, "score": s}).encode() + b"\n" for a, b, s in rows)


def as_tsv(rows: Iterable[tuple[str, str, float]]) -> bytes:
    return "".join(["text1\ttext2\tscore\n", *(f"{a}\t{b}\t{s}\n" for a, b, s in rows)]).encode()


def as_csv(rows: Iterable[tuple[str, str, float]]) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerows([("text1", "text2", "score"), *rows])
    return buffer.getvalue().encode()


def as_parquet(rows: Iterable[tuple[str, str, float]]) -> bytes:
    first, second, scores = zip(*rows, strict=True)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text1": first, "text2": second, "score": scores}), buffer)
    return buffer.getvalue()


WRITERS = {"jsonl": as_jsonl, "tsv": as_tsv, "csv": as_csv, "parquet": as_parquet}


def written(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
    return path
