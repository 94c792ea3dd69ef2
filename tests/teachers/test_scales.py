"""Scales: teachers with different ranges are averaged fairly, and students keep their own range."""

import numpy as np
import pytest

from trans_encoder.errors import DataError
from trans_encoder.teachers.scales import at_quantiles, combined, laid_on, uniform_ranks


@pytest.fixture
def truth() -> np.ndarray:
    return np.random.default_rng(0).normal(size=2000)


def _teacher(truth: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """An encoder with a scale of its own: a monotone function of the truth and some noise."""
    raw = truth + noise * np.random.default_rng(seed).normal(size=len(truth))
    return (1 / (1 + np.exp(-raw * (1 + seed)))).astype(np.float32) * 0.3 + 0.7


def test_ranks_are_spread_evenly_and_ties_share_theirs():
    assert uniform_ranks(np.array([3.0, 1.0, 1.0, 9.0])).tolist() == [0.625, 0.25, 0.25, 0.875]


def test_the_rank_scale_does_not_care_how_far_a_teacher_spreads():
    narrow, wide = np.array([0.71, 0.72, 0.70], np.float32), np.array([0.1, 0.5, 0.9], np.float32)
    both = {"narrow": narrow, "wide": wide}
    # Order 2, 3, 1 against 1, 2, 3: the second pair is highest for both taken together.
    assert combined(both, scale="rank").argmax() == 1
    assert combined(both, scale="none").argmax() == 2
    squeezed = combined({"narrow": narrow, "wide": wide / 100}, scale="rank")
    np.testing.assert_array_equal(combined(both, scale="rank"), squeezed)


def test_the_z_scale_lets_equal_spreads_count_equally():
    narrow, wide = np.array([0.71, 0.72, 0.70], np.float32), np.array([0.1, 0.5, 0.9], np.float32)
    mixed = combined({"narrow": narrow, "wide": wide}, scale="z")
    assert mixed.argmax() == 1
    assert mixed.mean() == pytest.approx(0.5)
    assert mixed.std() == pytest.approx(0.25)


def test_no_scale_is_the_plain_mean_of_the_raw_scores():
    first, second = np.array([0.2, 0.4], np.float32), np.array([0.4, 0.9], np.float32)
    np.testing.assert_allclose(combined({"a": first, "b": second}, scale="none"), [0.3, 0.65], rtol=1e-6)


def test_weights_shift_the_average():
    first, second = np.array([0.0, 1.0], np.float32), np.array([1.0, 0.0], np.float32)
    mixed = combined({"a": first, "b": second}, scale="none", weights={"a": 3.0, "b": 1.0})
    np.testing.assert_allclose(mixed, [0.25, 0.75])


def test_a_teacher_that_was_asked_about_hard_pairs_only_does_not_move_them_as_a_whole(truth):
    full = _teacher(truth, 0.3, 1)
    asked = truth > np.quantile(truth, 0.8)
    partial = np.where(asked, truth, np.nan).astype(np.float32)
    mixed = combined({"full": full, "partial": partial}, scale="rank")
    alone = combined({"full": full}, scale="rank")
    # Within the asked pairs its order counts, but taken together they stay where the other teacher has them.
    assert mixed[asked].mean() == pytest.approx(alone[asked].mean(), abs=0.02)
    within = [np.corrcoef(scores[asked], truth[asked])[0, 1] for scores in (mixed, alone)]
    assert within[0] > within[1] + 0.02


def test_pairs_that_no_teacher_scored_are_refused():
    with pytest.raises(DataError, match="1 of 3 pairs have no score"):
        combined({"file": np.array([0.1, np.nan, 0.9], np.float32)}, scale="rank")


def test_labels_on_a_students_scale_have_its_distribution_and_the_teachers_order(truth):
    labels, own = combined({"a": _teacher(truth, 0.1, 1)}, scale="rank"), _teacher(truth, 2.0, 3)
    laid = laid_on(labels, own, scale="rank")
    np.testing.assert_allclose(np.sort(laid), np.sort(own), atol=1e-6)
    assert (np.diff(laid[np.argsort(labels)]) >= 0).all()


def test_labels_on_a_students_z_scale_have_its_mean_and_spread(truth):
    own = _teacher(truth, 2.0, 3)
    laid = laid_on(combined({"a": _teacher(truth, 0.1, 1)}, scale="z"), own, scale="z")
    assert laid.mean() == pytest.approx(own.mean(), abs=1e-4)
    assert laid.std() == pytest.approx(own.std(), abs=1e-4)


def test_without_a_scale_labels_stay_as_they_are():
    labels = np.array([0.1, 0.7], np.float32)
    assert laid_on(labels, np.zeros(2, np.float32), scale="none") is labels


def test_quantiles_can_come_from_fewer_scores_than_there_are_labels():
    np.testing.assert_allclose(at_quantiles(np.arange(5.0), np.array([0.0, 1.0])), [0.0, 0.1, 0.5, 0.9, 1.0])
