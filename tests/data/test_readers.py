"""Readers: every format, every kind of bad line, and an account of each line whatever the bytes."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pair_files import ROWS, WRITERS, as_parquet, written
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.sources import MAX_LINE_BYTES
from trans_encoder.errors import DataError

fuzz = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("ending", WRITERS)
def test_each_format_gives_the_same_pairs(tmp_path: Path, ending: str, packed: str):
    pairs = PairSet.read(written(tmp_path, f"pairs.{ending}{packed}", WRITERS[ending](ROWS)))
    assert list(pairs.rows()) == ROWS
    assert (pairs.report.read, pairs.report.bad, pairs.report.blank) == (3, 0, 0)
    assert pairs.hash == PairSet.from_lists(*zip(*[row[:2] for row in ROWS], strict=True), scores=[0.5, 4, -1]).hash


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "csv"])
def test_line_ends_and_the_byte_order_mark_are_no_text(tmp_path: Path, ending: str):
    rows = [("a b", "c d", 1.0), ("e", "f", 2.0)]
    content = WRITERS[ending](rows).replace(b"\r\n", b"\n")
    for name, raw in {
        "windows": content.replace(b"\n", b"\r\n"),
        "marked": b"\xef\xbb\xbf" + content,
        "unended": content.rstrip(b"\n"),
        "mixed": content.replace(b"\n", b"\r\n", 2),
    }.items():
        assert list(PairSet.read(written(tmp_path, f"{name}.{ending}", raw)).rows()) == rows, name


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "csv"])
def test_blank_lines_are_ignored_and_counted(tmp_path: Path, ending: str):
    content = WRITERS[ending](ROWS).replace(b"\r\n", b"\n").replace(b"\n", b"\n\n")
    report = PairSet.read(written(tmp_path, f"pairs.{ending}", content)).report
    assert report.read == 3
    assert report.blank == content.count(b"\n\n")
    assert f"{report.blank} blank lines ignored" in str(report)


def test_tsv_has_no_quoting_and_csv_has(tmp_path: Path):
    tsv = PairSet.read(written(tmp_path, "p.tsv", 'a\tb\n"x\ty"\n"z"\tw\n'))
    assert list(tsv.rows()) == [('"x', 'y"', None), ('"z"', "w", None)]
    quoted = PairSet.read(written(tmp_path, "p.csv", 'a,b\n"x, ""y""\nz",w\n5" disk,v\n'))
    assert list(quoted.rows()) == [('x, "y"\nz', "w", None), ('5" disk', "v", None)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["sentence1", "sentence2", "score"], (0, 1, 2)),
        (["id", "Question1", "QUESTION2", "is_duplicate"], (1, 2, 3)),
        (["label", "hypothesis", "premise"], (2, 1, 0)),
        (["a", "b", "sentence1", "sentence2"], (2, 3, None)),
        (["anchor", "positive", "negative"], (0, 1, None)),
    ],
)
def test_columns_are_found_by_their_names(tmp_path: Path, names: list[str], expected: tuple[int | None, ...]):
    values = [str(i) for i in range(len(names))]
    tsv = written(tmp_path, "p.tsv", "\t".join(names) + "\n" + "\t".join(values) + "\n")
    row = dict(zip(names, values, strict=True))
    first, second, score = expected
    wanted = [(values[first], values[second], None if score is None else float(score))]
    assert list(PairSet.read(tsv).rows()) == wanted
    assert list(PairSet.read(written(tmp_path, "p.jsonl", json.dumps(row))).rows()) == wanted


def test_columns_can_be_given_by_name_or_position(tmp_path: Path):
    tsv = written(tmp_path, "p.tsv", "id\tleft\tright\tgrade\n1\ta\tb\t3\n")
    assert list(PairSet.read(tsv, columns=("left", "right")).rows()) == [("a", "b", None)]
    assert list(PairSet.read(tsv, columns=("right", "left", "grade")).rows()) == [("b", "a", 3.0)]
    assert list(PairSet.read(tsv, columns=("right", "left", "grade"), scores=False).rows()) == [("b", "a", None)]
    bare = written(tmp_path, "bare.tsv", "0.5\ta\tb\n1\tc\td\n")
    assert list(PairSet.read(bare, columns=("2", "3", "1")).rows()) == [("a", "b", 0.5), ("c", "d", 1.0)]
    assert list(PairSet.read(bare, columns=("2", "3", "1"), scores=False).rows(1)) == [("a", "b", None)]
    with pytest.raises(DataError, match="line 1 has 3 fields, fewer"):
        PairSet.read(bare, columns=("1", "4"))
    for wrong in (("left",), ("left", "left"), "left", ("a", "b", "c", "d")):
        with pytest.raises(DataError, match="two or three different names"):
            PairSet.read(tsv, columns=wrong)


@pytest.mark.parametrize("ending", WRITERS)
def test_unknown_columns_name_those_seen_and_the_flag(tmp_path: Path, ending: str):
    content = {
        "jsonl": b'{"x": "1", "y": "2"}\n',
        "tsv": b"x\ty\n1\t2\n",
        "csv": b"x,y\n1,2\n",
        "parquet": as_parquet(ROWS).replace(b"text1", b"xext1"),
    }[ending]
    path = written(tmp_path, f"p.{ending}", content)
    with pytest.raises(DataError, match=r"columns seen: 'x.*--columns LEFT,RIGHT") as error:
        PairSet.read(path)
    assert str(path) in str(error.value)
    with pytest.raises(DataError, match="no column 'left' or 'right'"):
        PairSet.read(path, columns=("left", "right"))


BAD_LINES = {
    "jsonl": {
        b"{": "broken JSON",
        b"[1, 2]": "a JSON array, not an object",
        b"null": "a JSON null, not an object",
        b'{"text1": "a"}': "no known pair of columns",
        b'{"text1": "a", "text2": null}': "sentence2 is missing",
        b'{"text1": "a", "text2": 5}': "a sentence is a int, not text",
        b'{"text1": "a", "text2": {"b": "c"}}': "a sentence is a dict, not text",
        b'{"text1": "a", "text2": ""}': "sentence2 is empty",
        b'{"text1": " \\n\\u3000", "text2": "b"}': "sentence1 is empty",
        b'{"text1": "a\\u0000", "text2": "b"}': "sentence1 holds a NUL",
        b'{"text1": "\\ud800", "text2": "b"}': "half a surrogate pair",
        b'{"text1": "\xff", "text2": "b"}': "broken UTF-8",
        b'{"text1": "a", "text2": "b", "score": NaN}': "not a finite number",
        b'{"text1": "a", "text2": "b", "score": 1e999}': "not a finite number",
        b'{"text1": "a", "text2": "b", "score": "high"}': "the score 'high' is not a number",
        b'{"text1": "a", "text2": "b", "score": [1]}': "the score is a list, not a number",
        b'{"text1": "a", "text2": "b", "score": 1' + b"0" * 400 + b"}": "too large",
        b'{"text1": "a", "text2": "b", "score": 1' + b"0" * 5000 + b"}": "Exceeds the limit",
        b"[" * 100_000: "nested too deeply",
        b'{"text1": ' * 100_000: "nested too deeply",
        b'{"text1": "' + b"a" * MAX_LINE_BYTES + b'", "text2": "b"}': "longer than 1,048,576 bytes",
    },
    "tsv": {
        b"a\tb": "2 fields, expected 3",
        b"a\tb\t1\tc": "4 fields, expected 3",
        b" ": "1 fields, expected 3",
        b"\tb\t1": "sentence1 is empty",
        b"a\t \t1": "sentence2 is empty",
        b"a\0\tb\t1": "sentence1 holds a NUL",
        b"a\xc3\tb\t1": "broken UTF-8",
        b"a\tb\tx": "the score 'x' is not a number",
        b"a\tb\tnan": "not a finite number",
        b"a\tb\t-inf": "not a finite number",
        b"a\t" + b"b" * MAX_LINE_BYTES + b"\t1": "longer than 1,048,576 bytes",
    },
    "csv": {
        b"a,b": "2 fields, expected 3",
        b'"a"b,c,1': "broken quoting",
        b'a,"b,1': "broken quoting",
        b'"a\xc3",b,1': "broken UTF-8",
        b"a\xc3,b,1": "broken UTF-8",
        b'"",b,1': "sentence1 is empty",
        b"a,b," + b"1" * MAX_LINE_BYTES: "longer than 1,048,576 bytes",
    },
}


@pytest.mark.parametrize(
    ("ending", "line", "why"),
    [pytest.param(e, line, why, id=f"{e}-{why}") for e, lines in BAD_LINES.items() for line, why in lines.items()],
)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, ending: str, line: bytes, why: str):
    good = WRITERS[ending](ROWS[:1]).replace(b"\r\n", b"\n")
    path = written(tmp_path, f"pairs.{ending}", good + line + b"\n" + good.splitlines(keepends=True)[-1])
    number = good.count(b"\n") + 1
    with pytest.raises(DataError) as error:
        PairSet.read(path)
    message = str(error.value)
    assert "1 of 3 lines cannot be used" in message
    assert f"{path}:{number}: " in message
    assert why in message
    assert "--skip-bad" in message
    assert len(message) < 1000
    pairs = PairSet.read(path, skip_bad=True)
    assert list(pairs.rows()) == [ROWS[0], ROWS[0]]
    assert (pairs.report.read, pairs.report.bad) == (2, 1)
    assert why in str(pairs.report)


def test_the_first_twenty_bad_lines_are_named_in_order(tmp_path: Path):
    lines = [b"a\tb" if i % 2 else b"a\t\xff" if i % 3 else b"a\t" for i in range(20_000)]
    path = written(tmp_path, "pairs.tsv", b"a\tb\n" + b"\n".join(lines))
    with pytest.raises(DataError, match=r"10,000 of 20,000 lines(.|\n)*and 9,980 more") as error:
        PairSet.read(path)
    named = [int(line.split(":")[1]) for line in str(error.value).splitlines() if line.startswith(f"  {path}")]
    assert named == list(range(2, 42, 2))


@pytest.mark.parametrize("ending", ["jsonl", "tsv"])
def test_one_reason_for_all_bad_lines_is_given_once_with_their_number(tmp_path: Path, ending: str):
    lines = ['{"left": "a", "right": "b"}' if ending == "jsonl" else "a\tb\tc"] * 30
    path = written(
        tmp_path, f"pairs.{ending}", "\n".join([*(["left\tright"] if ending == "tsv" else []), *lines]) + "\n"
    )
    with pytest.raises(DataError) as error:
        PairSet.read(path, columns=("left", "wrong") if ending == "jsonl" else None)
    first, named, rest, remedy = str(error.value).splitlines()
    assert "30 of 30 lines cannot be used" in first
    assert ("no column 'wrong'" if ending == "jsonl" else "3 fields, expected 2") in named
    assert rest == "  ... and the same in 29 more lines"
    assert "skip" not in remedy, "nothing would be left"


def test_scores_must_be_there_for_all_lines_or_none(tmp_path: Path):
    none = written(tmp_path, "none.tsv", "a\tb\tscore\nx\ty\t\nz\tw\t \n")
    assert PairSet.read(none).scores is None
    some = written(tmp_path, "some.tsv", "a\tb\tscore\nx\ty\t1\nz\tw\t\n")
    with pytest.raises(DataError, match=r"some.tsv:3: no score, though other lines have one\n.*--columns LEFT,RIGHT"):
        PairSet.read(some)
    pairs = PairSet.read(some, skip_bad=True)
    assert list(pairs.rows()) == [("x", "y", 1.0)]
    assert (pairs.report.read, pairs.report.bad) == (1, 1)
    assert len(PairSet.read(some, scores=False)) == 2
    late = written(tmp_path, "late.jsonl", '{"a": "x", "b": "y"}\n{"a": "x", "b": "y", "score": 1}\n')
    with pytest.raises(DataError, match=r"late.jsonl:1: no score"):
        PairSet.read(late)


def test_text_labels_are_refused_as_scores_but_can_be_left_unread(tmp_path: Path):
    path = written(tmp_path, "nli.csv", "premise,hypothesis,label\na,b,neutral\n")
    with pytest.raises(DataError, match=r"the score 'neutral' is not a number(.|\n)*--columns LEFT,RIGHT"):
        PairSet.read(path)
    assert PairSet.read(path, scores=False).scores is None


def test_a_stray_quotation_mark_costs_one_line_only(tmp_path: Path):
    path = written(tmp_path, "p.csv", 'a,b\nx,"y\n' + "c,d\n" * 1000)
    pairs = PairSet.read(path, skip_bad=True)
    assert (len(pairs), pairs.report.bad) == (1000, 1)


def test_shards_are_read_as_one_in_the_order_of_their_names(tmp_path: Path):
    for i in (10, 2, 1):
        written(tmp_path, f"part-{i:02}.parquet", as_parquet([(f"left {i}", "right", float(i))]))
    written(tmp_path, "README.md", "not a shard")
    expected = [("left 1", "right", 1.0), ("left 2", "right", 2.0), ("left 10", "right", 10.0)]
    assert list(PairSet.read(tmp_path).rows()) == expected
    assert list(PairSet.read(f"{tmp_path}/part-*.parquet").rows()) == expected
    written(tmp_path, "part-03.parquet", as_parquet([("a", "b", 1.0), ("", "b", 1.0)]))
    with pytest.raises(DataError, match=r"part-03.parquet:2: sentence1 is empty"):
        PairSet.read(tmp_path)


def test_parquet_columns_of_other_types(tmp_path: Path):
    def read(**columns: pa.Array) -> list[tuple[str, str, float | None]]:
        pq.write_table(pa.table(columns), tmp_path / "p.parquet")
        return list(PairSet.read(tmp_path / "p.parquet").rows())

    texts = pa.array(["x", "x"])
    assert read(a=texts.dictionary_encode(), b=texts.cast(pa.large_string())) == [("x", "x", None)] * 2
    assert read(a=texts, b=texts, label=pa.array([True, False])) == [("x", "x", 1.0), ("x", "x", 0.0)]
    assert read(a=texts, b=texts, label=pa.array([3, 4], pa.uint8())) == [("x", "x", 3.0), ("x", "x", 4.0)]
    with pytest.raises(DataError, match="column 'b' holds int64, not text"):
        read(a=texts, b=pa.array([1, 2]))
    with pytest.raises(DataError, match="column 'label', the score, holds string"):
        read(a=texts, b=texts, label=texts)


def test_broken_text_in_parquet_is_a_bad_row(tmp_path: Path):
    raw = pa.array([b"fine", b"\xff\xfe"]).view(pa.string())
    pq.write_table(pa.table({"a": raw, "b": pa.array(["x", "y"])}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"p.parquet:2: broken UTF-8"):
        PairSet.read(tmp_path / "p.parquet")
    assert list(PairSet.read(tmp_path / "p.parquet", skip_bad=True).rows()) == [("fine", "x", None)]


def test_an_arrow_stream_of_the_datasets_library_is_read(tmp_path: Path):
    table = pa.table({"a": ["x"], "b": ["y"], "label": [1]})
    with pa.ipc.new_stream(str(tmp_path / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert list(PairSet.read(tmp_path / "data.arrow").rows()) == [("x", "y", 1.0)]


text = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\t"), max_size=12).map(lambda t: f"w{t}w")
row = st.tuples(text, text, st.floats(-1e6, 1e6))


@fuzz
@given(st.sampled_from(sorted(WRITERS)), st.lists(row, min_size=1, max_size=8), st.booleans())
def test_whatever_is_written_is_read(tmp_path: Path, ending: str, rows: list[tuple[str, str, float]], packed: bool):
    path = written(tmp_path, f"p.{ending}{'.gz' * packed}", WRITERS[ending](rows))
    assert list(PairSet.read(path).rows()) == rows


marks = [b"\n", b"\r\n", b"\r", b"\t", b",", b'"', b'""', b"{", b"}", b"[", b":", b" ", b"\xef\xbb\xbf"]
broken = [b"\0", b"\xff", b"\xc3", b"\\ud800", b"\\u0000", b"nan", b"1e999"]
words = [b"text1", b"text2", b"score", b"0.5", b"a", b"\xc3\xa9", b"null", b"true"]
lines = [b"x\ty\t1\n", b'"x","y",1\n', b'{"text1": "x", "text2": "y"}\n', b'"x\ny",z,2\n']
piece = st.one_of(st.sampled_from([*marks, *broken, *words, *lines]), st.binary(max_size=6))
bytes_of_lines = st.lists(piece, max_size=25).map(b"".join)


@settings(fuzz, max_examples=400)
@given(st.sampled_from(["jsonl", "tsv", "csv", "parquet", "arrow"]), bytes_of_lines, st.booleans(), st.booleans())
def test_any_bytes_are_read_or_refused_and_no_line_is_lost(
    tmp_path: Path, ending: str, content: bytes, packed: bool, headed: bool
):
    header = {"tsv": b"text1\ttext2\tscore\n", "csv": b"text1,text2,score\n"}.get(ending, b"") if headed else b""
    path = written(tmp_path, f"p.{ending}{'.gz' * packed}", header + content)
    try:
        report = PairSet.read(path, skip_bad=True).report
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    lines = (header + content).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if ending == "jsonl":
        assert report.read + report.bad == sum(1 for line in lines if line.strip())
    elif ending == "tsv":
        assert report.read + report.bad == sum(1 for line in lines if line.removesuffix(b"\r") != b"") - 1
    else:
        assert 0 < report.read + report.bad <= len(lines) - 1
