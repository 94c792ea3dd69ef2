"""Pseudo-labels: averaging, checks, the file, anchoring."""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest

from trans_encoder.data.pairs import PairSet
from trans_encoder.distill.labels import PseudoLabels, anchored, label
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.errors import DataError, RunError
from trans_encoder.teachers import ModelRef


@dataclass
class Says:
    """A teacher that says what it is told, in place of one that is broken in just that way."""

    scores: list[float]
    name: str = "anna"
    kind: str = "bi"

    def score(self, pairs: PairSet) -> np.ndarray:
        return np.resize(np.array(self.scores, dtype=np.float32), len(pairs))


@pytest.fixture(scope="module")
def teachers(bert, roberta):
    return [BiEncoder.load(bert), BiEncoder.load(roberta)]


def test_labels_are_the_plain_mean_of_the_teachers(pairs, teachers):
    labels = label(pairs, teachers, cycle=3)
    each = [teacher.score(pairs) for teacher in teachers]
    np.testing.assert_allclose(labels.scores, (each[0] + each[1]) / 2, atol=1e-6)
    assert labels.scores.dtype == np.float32
    for teacher, scores in zip(teachers, each, strict=True):
        np.testing.assert_array_equal(labels.by_teacher[teacher.name], scores)
    assert not np.allclose(each[0], each[1], atol=1e-3)


def test_one_teachers_labels_are_its_scores(pairs, teachers):
    np.testing.assert_array_equal(label(pairs, teachers[:1]).scores, teachers[0].score(pairs))


def test_gold_never_gets_into_labels(dev, teachers):
    labels = label(dev, teachers)
    assert labels.pairs.scores is None
    np.testing.assert_array_equal(labels.labelled.scores, labels.scores)


def test_the_file_holds_texts_teachers_and_provenance(pairs, teachers, tmp_path):
    labels = label(pairs, teachers, cycle=2)
    path = tmp_path / "labels.parquet"
    labels.save(path)
    table = pq.read_table(path)
    assert table.column_names == ["sentence1", "sentence2", "score", *(teacher.name for teacher in teachers)]
    assert table["sentence1"].to_pylist() == pairs.sentence1.to_pylist()
    opened = PseudoLabels.open(path)
    assert opened.provenance["teachers"] == [teacher.name for teacher in teachers]
    assert (opened.provenance["kind"], opened.provenance["cycle"]) == ("bi", 2)
    assert opened.provenance["pairs"] == pairs.hash == opened.pairs.hash
    np.testing.assert_array_equal(opened.scores, labels.scores)
    for name, scores in labels.by_teacher.items():
        np.testing.assert_array_equal(opened.by_teacher[name], scores)


def test_provenance_tells_teachers_of_one_name_apart(pairs, bert, tmp_path):
    def fingerprint():
        teacher = ModelRef("anna", "bi", str(tmp_path / "bi"), max_tokens=32)
        return label(pairs, [teacher]).provenance["fingerprints"]["anna"]

    BiEncoder.load(bert, pooling="mean").save(tmp_path / "bi")
    before = fingerprint()
    assert fingerprint() == before
    BiEncoder.load(bert, pooling="cls").save(tmp_path / "bi")
    assert fingerprint() != before


def test_known_pairs_are_not_read_again(pairs, teachers, tmp_path):
    path = tmp_path / "labels.parquet"
    label(pairs, teachers).save(path)
    assert PseudoLabels.open(path, pairs=pairs).pairs is pairs
    other = pairs.take([0, 1, 2])
    assert PseudoLabels.open(path, pairs=other).pairs.hash == pairs.hash


def test_saving_twice_gives_the_same_bytes(pairs, teachers, tmp_path):
    for name in ("a", "b"):
        label(pairs, teachers).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_of_something_else_is_refused(tmp_path, pairs):
    path = tmp_path / "labels.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="is not a label file"):
        PseudoLabels.open(path)
    pq.write_table(pairs.table, path)
    with pytest.raises(DataError, match="is not a label file"):
        PseudoLabels.open(path)


@pytest.mark.parametrize(
    ("scores", "kind", "message"),
    [
        (
            [0.1, float("nan"), 0.3],
            "bi",
            r"cycle 4, bi-encoder of anna gave .* not a number, the first at pair 2.*bi\.learn",
        ),
        ([0.1, float("inf")], "cross", r"cycle 4, cross-encoder of anna gave .* not a number"),
        ([0.1, 1.2], "bi", r"cycle 4, bi-encoder of anna .* outside \[-1, 1\], such as 1\.2 at pair 2"),
        ([0.1, -0.2], "cross", r"cycle 4, cross-encoder of anna .* outside \[0, 1\], such as -0\.2 at pair 2"),
        (
            [0.7],
            "cross",
            r"cycle 4, cross-encoder of anna gave all 96 pairs the score 0\.7\. .* lower cross\.learning_rate",
        ),
    ],
)
def test_a_broken_teacher_stops_the_run(pairs, scores, kind, message):
    with pytest.raises(RunError, match=message):
        label(pairs, [Says([0.1, 0.9], name="otto", kind=kind), Says(scores, kind=kind)], cycle=4)


def test_a_collapsed_encoder_is_a_broken_teacher(pairs, bert):
    collapsed = CrossEncoder.load(bert)
    for weight in collapsed.model.parameters():
        weight.data.zero_()
    with pytest.raises(RunError, match=r"gave all 96 pairs the score 0\.5"):
        label(pairs, [collapsed])


@pytest.mark.parametrize("teachers", [[], [Says([0.1]), Says([0.2])], [Says([0.1], name="score")]])
def test_teachers_must_have_names_of_their_own(pairs, teachers):
    with pytest.raises(DataError, match="teacher"):
        label(pairs, teachers)


def test_negative_cosines_stay_as_they_are_and_are_counted(pairs):
    labels = label(pairs, [Says([-0.5, 0.5])])
    assert labels.scores.min() == -0.5
    assert labels.outside_unit == 48


def test_anchored_labels_are_a_weighted_mean(pairs):
    labels, start = label(pairs, [Says([0.0, 1.0])]), label(pairs, [Says([0.5, -0.5])])
    mixed = anchored(labels, start, weight=0.25)
    np.testing.assert_allclose(mixed.scores[:2], [0.125, 0.625])
    assert mixed.provenance["anchor"] == 0.25
    assert mixed.by_teacher is labels.by_teacher
    assert anchored(labels, start, weight=0) is labels


def test_labels_of_other_pairs_are_no_anchor(pairs):
    labels, start = label(pairs, [Says([0.0, 1.0])]), label(pairs.take([0, 1]), [Says([0.5, -0.5])])
    with pytest.raises(RunError, match="pairs differ"):
        anchored(labels, start, weight=0.5)
