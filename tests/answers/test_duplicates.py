"""Duplicates: pairs, groups that no weak link joins, two files, the page, and what a decision promises."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from trans_encoder.answers.duplicates import find_duplicates
from trans_encoder.answers.found import Duplicates
from trans_encoder.answers.grouping import Grouper, representative
from trans_encoder.answers.index import build_index
from trans_encoder.answers.retrieval.embedded import Embedded
from trans_encoder.cli import app
from trans_encoder.data.corpus import Corpus
from trans_encoder.encoders import CrossEncoder
from trans_encoder.errors import ConfigurationError
from trans_encoder.report import write_duplicates


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def found(static, sentences):
    """Thirty sentences, ten of them again with one word more."""
    texts = list(dict.fromkeys(sentences))[:30]
    ids = [f"T{number}" for number in range(30)] + [f"D{number}" for number in range(10)]
    corpus = Corpus.from_texts([*texts, *(f"{text} near" for text in texts[:10])], ids=ids)
    return find_duplicates(corpus, models=str(static))


def test_an_index_whose_model_has_code_of_its_own_is_compared_if_that_is_allowed(bert, sentences, tmp_path):
    model = Path(shutil.copytree(bert, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps({**config, "auto_map": {}}), encoding="utf-8")
    corpus = Corpus.from_texts(list(dict.fromkeys(sentences))[:20])
    build_index(corpus, tmp_path / "i", models=[str(model)], trust_remote_code=True)
    with pytest.raises(ConfigurationError, match="trust_remote_code=True"):
        find_duplicates(tmp_path / "i")
    assert find_duplicates(tmp_path / "i", trust_remote_code=True).rows == 20


def test_rows_with_nearly_the_same_words_are_found(found):
    pairs = {frozenset((pair.id1, pair.id2)) for pair in found.pairs}
    expected = {frozenset((f"T{number}", f"D{number}")) for number in range(10)}
    assert len(pairs & expected) == 10
    assert all(0 <= pair.probability <= 1 for pair in found.pairs)
    first = {frozenset((pair.id1, pair.id2)) for pair in found.pairs[:10]}
    assert len(first & expected) >= 9, "the likeliest pairs come first"


def test_a_group_has_its_rows_and_a_representative(found):
    of = {name: group for group in found for name in group.ids}
    assert of["T3"] is of["D3"]
    for group in found:
        assert group.representative in group.ids
        assert len(group.ids) == len(group.texts) == len(set(group.ids)) > 1
    assert sum(len(group.ids) for group in found) == len(of), "a row is in one group"


def test_a_higher_precision_accepts_fewer_pairs(static, found, sentences):
    texts = list(dict.fromkeys(sentences))[:30]
    corpus = Corpus.from_texts([*texts, *(f"{text} near" for text in texts[:10])])
    strict = find_duplicates(corpus, models=str(static), precision=0.95)
    loose = find_duplicates(corpus, models=str(static), precision=0.05)
    assert len(strict.pairs) < len(loose.pairs)
    if strict.pairs:
        assert np.mean([pair.probability for pair in strict.pairs]) >= 0.95
    exact = find_duplicates(corpus, models=str(static), threshold=0.9)
    assert all(pair.score >= 0.9 for pair in exact.pairs)
    assert len(exact.pairs) >= 10


def test_equal_texts_are_duplicates_for_certain(static):
    texts = ["the old farmer", "a golden clock", "the old farmer", "the old farmer", "a tiny lamp"]
    found = find_duplicates(texts, models=str(static), threshold=0.99)
    assert [(pair.id1, pair.id2, pair.probability) for pair in found.pairs] == [("1", "3", 1.0), ("1", "4", 1.0)]
    assert [group.ids for group in found] == [["1", "3", "4"]]


def test_one_row_or_all_different_rows_give_nothing(static):
    assert len(find_duplicates(["alone"], models=str(static))) == 0
    assert find_duplicates(["the old farmer", "a golden clock"], models=str(static), threshold=0.99).pairs == []


OPPOSITES = [
    "the old farmer sells the boat", "the old farmer does not sell the boat", "the old farmer sells the boat near",
    "a golden clock for 20 coins", "a golden clock for 30 coins", "the tiny lamp",
]  # fmt: skip


def test_texts_that_a_negation_or_a_number_separates_are_kept_apart(tmp_path, static):
    found = find_duplicates(OPPOSITES, models=str(static), threshold=0.5)
    joined = {frozenset((pair.id1, pair.id2)) for pair in found.pairs}
    assert frozenset("13") in joined
    assert not joined & {frozenset("12"), frozenset("45")}
    groups = [set(group.ids) for group in found]
    assert {"1", "3"} in groups, "nor do they meet through a third text"
    assert not [group for group in groups if {"1", "2"} <= group or {"4", "5"} <= group]
    table = {(row["id1"], row["id2"]): row for row in found.candidates.to_pylist()}
    assert (table["1", "2"]["differs"], table["4", "5"]["differs"], table["1", "3"]["differs"]) == (
        "negation", "numbers", None
    )  # fmt: skip
    assert table["1", "2"]["probability"] <= 0.15
    assert found.summary["kept_apart"] == 2
    page = write_duplicates(found, tmp_path / "page.html", title="x").read_text(encoding="utf-8")
    assert "differs by a negation" in page
    assert "differs by a number" in page


def test_flips_count_as_the_same_if_asked_for_and_are_flagged(tmp_path, static):
    found = find_duplicates(OPPOSITES, models=str(static), threshold=0.5, flips=True)
    found.save(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["differs"] for line in lines if {line["id1"], line["id2"]} == {"1", "2"}} == {"negation"}
    assert found.summary["kept_apart"] == 0


def test_texts_that_differ_in_case_and_the_end_alone_are_the_same(static):
    texts = ["The old farmer sells the boat.", "the old  farmer sells the boat", "a golden clock", "the tiny lamp"]
    found = find_duplicates(texts, models=str(static), precision=0.9)
    assert [(pair.id1, pair.id2) for pair in found.pairs] == [("1", "2")]


def test_two_files_are_compared_with_each_other_only(static):
    ours = Corpus.from_texts(["the old farmer sells a boat", "the old farmer sells a boat near"], ids=["a", "b"])
    theirs = Corpus.from_texts(
        ["old farmer sells a boat", "a golden clock", "the old farmer sells a boat"], ids=["x", "y", "z"]
    )
    found = find_duplicates(ours, against=theirs, models=str(static), threshold=0.9)
    assert all(pair.id1 in "ab" and pair.id2 in "xyz" for pair in found.pairs)
    assert {("a", "z"), ("a", "x")} <= {(pair.id1, pair.id2) for pair in found.pairs}
    assert "y" not in {pair.id2 for pair in found.pairs}
    assert [(sorted(group.ids), sorted(group.against)) for group in found] == [(["a", "b"], ["x", "z"])]


def at_angles(*degrees):
    """Return rows whose vectors lie on a circle."""
    radians = np.deg2rad(degrees)
    vectors = np.column_stack([np.cos(radians), np.sin(radians)]).astype(np.float32)
    texts = pa.chunked_array([pa.array([str(place) for place in range(len(degrees))])])
    return Embedded(pa.table({"id": texts}), np.arange(len(degrees)), texts, vectors)


def test_one_weak_link_does_not_join_two_groups():
    rows = at_angles(0, 2, 4, 40, 42, 44)
    left, right = np.array([0, 0, 1, 3, 3, 4, 2]), np.array([1, 2, 2, 4, 5, 5, 3])
    probabilities = np.array([0.95] * 6 + [0.6])  # the last pair is the link between two groups
    groups = Grouper(rows, lambda scores: (scores > 0.95).astype(float), decision=0.5).merge(left, right, probabilities)
    assert groups == [[0, 1, 2], [3, 4, 5]]
    agreeing = Grouper(rows, lambda scores: np.full(len(scores), 0.9), decision=0.5)
    assert agreeing.merge(left, right, probabilities) == [[0, 1, 2, 3, 4, 5]]


def test_the_representative_is_in_the_middle():
    assert representative(at_angles(0, 10, 30), [0, 1, 2]) == 1


def test_no_model_is_an_error_that_says_how_to_give_one():
    with pytest.raises(ConfigurationError, match=r"--model, .*--run"):
        find_duplicates(["a", "b"])


def test_saved_and_opened_again(tmp_path, found):
    found.save(tmp_path)
    opened = Duplicates.open(tmp_path)
    assert opened.pairs == found.pairs
    assert [(group.ids, group.representative) for group in opened] == [(one.ids, one.representative) for one in found]
    assert opened.probability == found.probability
    assert opened.candidates.equals(found.candidates)
    line = json.loads((tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert list(line) == ["id1", "id2", "score", "probability"]


def test_files_of_the_users_that_have_the_names_of_ours_are_never_replaced(tmp_path, found, static):
    own = '{"sentence1": "a", "sentence2": "b"}\n'
    (tmp_path / "pairs.jsonl").write_text(own, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"pairs.jsonl is there already .* another folder"):
        found.save(tmp_path)
    refused = run("duplicates", tmp_path / "pairs.jsonl", "--model", static, "--out", tmp_path, code=2)
    assert "another folder" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["pairs.jsonl"]
    assert (tmp_path / "pairs.jsonl").read_text(encoding="utf-8") == own


def test_answers_that_were_begun_are_written_again(tmp_path, found, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("trans_encoder.answers.found.pq.write_table", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            found.save(tmp_path)
    assert (tmp_path / "pairs.jsonl").exists()
    found.save(tmp_path)
    assert Duplicates.open(tmp_path).pairs == found.pairs


def test_a_cross_encoder_looks_again(static, bert, sentences):
    texts = list(dict.fromkeys(sentences))[:12]
    found = find_duplicates(texts, models=str(static), cross=CrossEncoder.load(bert), threshold=0.0)
    assert found.summary["cross"] == [str(bert)]
    assert all(0 < pair.score < 1 for pair in found.pairs)


def test_a_cross_encoder_looks_only_at_pairs_that_have_a_chance(static, bert, sentences):
    texts = list(dict.fromkeys(sentences))[:30]
    texts = [*texts, *(f"{text} near" for text in texts[:10])]
    found = find_duplicates(texts, models=str(static), cross=CrossEncoder.load(bert), threshold=0.0)
    assert 10 <= len(found.candidates) < found.summary["candidates"]
    assert np.isfinite(found.candidates["score"].to_numpy()).all()


def test_a_finished_run_brings_its_models(mutual, sentences):
    found = find_duplicates(list(dict.fromkeys(sentences))[:8], run=mutual)
    assert (len(found.summary["models"]), len(found.summary["cross"])) == (2, 2)
    with pytest.raises(ConfigurationError, match="either a run or models"):
        find_duplicates(["a", "b"], run=mutual, models="x")


def test_the_page_shows_groups_and_escapes_what_rows_say(tmp_path, static):
    evil = "<script>alert(1)</script> the old farmer"
    found = find_duplicates([evil, evil, "a golden clock"], models=str(static))
    page = write_duplicates(found, tmp_path / "page.html", title="<b>tickets</b>").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<b>tickets" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_command_line_from_file_to_answer(tmp_path, tickets, static):
    index, out = tmp_path / "index", tmp_path / "out"
    made = json.loads(
        run("index", "--text", tickets, "--id", "ticket", "--model", static, "--out", index, "--json").stdout
    )
    assert (made["rows"], made["embedded"]) == (40, 40)
    result = json.loads(run("duplicates", index, "--out", out, "--json").stdout)
    assert result["groups"] >= 1
    assert {file.name for file in out.iterdir()} == {
        "pairs.jsonl", "groups.jsonl", "candidates.parquet", "duplicates.json", "duplicates.html"
    }  # fmt: skip
    hits = json.loads(
        run("search", index, "the old farmer", "--top", 3, "--where", 'status == "open"', "--json").stdout
    )
    assert len(hits["hits"]) == 3
    assert {hit["columns"]["status"] for hit in hits["hits"]} == {"open"}


def test_a_precision_that_no_pair_reaches_says_how_likely_the_likeliest_is(tmp_path, static):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(OPPOSITES), encoding="utf-8")
    shown = run("duplicates", path, "--model", static, "--precision", 0.999, "--out", tmp_path / "out").stdout
    assert "No pair is that likely; the likeliest has" in shown


def test_rows_that_were_left_out_are_counted(tmp_path, static):
    path = tmp_path / "rows.csv"
    path.write_text("id,text\n1,the old farmer\n2,\n3,a golden clock\n", encoding="utf-8")
    result = run("index", "--text", path, "--model", static, "--out", tmp_path / "index", "--skip-bad")
    assert "1 bad left out (first:" in result.stderr


def test_a_file_is_enough(tmp_path, tickets, static):
    result = run("duplicates", tickets, "--id", "ticket", "--model", static, "--out", tmp_path / "out")
    assert "pairs in" in result.stdout
    message = run("duplicates", tickets, "--id", "ticket", "--out", tmp_path / "other", code=2).stderr
    assert "--model" in message


def test_a_file_compared_with_an_index_is_embedded_with_its_model(tmp_path, static, sentences):
    ours, theirs = tmp_path / "new.txt", tmp_path / "old.txt"
    ours.write_text(f"{sentences[0]}\nsomething else\n", encoding="utf-8")
    theirs.write_text("\n".join(sentences[:20]), encoding="utf-8")
    index = str(build_index(theirs, tmp_path / "old.index", models=[str(static)]).path)
    asked = ("--against", index, "--threshold", "0.999", "--json")
    found = json.loads(run("duplicates", ours, *asked, "--out", tmp_path / "answers").stdout)
    assert (found["models"], found["pairs"]) == ([str(static)], 1)
    groups = find_duplicates(ours, against=index, threshold=0.999)
    assert [(group.ids, group.against) for group in groups] == [(["1"], ["1"])]
    with pytest.raises(ConfigurationError, match="no model was given"):
        find_duplicates(["one", "two"], against=["one"])
