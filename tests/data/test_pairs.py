"""PairSet: what it holds, what it gives back, and the laws that its methods obey."""

import pickle
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st

from trans_encoder.data.pairs import PairSet
from trans_encoder.errors import DataError

# Few words, so that duplicates and swapped pairs come up often.
word = st.sampled_from(["a", "b", "c", "dé", "e\nf", '"', "\ttab", "\rg", "🙂"])
pair_lists = st.lists(st.tuples(word, word), min_size=1, max_size=30)
laws = settings(max_examples=50, deadline=None)


def pair_set(pairs: list[tuple[str, str]], scores: list[float] | None = None) -> PairSet:
    return PairSet.from_lists([a for a, _ in pairs], [b for _, b in pairs], scores=scores)


def texts(pairs: PairSet) -> list[tuple[str, str]]:
    return [(a, b) for a, b, _ in pairs.rows()]


def rechunked(pairs: PairSet, sizes: list[int]) -> PairSet:
    parts, start = [], 0
    for size in sizes:
        parts.append(pairs.table.slice(start, size))
        start += size
    return PairSet(pa.concat_tables([*parts, pairs.table.slice(start)]))


@laws
@given(pair_lists)
def test_lists_come_back(pairs):
    assert texts(pair_set(pairs)) == pairs


@laws
@given(pair_lists, st.lists(st.integers(0, 10), max_size=5))
def test_hash_depends_on_content_not_on_chunks(pairs, sizes):
    scored = pair_set(pairs, [float(i) for i in range(len(pairs))])
    assert rechunked(scored, sizes).hash == scored.hash
    assert scored.hash != pair_set(pairs).hash
    assert scored.take(range(1, len(pairs))).hash != scored.hash


def test_hash_tells_where_one_text_ends_and_the_next_begins():
    first, second = pair_set([("ab", "x"), ("c", "y")]), pair_set([("a", "x"), ("bc", "y")])
    assert first.hash != second.hash
    assert pair_set([("a", "b")]).hash != pair_set([("b", "a")]).hash


def test_hash_is_stable():
    assert pair_set([("a", "b")], [0.5]).hash == "4be7d9e9cbd68ca5198065ec3a53f37a69cfc31b1105f10628819710a1d37bfd"


@laws
@given(pair_lists)
def test_deduplicated_keeps_the_first_of_each_pair_in_either_order(pairs):
    expected, seen = [], set()
    for pair in pairs:
        if frozenset(pair) not in seen:
            seen.add(frozenset(pair))
            expected.append(pair)
    assert texts(pair_set(pairs).deduplicated()) == expected
    assert texts(pair_set(pairs).deduplicated(swapped=False)) == list(dict.fromkeys(pairs))


@laws
@given(pair_lists, pair_lists)
def test_without_leaves_no_pair_of_the_other_in_either_order(pairs, others):
    unwanted = {frozenset(pair) for pair in others}
    expected = [pair for pair in pairs if frozenset(pair) not in unwanted]
    assert texts(pair_set(pairs).without(pair_set(others))) == expected


@laws
@given(pair_lists, st.lists(st.integers(0, 10), max_size=5))
def test_distinct_holds_each_sentence_once_and_gives_the_pairs_back(pairs, sizes):
    distinct = rechunked(pair_set(pairs), sizes).distinct()
    sentences = distinct.sentences.to_pylist()
    assert len(set(sentences)) == len(sentences)
    assert distinct.index.dtype == np.int32
    assert distinct.index.shape == (len(pairs), 2)
    assert [(sentences[a], sentences[b]) for a, b in distinct.index] == pairs


@laws
@given(pair_lists, st.data())
def test_sample_takes_different_places_and_depends_only_on_the_seed(pairs, data):
    numbered = pair_set(pairs, list(map(float, range(len(pairs)))))
    n = data.draw(st.integers(0, len(pairs)))
    sample = numbered.sample(n, seed=7)
    assert len(set(sample.scores)) == len(sample) == n
    assert sample.scores.tolist() == sorted(sample.scores)
    assert numbered.sample(n, seed=7).hash == sample.hash


def test_sample_differs_with_the_seed_and_refuses_more_than_there_is():
    pairs = pair_set([(str(i), "x") for i in range(100)])
    assert pairs.sample(10, seed=1).hash != pairs.sample(10, seed=2).hash
    with pytest.raises(DataError, match="cannot sample 101 of 100 pairs"):
        pairs.sample(101, seed=1)


@laws
@given(pair_lists)
def test_save_and_open_keep_everything(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("pairs") / "pairs.arrow"
    scored = pair_set(pairs, [0.25] * len(pairs))
    scored.save(path)
    opened = PairSet.open(path)
    assert opened.hash == scored.hash
    assert texts(opened) == pairs
    assert opened.take([0]).scores.tolist() == [0.25]
    assert PairSet.read(path).hash == scored.hash


def test_a_failed_save_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "pairs.arrow"
    pair_set([("a", "b")]).save(path)
    before = path.read_bytes()
    monkeypatch.setattr(pa.ipc, "new_file", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        pair_set([("c", "d")]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"no arrow", b"ARROW1\0\0"])
def test_open_refuses_what_is_not_an_arrow_file(tmp_path: Path, content: bytes):
    path = tmp_path / "pairs.arrow"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a whole Arrow file"):
        PairSet.open(path)


def test_open_refuses_a_cut_file_a_missing_one_and_another_table(tmp_path: Path):
    path = tmp_path / "pairs.arrow"
    pair_set([("a", "b")] * 100).save(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="not a whole Arrow file"):
        PairSet.open(path)
    with pytest.raises(DataError, match="cannot open"):
        PairSet.open(tmp_path / "missing.arrow")
    other = pa.table({"x": [1]})
    with pa.ipc.new_file(str(path), other.schema) as writer:
        writer.write_table(other)
    with pytest.raises(DataError, match="does not hold saved pairs"):
        PairSet.open(path)


def test_pairs_that_were_opened_outlive_their_file(tmp_path: Path):
    path = tmp_path / "pairs.arrow"
    pair_set([("a", "b")]).save(path)
    opened = PairSet.open(path)
    path.unlink()
    assert texts(opened) == [("a", "b")]


def test_concat_keeps_scores_only_if_both_have_them():
    scored, plain = pair_set([("a", "b")], [1.0]), pair_set([("c", "d")])
    assert scored.concat(scored).scores.tolist() == [1.0, 1.0]
    assert scored.concat(plain).scores is None
    assert texts(plain.concat(scored)) == [("c", "d"), ("a", "b")]


def test_with_scores_replaces_them_and_wants_one_for_each_pair():
    pairs = pair_set([("a", "b"), ("c", "d")], [0.0, 1.0])
    assert pairs.with_scores([3, 4]).scores.tolist() == [3.0, 4.0]
    assert pairs.with_scores([3, 4]).without_scores().scores is None
    assert pairs.scores.tolist() == [0.0, 1.0]
    with pytest.raises(DataError, match="2 pairs need as many scores"):
        pairs.with_scores([1.0])


def test_a_pair_set_cannot_be_changed():
    pairs = pair_set([("a", "b")])
    with pytest.raises(AttributeError):
        pairs.table = None


def test_repr_says_how_many_and_shows_the_first():
    assert repr(pair_set([("a", "b")] * 1200, [1.0] * 1200)) == "PairSet(1,200 pairs, scored, first ('a', 'b'))"


def test_a_pair_set_can_be_sent_to_another_process():
    pairs = pair_set([("a", "b")], [0.5])
    assert pickle.loads(pickle.dumps(pairs)).hash == pairs.hash


@pytest.mark.parametrize(
    ("first", "second", "scores", "message"),
    [
        (["a"], [], None, "different lengths"),
        (["a"], ["b"], [1.0, 2.0], "different lengths"),
        (["a"], [" "], None, "sentence2 is empty"),
        ([None], ["b"], None, "sentence1 is missing"),
        ([1], ["b"], None, "holds int64, not text"),
        (["a"], ["b"], [float("nan")], "not a finite number"),
        (["a"], ["b"], ["high"], "holds string, not numbers"),
        (["\ud800"], ["b"], None, "cannot be used"),
        ([], [], None, "nothing could be read"),
    ],
)
def test_lists_that_are_no_pairs_are_refused(first, second, scores, message):
    with pytest.raises(DataError, match=message):
        PairSet.from_lists(first, second, scores=scores)


def test_a_dataset_is_read_with_found_or_given_columns():
    dataset = Dataset.from_dict({"premise": ["a", "c"], "hypothesis": ["b", "d"], "label": [0, 1], "other": ["x", "y"]})
    assert list(PairSet.from_dataset(dataset).rows()) == [("a", "b", 0.0), ("c", "d", 1.0)]
    assert list(PairSet.from_dataset(dataset, columns=("other", "premise")).rows(1)) == [("x", "a", None)]
    assert len(PairSet.from_dataset(dataset.to_iterable_dataset())) == 2
    with pytest.raises(DataError, match=r"set of splits \(train\)"):
        PairSet.from_dataset(DatasetDict(train=dataset))
    with pytest.raises(DataError, match="no column 'left'"):
        PairSet.from_dataset(dataset, columns=("left", "other"))


def test_a_table_with_bad_rows_names_them_or_counts_them():
    table = pa.table({"a": ["x", "", "y"], "b": ["x", "y", None]})
    with pytest.raises(DataError, match=r"2 of 3 lines cannot be used:\n  table:2: .* empty\n  table:3: .* missing"):
        PairSet.from_table(table)
    pairs = PairSet.from_table(table, skip_bad=True)
    assert (len(pairs), pairs.report.read, pairs.report.bad) == (1, 1, 2)


def test_a_shuffled_dataset_is_read_quickly():
    dataset = Dataset.from_dict({"a": [f"left {i}" for i in range(5000)], "b": ["right"] * 5000}).shuffle(seed=1)
    started = time.process_time()
    pairs = PairSet.from_dataset(dataset)
    assert time.process_time() - started < 5
    assert pairs.sentence1.to_pylist() == dataset["a"][:]
