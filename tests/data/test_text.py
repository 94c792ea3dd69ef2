"""Raw text: every kind of file, sentences within limits, duplicates, and an account of all that is left out."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trans_encoder.data.sentences import markdown_paragraphs, paragraphs, segment, split_sentences
from trans_encoder.data.text import Limits, Text
from trans_encoder.errors import DataError

ANY_LENGTH = Limits(min_words=0, max_words=10_000, max_characters=100_000)
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sentences(text: Text) -> list[str]:
    return text.sentences.to_pylist()


def documents(text: Text) -> list[list[str]]:
    """Group the sentences by document."""
    groups: dict[int, list[str]] = {}
    for number, sentence in zip(text.document.tolist(), sentences(text), strict=True):
        groups.setdefault(number, []).append(sentence)
    return list(groups.values())


def written(path: Path, content: str | bytes) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.txt.gz"])
def test_a_line_is_a_sentence_and_a_blank_line_ends_a_document(tmp_path: Path, name: str):
    path = written(tmp_path / name, "One two three. Four five\r\nSix  seven\teight\n\nNine ten eleven\n")
    text = Text.read(path)
    assert documents(text) == [["One two three. Four five", "Six seven eight"], ["Nine ten eleven"]]
    assert (text.report.read, text.report.kept, text.report.lines.blank) == (3, 3, 1)


def test_a_line_can_be_a_document_or_part_of_a_wrapped_file(tmp_path: Path):
    path = written(tmp_path / "corpus.txt", "Dr. Smith went home. He was\nvery tired. He slept.\n\nA new day began.\n")
    assert documents(Text.read(path, line="document", limits=ANY_LENGTH)) == [
        ["Dr. Smith went home.", "He was"],
        ["very tired.", "He slept."],
        ["A new day began."],
    ]
    assert documents(Text.read(path, line="wrapped", limits=ANY_LENGTH)) == [
        ["Dr. Smith went home.", "He was very tired.", "He slept.", "A new day began."]
    ]


def test_the_text_files_of_a_folder_are_documents(tmp_path: Path):
    written(tmp_path / "b.txt", "This one is\nwrapped over lines. And here it ends.\n")
    written(
        tmp_path / "a.md",
        "# A heading of words\n\nSome *marked* [prose](x.html) here.\n\n```\ncode is not prose\n```\n",
    )
    (tmp_path / "deeper").mkdir()
    written(tmp_path / "deeper" / "c.txt.gz", "Down here is more.")
    written(tmp_path / "notes.xyz", "nothing to do with it")
    assert documents(Text.read(tmp_path)) == [
        ["A heading of words", "Some marked prose here."],
        ["This one is wrapped over lines.", "And here it ends."],
        ["Down here is more."],
    ]


def test_tables_give_the_column_of_text(tmp_path: Path):
    rows = ["First of all. Then the next.", "Another document is here."]
    expected = [["First of all.", "Then the next."], ["Another document is here."]]
    table = pa.table({"id": [1, 2], "Text": rows})
    pq.write_table(table, tmp_path / "t.parquet")
    written(tmp_path / "t.jsonl", "".join(json.dumps({"id": 1, "text": row}) + "\n" for row in rows))
    written(tmp_path / "t.csv", "id,content\n" + "".join(f'1,"{row}"\n' for row in rows))
    written(tmp_path / "t.tsv.gz", "only column\n" + "".join(f"{row}\n" for row in rows))
    for ending in ("parquet", "jsonl", "csv", "tsv.gz"):
        assert documents(Text.read(tmp_path / f"t.{ending}")) == expected, ending
    assert documents(Text.read(tmp_path / "t.jsonl", line="sentence")) == [[row] for row in rows]
    written(tmp_path / "u.csv", "id,remark,other\n1,One two three.,x\n")
    assert sentences(Text.read(tmp_path / "u.csv", column="remark")) == ["One two three."]
    assert sentences(Text.read(written(tmp_path / "v.csv", "1,One two three.\n"), column="2")) == ["One two three."]
    with pytest.raises(DataError, match=r"u.csv: no known column of text.*'remark'.*--column$"):
        Text.read(tmp_path / "u.csv")
    with pytest.raises(DataError, match="no column 'body'"):
        Text.read(tmp_path / "u.csv", column="body")


def test_a_folder_of_text_and_tables_is_refused(tmp_path: Path):
    pq.write_table(pa.table({"text": ["One two three."]}), tmp_path / "data.parquet")
    assert sentences(Text.read(tmp_path)) == ["One two three."]
    written(tmp_path / "README.md", "About the data set.")
    with pytest.raises(DataError, match="both text files and tables"):
        Text.read(tmp_path)


def test_sentences_outside_the_limits_are_counted(tmp_path: Path):
    lines = ["too short", "just long enough", "far too many words in here", "x" * 41 + " is long", "日本語の文です。"]
    text = Text.read(
        written(tmp_path / "c.txt", "\n".join(lines)), limits=Limits(min_words=3, max_words=5, max_characters=40)
    )
    assert sentences(text) == ["just long enough"]
    assert (text.report.too_short, text.report.too_long, text.report.read) == (1, 3, 5)
    wide = Text.read(tmp_path / "c.txt", limits=Limits(min_words=3, max_words=7, max_characters=40))
    assert "日本語の文です。" in sentences(wide)
    with pytest.raises(DataError, match=r"0 of 5 sentences kept, 5 too short; widen the limits"):
        Text.read(tmp_path / "c.txt", limits=Limits(min_words=50))


def test_duplicates_are_kept_or_left_out_exactly_or_nearly(tmp_path: Path):
    lines = [
        "The cat sat down.",
        "A dog ran off.",
        "The cat sat down.",
        "the CAT sat down!",
        "The cat (2) sat down",
        "1 2 3",
        "4 5 6",
    ]
    path = written(tmp_path / "c.txt", "\n".join(lines))
    assert sentences(Text.read(path, duplicates="keep")) == lines
    exact = Text.read(path)
    assert sentences(exact) == [lines[0], lines[1], *lines[3:]]
    assert (exact.report.duplicate, exact.report.near_duplicate) == (1, 0)
    near = Text.read(path, duplicates="near")
    assert sentences(near) == [lines[0], lines[1], "1 2 3", "4 5 6"]
    assert (near.report.duplicate, near.report.near_duplicate, near.report.kept) == (1, 2, 4)
    assert str(near.report) == f"{path}: 4 of 7 sentences kept, 1 duplicate, 2 near duplicate"


def test_duplicates_are_found_across_batches(tmp_path: Path):
    lines = [f"sentence number {i % 9000}" for i in range(20_000)]
    text = Text.read(written(tmp_path / "c.txt", "\n".join(lines)))
    assert sentences(text) == lines[:9000]
    assert text.report.duplicate == 11_000


BAD_TEXT = {
    "c.txt": (b"One two three\nbroken \xff text here\nFour five six\n", 2, "broken UTF-8"),
    "d.txt": (b"One two three\nwith a \0 inside it\nFour five six\n", 2, "NUL"),
    "e.txt": (b"One two three\n" + b"long " * 300_000 + b"\nFour five six\n", 2, "longer than"),
    "c.jsonl": (b'{"text": "One two three"}\n{"text": 5}\n{"text": "Four five six"}\n', 2, "a int, not text"),
    "d.jsonl": (b'{"text": "One two three"}\n{"text": null}\n{"text": "Four five six"}\n', 2, "the text is missing"),
    "e.jsonl": (b'{"text": "One two three"}\n{"text": "\\ud800"}\n{"text": "Four five six"}\n', 2, "surrogate"),
    "c.csv": (b"text,id\nOne two three,1\n,2\nFour five six,3\n", 3, "the text is empty"),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, name: str):
    content, number, why = BAD_TEXT[name]
    path = written(tmp_path / name, content)
    with pytest.raises(DataError, match=f":{number}: .*{why}(.|\n)*--skip-bad"):
        Text.read(path)
    text = Text.read(path, skip_bad=True)
    assert sentences(text) == ["One two three", "Four five six"]
    assert (text.report.bad, text.report.lines.read) == (1, 2)
    assert len(documents(text)) == 2
    assert "1 bad lines" in str(text.report)


def test_broken_text_in_parquet_and_markdown_is_counted(tmp_path: Path):
    raw = pa.array([b"One two three", b"\xff\xfe"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet:2: broken UTF-8"):
        Text.read(tmp_path / "t.parquet")
    assert Text.read(tmp_path / "t.parquet", skip_bad=True).report.bad == 1
    written(tmp_path / "a.md", b"\xff\xfe")
    written(tmp_path / "b.md", "One two three.")
    assert Text.read(f"{tmp_path}/*.md", skip_bad=True).report.bad == 1


def test_empty_and_missing_text_is_refused(tmp_path: Path):
    for name in ("empty.txt", "empty.md", "empty.jsonl"):
        with pytest.raises(DataError, match="it has no lines of data"):
            Text.read(written(tmp_path / name, "\n"))
    with pytest.raises(DataError, match="there is no file"):
        Text.read(tmp_path / "missing.txt")
    with pytest.raises(DataError, match="unknown kind of file"):
        Text.read(written(tmp_path / "text.pdf", "x"))


def test_save_open_and_sample(tmp_path: Path):
    text = Text.from_sentences([f"sentence {i}" for i in range(50)], documents=[i // 10 for i in range(50)])
    text.save(tmp_path / "text.arrow")
    opened = Text.open(tmp_path / "text.arrow")
    assert (len(opened), opened.hash, opened.document.tolist()) == (50, text.hash, text.document.tolist())
    sample = opened.sample(10, seed=3)
    assert sample.hash == text.sample(10, seed=3).hash != text.sample(10, seed=4).hash
    assert sample.document.tolist() == sorted(sample.document)
    assert repr(opened) == "Text(50 sentences, first 'sentence 0')"
    with pytest.raises(DataError, match="cannot sample 51 of 50"):
        opened.sample(51, seed=0)
    assert Text.from_sentences(["a", "b"]).document.tolist() == [0, 1]
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.arrow")
    with pytest.raises(DataError, match="not a whole Arrow file"):
        Text.open(tmp_path / "other.arrow")


@fuzz
@given(st.text(max_size=200))
def test_splitting_loses_no_word(text: str):
    assert "".join("".join(split_sentences(text, language="en")).split()) == "".join(text.split())


def test_a_text_that_the_splitter_cannot_handle_stays_whole(capfd: pytest.CaptureFixture[str]):
    # The splitter panics on this no-break space, which tidied text does not have.
    assert segment("Y\u00a0.", language="en") == ["Y\u00a0."]
    assert "panicked" in capfd.readouterr().err
    assert list(split_sentences("Y\u00a0.", language="en")) == ["Y ."]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [
        ("en", "Mr. Brown came at 5 p.m. today. Was he late? No!", 3),
        ("de", "Dr. Weiß kam z.B. gestern. Er blieb nicht.", 2),
        ("zh", "你好。我来了。", 2),
        ("hi", "यह एक वाक्य है। यह दूसरा है।", 2),
        ("xx", "An unknown code. Still works.", 2),
    ],
)
def test_sentences_of_several_languages(language: str, text: str, count: int):
    assert len(list(split_sentences(text, language=language))) == count


def test_wrapped_lines_are_joined_up_to_a_gap_and_within_the_limit():
    lines = [(1, "a"), (2, "b"), (4, "c")]
    assert list(paragraphs(lines)) == [(1, "a\nb"), (4, "c")]
    long = [(i, "x" * 400_000) for i in range(1, 6)]
    assert [start for start, _ in paragraphs(long)] == [1, 3, 5]


def test_markdown_gives_its_prose_alone():
    source = "Title\n=====\n\n- item *one*\n- item `two`\n\n> quoted\n\n    code\n\n| a | b |\n|---|---|\n| c | d |\n"
    assert list(markdown_paragraphs(source)) == ["Title", "item one", "item two", "quoted", "a", "b", "c", "d"]


@settings(fuzz, max_examples=150)
@given(
    st.sampled_from(["txt", "md", "jsonl", "csv", "tsv", "parquet"]),
    st.lists(
        st.one_of(
            st.sampled_from([b"\n", b'"', b"text", b"One two. ", b"{", b":", b"\0", b",", b"\xff"]),
            st.binary(max_size=8),
        )
    ),
    st.sampled_from([None, "sentence", "document", "wrapped"]),
)
def test_any_bytes_are_read_or_refused(tmp_path: Path, ending: str, pieces: list[bytes], line: str | None):
    path = written(tmp_path / f"c.{ending}", b"".join(pieces))
    try:
        text = Text.read(path, line=line, limits=ANY_LENGTH, duplicates="near", skip_bad=True)
    except DataError:
        return
    report = text.report
    assert report.kept == len(text) > 0
    assert report.read == report.kept + report.duplicate + report.near_duplicate
    if ending == "txt" and line in (None, "sentence"):
        content = b"".join(pieces).removeprefix(b"\xef\xbb\xbf")
        assert report.lines.read + report.lines.bad == sum(1 for part in content.split(b"\n") if part.strip())
