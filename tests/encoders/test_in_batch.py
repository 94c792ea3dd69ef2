"""In-batch distillation beside pairs: every two sentences of a batch have a target."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from trans_encoder.config import TrainingPlan
from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.in_batch import InBatch, Similarities
from trans_encoder.encoders.training import InBatchDistillation, TrainingOptions, train

pytestmark = pytest.mark.usefixtures("either_runner")
PLAN = TrainingPlan(loss="mse", batch_size=16, epochs=12, learning_rate=1e-3, max_tokens=32, dropout=0.0)


def cosines(embeddings):
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return unit @ unit.T


def off_diagonal(matrix):
    return matrix[~np.eye(len(matrix), dtype=bool)]


@pytest.fixture
def distinct(pairs):
    return pairs.distinct().sentences


def test_a_start_alone_is_told_what_it_says_itself(bert, distinct):
    own = BiEncoder.load(bert).encode(distinct)
    rows = np.arange(30)
    np.testing.assert_allclose(InBatch(distinct, [own], weight=1)(rows), cosines(own)[:30, :30], atol=2e-3)


def test_targets_follow_the_teachers_on_the_scale_of_the_student(distinct):
    random, rows = np.random.default_rng(0), np.arange(len(distinct))
    own, true = random.normal(size=(2, len(distinct), 64))
    own[:, 0] += 4  # cosines around 0.2
    teacher = true + 20 * np.eye(64)[0]  # a narrow cone: all cosines are near 1
    targets = off_diagonal(InBatch(distinct, [own, teacher], weight=1, shares=[1, 9])(rows))
    start, taught = (off_diagonal(cosines(each)) for each in (own, teacher))
    assert np.corrcoef(targets, taught)[0, 1] > 0.95
    assert targets.mean() == pytest.approx(start.mean(), abs=0.02)
    assert targets.std() == pytest.approx(start.std(), rel=0.1)


def test_teachers_with_scales_of_their_own_count_alike(distinct):
    wide = np.random.default_rng(0).normal(size=(len(distinct), 16)).astype(np.float32)
    narrow = wide + 10  # the same sentences, in a narrow cone
    for embeddings in ([wide], [wide, narrow]):
        assert off_diagonal(Similarities(embeddings)(np.arange(20))).std() == pytest.approx(1.0, abs=0.35)


def test_the_loss_is_that_of_the_pairs_and_of_all_other_cosines(bert, roberta, pairs, distinct):
    student = BiEncoder.load(bert)
    student.model.eval()
    scores = np.random.default_rng(0).random(len(pairs))
    embeddings = [BiEncoder.load(each).encode(distinct) for each in (bert, roberta)]
    in_batch = InBatch(distinct, embeddings, weight=3)
    objective = InBatchDistillation(student, pairs.with_scores(scores), plan=PLAN, in_batch=in_batch)
    rows = np.arange(0, len(pairs), 5)
    with torch.no_grad():
        losses = objective.module(**objective.collate(rows)).numpy()

    texts = distinct.to_pylist()
    chosen = pairs.take(rows)
    places = [[texts.index(text) for text in column.to_pylist()] for column in (chosen.sentence1, chosen.sentence2)]
    used = np.unique(places)
    own = cosines(student.encode(pa.array([texts[place] for place in used], pa.large_string())))
    errors = (own - in_batch(used)) ** 2
    np.fill_diagonal(errors, 0)
    each = dict(zip(used.tolist(), errors.sum(1) / (len(used) - 1), strict=True))
    for loss, left, right, score in zip(losses, *places, scores[rows], strict=True):
        cosine = own[np.searchsorted(used, left), np.searchsorted(used, right)]
        assert loss == pytest.approx((cosine - score) ** 2 + 3 * (each[left] + each[right]) / 2, abs=1e-5)


def test_a_student_learns_of_sentences_that_no_pair_compares(bert, roberta, pairs, distinct, tmp_path):
    start, teacher = BiEncoder.load(bert), BiEncoder.load(roberta)
    in_batch = InBatch(distinct, [start.encode(distinct), teacher.encode(distinct)], weight=10)
    wanted = in_batch(np.arange(len(distinct)))

    def error(encoder):
        return float(np.square(off_diagonal(cosines(encoder.encode(distinct)) - wanted)).mean())

    before = error(start)
    data = PairSet.from_lists(
        pairs.sentence1.to_pylist(), pairs.sentence2.to_pylist(), scores=start.score(pairs).tolist()
    )
    taught = train(start, data, plan=PLAN, options=TrainingOptions(folder=tmp_path), in_batch=in_batch)
    assert error(taught.encoder) < 0.5 * before
