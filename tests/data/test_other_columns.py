"""Ids and other columns of a file of pairs: kept with `others`, in every format, beside the right pair."""

import datetime
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from trans_encoder.cli import app
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.writers import write_pairs
from trans_encoder.errors import DataError

ROWS = [
    {"id": "007", "left": "a boat", "right": "the boat", "score": 3, "tags": ["x"], "day": "2024-05-01"},
    {"id": "008", "left": "a lamp", "right": "the lamp", "score": 4, "tags": [], "day": "2024-05-02"},
    {"id": "009", "left": "", "right": "nothing", "score": 5, "tags": ["y", "z"], "day": "2024-05-03"},
    {"id": "010", "left": "a clock", "right": "the clock", "score": 1, "tags": ["y"], "day": None},
]


def written(folder, ending):
    """Write the rows in one format; the third is a bad line."""
    file = folder / f"pairs.{ending}"
    if ending == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    elif ending == "parquet":
        days = [row["day"] and datetime.date.fromisoformat(row["day"]) for row in ROWS]
        pq.write_table(pa.Table.from_pylist(ROWS).set_column(5, "day", pa.array(days)), file)
    else:
        split = "\t" if ending == "tsv" else ","
        lines = [
            split.join(ROWS[0]),
            *(split.join(str(value).replace(",", ";") for value in row.values()) for row in ROWS),
        ]
        file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_other_columns_stand_beside_their_pair(tmp_path, ending):
    pairs = PairSet.read(written(tmp_path, ending), columns=["left", "right"], skip_bad=True, others=True)
    assert pairs.table.column_names == ["sentence1", "sentence2", "id", "input_score", "tags", "day"]
    assert pairs.table["id"].to_pylist() == ["007", "008", "010"]
    assert [row[0] for row in pairs.rows()] == ["a boat", "a lamp", "a clock"]
    assert pairs.take([2]).table["id"].to_pylist() == ["010"]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_scored_again_the_earlier_scores_stay(tmp_path, ending):
    pairs, columns = tmp_path / f"pairs.{ending}", {"columns": ["sentence1", "sentence2"], "others": True}
    write_pairs(PairSet.from_lists(["a", "c"], ["b", "d"], scores=[0.1, 0.2]), pairs)
    for second in (0.3, 0.4, 0.5):
        write_pairs(PairSet.read(pairs, **columns).with_scores([second, second]), pairs)
    (row, _) = PairSet.read(pairs, **columns).with_scores([1, 1]).table.to_pylist()
    assert sorted(float(value) for name, value in row.items() if "score" in name) == [0.1, 0.3, 0.4, 0.5, 1]
    assert float(row["input_score"]) == 0.1, "a column keeps the name that it has"


def test_they_do_not_change_what_pairs_are(tmp_path):
    file = written(tmp_path, "jsonl")
    given = {"columns": ["left", "right"], "skip_bad": True}
    plain, full = PairSet.read(file, **given), PairSet.read(file, **given, others=True)
    assert full.hash == plain.hash
    assert full.with_scores([1, 2, 3]).table.column_names[:4] == ["sentence1", "sentence2", "score", "id"]
    assert full.concat(plain).table.column_names == ["sentence1", "sentence2"]
    full.save(tmp_path / "saved.arrow")
    assert PairSet.open(tmp_path / "saved.arrow").hash == plain.hash


def test_a_column_of_mixed_types_is_kept_as_text(tmp_path):
    file = tmp_path / "pairs.jsonl"
    lines = [{"sentence1": "a", "sentence2": "b", "note": note} for note in (1, "one", {"deep": True}, None)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    notes = PairSet.read(file, others=True).table["note"].to_pylist()
    assert notes == ["1", "one", '{"deep": true}', None]


def test_positions_name_the_other_columns(tmp_path):
    (tmp_path / "pairs.tsv").write_text("17\ta boat\tthe boat\n18\ta lamp\tthe lamp\n", encoding="utf-8")
    table = PairSet.read(tmp_path / "pairs.tsv", columns=["2", "3"], others=True).table
    assert table["column1"].to_pylist() == ["17", "18"]


def test_shards_with_different_columns_are_refused(tmp_path):
    for name, extra in (("a", {"id": [1]}), ("b", {"other": [2]})):
        pq.write_table(pa.table({"sentence1": ["x"], "sentence2": ["y"], **extra}), tmp_path / f"{name}.parquet")
    assert len(PairSet.read(tmp_path)) == 2
    with pytest.raises(DataError, match="different columns"):
        PairSet.read(tmp_path, others=True)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("source", ["jsonl", "parquet"])
def test_score_keeps_ids_and_all_other_columns(start, tmp_path, source, ending):
    out = tmp_path / f"scored.{ending}"
    given = ["--pairs", str(written(tmp_path, source)), "--columns", "left,right", "--skip-bad", "--out", str(out)]
    done = CliRunner().invoke(app, ["score", str(start), *given])
    assert done.exit_code == 0, done.output
    if ending == "jsonl":
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert [row["tags"] for row in rows] == [["x"], [], ["y"]]
    elif ending == "csv":
        rows = pyarrow.csv.read_csv(
            out, convert_options=pyarrow.csv.ConvertOptions(column_types={"id": pa.string()})
        ).to_pylist()
        assert [row["tags"] for row in rows] == ['["x"]', "[]", '["y"]']
    else:
        rows = pq.read_table(out).to_pylist()
        if source == "parquet":
            assert rows[0]["day"] == datetime.date(2024, 5, 1)
    assert [row["id"] for row in rows] == ["007", "008", "010"]
    assert [row["input_score"] for row in rows] == [3, 4, 1]
    assert all(-1 <= row["score"] <= 1.001 for row in rows)
    assert len(PairSet.read(out)) == 3, "what was written can be read again"
