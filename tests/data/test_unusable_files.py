"""Files that cannot be used as a whole are refused, with the name of the file and the reason."""

import io
import os
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from pair_files import ROWS, as_tsv, written
from trans_encoder.data import sources
from trans_encoder.data.pairs import PairSet
from trans_encoder.errors import DataError, RunError


def test_an_arrow_stream_that_claims_more_than_any_memory_is_refused(tmp_path: Path):
    table, path, stream = pa.table({"sentence1": ["a"], "sentence2": ["b"]}), tmp_path / "p.arrow", io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue()
    (body,) = {batch.body.size for batch in list(pa.ipc.MessageReader.open_stream(content))[1:]}
    assert content.count(struct.pack("<q", body)) == 1
    path.write_bytes(content.replace(struct.pack("<q", body), struct.pack("<q", 1 << 54)))
    with pytest.raises(DataError, match="claims to be larger than the memory"):
        PairSet.read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.tsv", b"", "it has no lines of data"),
        ("empty.jsonl", b"\n\n", "it has no lines of data"),
        ("header.csv", b"a,b\n", "it has no lines of data"),
        ("header.tsv", b"a\xff\tb\n", "line 1, the header, cannot be used: broken UTF-8"),
        ("bad.parquet", b"PAR1 nothing", "not a whole Parquet file"),
        ("bad.arrow", b"nothing", "not a whole Arrow file"),
        ("pairs.xlsx", b"", "unknown kind of file; expected a name ending in .jsonl"),
        ("pairs", b"", "unknown kind of file"),
    ],
)
def test_a_file_without_pairs_is_refused(tmp_path: Path, name: str, content: bytes, message: str):
    with pytest.raises(DataError, match=message) as error:
        PairSet.read(written(tmp_path, name, content), skip_bad=True)
    assert name in str(error.value)


def test_paths_without_a_file_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="there is no file"):
        PairSet.read(tmp_path / "missing.tsv")
    with pytest.raises(DataError, match=r"a folder without .parquet"):
        PairSet.read(tmp_path)
    with pytest.raises(DataError, match="no file matches"):
        PairSet.read(tmp_path / "*.parquet")
    with pytest.raises(DataError, match="cannot look for"):
        PairSet.read("x" * 5000)
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        PairSet.read(tmp_path / "pipe.tsv")


def test_all_lines_bad_is_an_error_even_when_skipping(tmp_path: Path):
    with pytest.raises(DataError, match="nothing could be read, all 2 lines are bad"):
        PairSet.read(written(tmp_path, "p.jsonl", "1\n2\n"), skip_bad=True)


@pytest.mark.parametrize("damage", ["cut", "altered", "trailing", "no gzip"])
def test_broken_gzip_is_refused_even_when_skipping(tmp_path: Path, damage: str):
    path = written(tmp_path, "p.tsv.gz", as_tsv(ROWS * 1000))
    packed = bytearray(path.read_bytes())
    if damage == "altered":
        packed[len(packed) // 2] ^= 0xFF
    damaged = {"cut": packed[:-30], "altered": packed, "trailing": packed + b"rubbish", "no gzip": as_tsv(ROWS)}
    path.write_bytes(damaged[damage])
    with pytest.raises(DataError, match="broken gzip file"):
        PairSet.read(path, skip_bad=True)


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "_FREE_BYTES", 1 << 20)
    path = written(tmp_path, "p.tsv.gz", b"a\tb\n" + b"\0" * (1 << 25))
    with pytest.raises(DataError, match="a gzip bomb"):
        PairSet.read(path, skip_bad=True)


def test_a_full_disk_names_the_folder_for_temporary_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full() -> io.RawIOBase:
        return open("/dev/full", "r+b", buffering=0)  # noqa: PTH123

    monkeypatch.setattr("trans_encoder.data.storage.tempfile.TemporaryFile", full)
    with pytest.raises(RunError, match=r"cannot write temporary data.*TMPDIR"):
        PairSet.read(written(tmp_path, "p.tsv", as_tsv(ROWS * 100)))
