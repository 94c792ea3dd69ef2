"""Rows of a table: ids and columns are kept, short texts too, and bad rows are named."""

import pytest

from trans_encoder.data.corpus import Corpus
from trans_encoder.errors import DataError


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_ids_and_other_columns_are_kept(tmp_path):
    file = write(tmp_path / "t.csv", 'ticket,body,year\nT1,"a, b",2020\nT2,ok,2021\n')
    corpus = Corpus.read(file, id="ticket", column="body")
    assert corpus.table.to_pylist() == [
        {"id": "T1", "text": "a, b", "year": "2020"},
        {"id": "T2", "text": "ok", "year": "2021"},
    ]


def test_columns_that_are_called_like_ours_are_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"body": "a boat", "text": "one", "text_": "two"}\n', encoding="utf-8")
    (row,) = Corpus.read(path, column="body").table.to_pylist()
    assert row == {"id": "1", "text": "a boat", "text__": "one", "text_": "two"}


def test_without_an_id_column_rows_are_known_by_their_lines(tmp_path):
    assert Corpus.read(write(tmp_path / "t.txt", "one\n\ntwo\n")).ids.to_pylist() == ["1", "3"]
    assert Corpus.read(write(tmp_path / "t.tsv", "text\none\ntwo\n")).ids.to_pylist() == ["2", "3"]


def test_a_column_called_id_is_found(tmp_path):
    file = write(tmp_path / "t.jsonl", '{"id": 7, "text": "a"}\n{"text": "b", "id": 8, "tags": ["x"]}\n')
    corpus = Corpus.read(file)
    assert corpus.table.to_pylist() == [{"id": "7", "text": "a", "tags": None}, {"id": "8", "text": "b", "tags": ["x"]}]


def test_parquet_rows_are_numbered_and_keep_their_types(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": [1, 2], "body": ["a", "b"]}), tmp_path / "t.parquet")
    assert Corpus.read(tmp_path / "t.parquet").table.to_pylist() == [
        {"id": "1", "text": "a", "n": 1},
        {"id": "2", "text": "b", "n": 2},
    ]


def test_a_bad_row_is_named_with_its_file_and_line(tmp_path):
    file = write(tmp_path / "t.csv", "id,text\n1,fine\n2, \n3,a,b\n")
    with pytest.raises(DataError) as error:
        Corpus.read(file)
    assert f"{file}:3: the text is empty" in str(error.value)
    assert f"{file}:4: 3 fields, expected 2" in str(error.value)
    assert "--skip-bad" in str(error.value)
    corpus = Corpus.read(file, skip_bad=True)
    assert (corpus.ids.to_pylist(), corpus.report.bad) == (["1"], 2)


def test_an_id_names_one_row(tmp_path):
    file = write(tmp_path / "t.csv", "id,text\n1,a\n1,b\n")
    with pytest.raises(DataError, match=r"1 ids are those of several rows .first: '1'.*--id"):
        Corpus.read(file)


def test_a_column_that_mixes_types_becomes_text(tmp_path):
    file = write(tmp_path / "t.jsonl", '{"text": "a", "n": 1}\n{"text": "b", "n": "x"}\n')
    assert [row["n"] for row in Corpus.read(file).table.to_pylist()] == ["1", "x"]


def test_a_missing_column_is_named(tmp_path):
    file = write(tmp_path / "t.csv", "a,b\n1,2\n")
    with pytest.raises(DataError, match=r"no column 'body' .columns seen: 'a', 'b'"):
        Corpus.read(file, column="body")
