"""The measures agree with their definitions and refuse what they cannot measure."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trans_encoder.errors import DataError
from trans_encoder.evaluation.metrics import auc, spearman


def test_spearman_is_the_correlation_of_ranks():
    scores, gold = [0.1, 0.9, 0.4, 0.4], [1.0, 5.0, 3.0, 2.0]
    ranks, gold_ranks = [1, 4, 2.5, 2.5], [1, 4, 3, 2]
    assert spearman(scores, gold) == pytest.approx(np.corrcoef(ranks, gold_ranks)[0, 1] * 100)


def test_auc_counts_ordered_pairs_of_classes():
    # positives 0.8 and 0.4, negatives 0.3 and 0.5: 3 of 4 comparisons are right
    assert auc([0.8, 0.4, 0.3, 0.5], [1, 1, 0, 0]) == pytest.approx(75.0)
    assert auc([0.8, 0.4, 0.3, 0.5], [5, 5, 2, 2]) == pytest.approx(75.0)
    assert auc([0.5, 0.5], [1, 0]) == pytest.approx(50.0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=50, unique=True), st.randoms(use_true_random=False))
def test_monotone_rescaling_changes_nothing(values, random):
    gold = list(range(len(values)))
    random.shuffle(gold)
    scores = np.array(values, dtype=float)
    assert spearman(scores, gold) == pytest.approx(spearman(scores**3 * 2 + 7, gold))
    assert spearman(scores, gold) == pytest.approx(-spearman(-scores, gold))


@pytest.mark.parametrize(
    ("metric", "scores", "gold", "message"),
    [
        (spearman, [0.5, 0.5, 0.5], [1, 2, 3], "all 3 scores are 0.5.*collapsed"),
        (spearman, [0.1, 0.2, 0.3], [4, 4, 4], "all 3 gold are 4.*give a labelled file"),
        (spearman, [0.1, float("nan")], [1, 2], "1 of 2 scores are not finite numbers, the first at pair 2"),
        (spearman, [0.1], [1], "at least two labelled pairs, got 1"),
        (spearman, [0.1, 0.2], [1, 2, 3], r"shapes \(2,\) and \(3,\)"),
        (auc, [0.1, 0.2], [1, 1], "exactly two values, got 1; give labels of both classes"),
        (auc, [0.1, 0.2, 0.3], [0, 0.5, 1], "exactly two values, got 0, 0.5, 1; use the metric spearman"),
        (auc, [0.1, 0.2], [0, float("inf")], "1 of 2 gold labels are not finite"),
    ],
)
def test_what_cannot_be_measured_is_named(metric, scores, gold, message):
    with pytest.raises(DataError, match=message):
        metric(scores, gold)
