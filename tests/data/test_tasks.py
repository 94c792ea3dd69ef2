"""Tasks: the paper's splits and pools from a folder, declarations for the hub, and tasks of one's own."""

import gzip
from pathlib import Path

import pytest
from datasets import Dataset

from trans_encoder.data import tasks
from trans_encoder.data.hub import HUB_SPLITS, from_hub_rows
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TASKS, Task, TestSet, load_task
from trans_encoder.errors import ConfigurationError, DataError

GRADED, BINARY = (0.0, 0.5, 1.0), (0, 1, 1)
STS_TESTS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]


def write_split(folder: Path, split: str, *, scores: tuple[float, ...] | None, shared: str | None = None) -> None:
    """Write three pairs that are found in no other split, and perhaps one that is."""
    rows = [f"{split} left {i}\t{split} right {i}" for i in range(3)]
    if scores is not None:
        rows = [f"{row}\t{score}" for row, score in zip(rows, scores, strict=True)]
    if shared is not None:
        rows.append(shared if scores is None else f"{shared}\t{scores[0]}")
    header = "sentence1\tsentence2" + ("" if scores is None else "\tscore")
    path = folder / f"{split}.tsv.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join([header, *rows]).encode()))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for year in STS_TESTS[:5]:
        write_split(tmp_path, f"{year}/test", scores=GRADED)
    for name in ("train", "dev", "test"):
        write_split(tmp_path, f"stsb/{name}", scores=GRADED)
        write_split(tmp_path, f"sickr/{name}", scores=GRADED)
        write_split(tmp_path, f"qqp/{name}", scores=BINARY, shared="the same\tquestion")
        write_split(tmp_path, f"mrpc/{name}", scores=BINARY)
        write_split(tmp_path, f"snli/{name.replace('train', 'train_ni')}", scores=None)
    for name in ("dev", "test"):
        write_split(tmp_path, f"qnli/{name}", scores=BINARY)
    write_split(tmp_path, "qnli/glue_test_unlabelled", scores=None)
    swapped = "sts13/test right 1\tsts13/test left 1"
    write_split(tmp_path, "sts_pool/train", scores=None, shared=f"{swapped}\nstsb/test left 0\tstsb/test right 0")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "pool", "dev", "tests", "metric", "symmetric"),
    [
        ("sts", 5, "stsb-dev", STS_TESTS, "spearman", True),
        ("sts-b", 9, "stsb-dev", ["stsb"], "spearman", True),
        ("sick-r", 9, "sickr-dev", ["sickr"], "spearman", True),
        ("qqp", 10, "qqp-dev", ["qqp"], "auc", True),
        ("qnli", 9, "qnli-dev", ["qnli"], "auc", False),
        ("mrpc", 9, "mrpc-dev", ["mrpc"], "auc", True),
        ("snli", 9, None, [], "spearman", True),
    ],
)
def test_a_task_has_its_pool_its_dev_set_and_its_tests(data_dir, name, pool, dev, tests, metric, symmetric):
    task = load_task(name, data_dir=data_dir)
    assert task.name == name
    assert len(task.pairs) == pool
    assert task.pairs.scores is None
    assert (task.dev.name if task.dev else None) == dev
    assert list(task.tests) == tests
    assert (task.metric, task.symmetric) == (metric, symmetric)
    for key, test in task.tests.items():
        assert test.name == key
        assert list(test.pairs.rows(1)) == [(f"{key}/test left 0", f"{key}/test right 0", 0.0)]


def test_every_declared_task_is_tested():
    assert set(TASKS) == {"sts", "sts-b", "sick-r", "qqp", "qnli", "mrpc", "snli"}


@pytest.mark.parametrize("name", TASKS)
def test_an_inductive_pool_holds_no_test_pair_in_either_order(data_dir, name):
    task, whole = load_task(name, data_dir=data_dir, inductive=True), load_task(name, data_dir=data_dir)
    forbidden = {frozenset(row[:2]) for test in task.tests.values() for row in test.pairs.rows()}
    left = {frozenset(row[:2]) for row in task.pairs.rows()}
    assert left == {frozenset(row[:2]) for row in whole.pairs.rows()} - forbidden
    if name == "sts":
        assert len(task.pairs) == 3


def test_the_sts_pool_is_made_of_its_parts_where_it_is_not_given(data_dir):
    (data_dir / "sts_pool" / "train.tsv.gz").unlink()
    assert len(load_task("sts", data_dir=data_dir).pairs) == 5 * 3 + 2 * 3 * 3


def test_a_folder_without_the_whole_sts_pool_gets_the_inputs_that_were_never_scored(data_dir, caplog):
    (data_dir / "sts_pool" / "train.tsv.gz").unlink()
    for year in ("sts15", "sts16"):
        write_split(data_dir, f"{year}/unscored", scores=None)
    task = load_task("sts", data_dir=data_dir)
    assert len(task.pairs) == 7 * 3 + 2 * 3 * 3
    assert (task.notes, caplog.messages) == ((), [])


def test_the_sts_pool_of_the_hub_says_how_many_pairs_the_paper_had_and_where_the_rest_is(data_dir, caplog, monkeypatch):
    (data_dir / "sts_pool" / "train.tsv.gz").unlink()
    monkeypatch.setattr(tasks, "load_hub_split", lambda split: PairSet.read(data_dir / f"{split}.tsv.gz"))
    task = load_task("sts")
    (note,) = task.notes
    assert "33 pairs, the paper's 37,081" in note
    assert "SemEval packages" in note
    assert "sts15/unscored.tsv.gz and sts16/unscored.tsv.gz" in note
    assert caplog.messages == [note]
    assert load_task("sts-b").notes == ()


def test_other_formats_will_do(data_dir):
    (data_dir / "stsb" / "dev.tsv.gz").unlink()
    (data_dir / "stsb" / "dev.jsonl").write_text(
        '{"s1": "a", "s2": "b", "score": 1}\n{"s1": "a", "s2": "c", "score": 0}\n'
    )
    assert list(load_task("sts-b", data_dir=data_dir).dev.pairs.rows()) == [("a", "b", 1.0), ("a", "c", 0.0)]


def test_what_is_missing_is_named(data_dir):
    with pytest.raises(ConfigurationError, match="unknown task 'sst'; expected one of sts, sts-b"):
        load_task("sst", data_dir=data_dir)
    with pytest.raises(DataError, match="there is no folder"):
        load_task("sts", data_dir=data_dir / "missing")
    (data_dir / "mrpc" / "dev.tsv.gz").unlink()
    with pytest.raises(DataError, match=r"has no mrpc/dev.tsv.gz"):
        load_task("mrpc", data_dir=data_dir)


def test_an_evaluation_reads_the_test_sets_alone(data_dir):
    whole = load_task("qqp", data_dir=data_dir)
    for split in ("train", "dev"):
        (data_dir / "qqp" / f"{split}.tsv.gz").unlink()
    task = load_task("qqp", data_dir=data_dir, tests_only=True)
    assert list(task.tests["qqp"].pairs.rows()) == list(whole.tests["qqp"].pairs.rows())
    assert (task.name, task.metric, len(task.pairs), task.dev) == ("qqp", "auc", 0, None)


def test_without_a_hub_the_error_names_the_data_folder():
    with pytest.raises(DataError, match=r"cannot load mteb/sts12-sts from the hub.*--data-dir"):
        load_task("sts")


def test_every_split_of_every_task_is_on_the_hub():
    for declared in TASKS.values():
        splits = [part.split("|")[0] for part in declared.pool if part != "sts_pool/train"]
        splits += [f"{test}/test" for test in declared.tests] + ([declared.dev] if declared.dev else [])
        assert set(splits) <= set(HUB_SPLITS)


def hub_rows(split: str, count: int) -> Dataset:
    where = HUB_SPLITS[split]
    low, high = min(where.scale), max(where.scale)
    values = {
        where.columns[0]: [f"left {i}" for i in range(count)],
        where.columns[1]: [f"right {i}" for i in range(count)],
    }
    if len(where.columns) == 3:
        values[where.columns[2]] = [low if i % 2 else high for i in range(count)]
    return Dataset.from_dict(values)


@pytest.mark.parametrize(
    ("split", "rows", "expected"),
    [
        ("sts12/test", 20, 20),
        ("sickr/dev", 20, 20),
        ("qqp/train", 10_500, 10_000),
        ("qqp/dev", 12_000, 1_000),
        ("qqp/test", 12_000, 10_000),
        ("qnli/train", 10_500, 10_000),
        ("qnli/dev", 5_463, 1_000),
        ("qnli/test", 5_463, 4_463),
        ("snli/dev", 20, 20),
    ],
)
def test_hub_rows_are_taken_as_the_paper_did(split, rows, expected):
    pairs = from_hub_rows(hub_rows(split, rows), where=HUB_SPLITS[split])
    assert len(pairs) == expected
    if split != "snli/dev":
        assert set(pairs.scores) == {0.0, 1.0}
    assert from_hub_rows(hub_rows(split, rows), where=HUB_SPLITS[split]).hash == pairs.hash


def test_hub_samples_of_one_split_do_not_overlap_and_qnli_labels_are_turned_round():
    dataset = hub_rows("qqp/dev", 12_000)
    dev, test = (from_hub_rows(dataset, where=HUB_SPLITS[f"qqp/{name}"]) for name in ("dev", "test"))
    assert len(test.without(dev)) == len(test)
    answered = Dataset.from_dict({"question": ["q", "r"], "sentence": ["yes", "no"], "label": [0, 1]})
    assert from_hub_rows(answered, where=HUB_SPLITS["qnli/dev"]).scores.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("split", "first"), [("train", 0), ("dev", 0), ("test", 1_000)])
def test_qnli_from_the_hub_is_the_authors_own_sample(split, first):
    pairs = from_hub_rows(hub_rows(f"qnli/{split}", 10_500), where=HUB_SPLITS[f"qnli/{split}"])
    lefts = pairs.sentence1.to_pylist()
    assert lefts == [f"left {place}" for place in range(first, first + len(pairs))]


def test_the_metric_follows_the_gold():
    gold = {"spearman": [3.0, 4.5, 1.0], "auc": [0.0, 1.0, 1.0]}
    texts = ["x", "y", "z"]
    for metric, scores in gold.items():
        test = TestSet("dev", PairSet.from_lists(texts, texts[::-1], scores=scores))
        assert test.metric == metric
        assert Task("own", test.pairs, dev=test).metric == metric
        assert Task("own", test.pairs, tests={"dev": test}).metric == metric
    assert Task("own", PairSet.from_lists(texts, texts)).metric == "spearman"


def test_a_test_set_needs_gold_that_varies():
    with pytest.raises(DataError, match="dev has no gold scores; give a file with a score column"):
        TestSet("dev", PairSet.from_lists(["a"], ["b"]))
    with pytest.raises(DataError, match=r"the 2 gold scores of dev are all 1.0; at least two must differ"):
        TestSet("dev", PairSet.from_lists(["a", "c"], ["b", "d"], scores=[1, 1]))
