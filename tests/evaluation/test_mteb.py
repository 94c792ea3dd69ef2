"""mteb gives our bi-encoders the figures that we give them; cross-encoders are refused."""

import numpy as np
import pytest

from trans_encoder import BiEncoder, ConfigurationError, CrossEncoder, PairSet, TestSet, evaluate
from trans_encoder.evaluation.mteb import mteb_model, mteb_task


@pytest.fixture
def test_set(pairs):
    return TestSet("graded", pairs.with_scores(np.arange(len(pairs)) % 6))


def test_mteb_gives_a_bi_encoder_our_figure(bert, test_set):
    mteb = pytest.importorskip("mteb", reason="the extra mteb is not installed")
    encoder = BiEncoder.load(bert, device="cpu", prompts=("first: ", "second: "))
    result = mteb.evaluate(mteb_model(encoder), mteb_task(test_set), cache=None, show_progress_bar=False)
    (scores,) = result.task_results[0].scores["test"]
    ours = evaluate(encoder, test_set).average
    assert 100 * scores["main_score"] == pytest.approx(ours, abs=1e-3)
    assert 100 * scores["spearman"] == pytest.approx(ours, abs=1e-3)


def test_a_cross_encoder_is_refused(bert):
    with pytest.raises(ConfigurationError, match="`evaluate` measures both kinds"):
        mteb_model(CrossEncoder.load(bert, device="cpu"))


def test_two_labels_are_no_grades():
    binary = PairSet.from_lists(["a", "b"], ["c", "d"], scores=[0, 1])
    with pytest.raises(ConfigurationError, match="two labels"):
        mteb_task(TestSet("binary", binary))
