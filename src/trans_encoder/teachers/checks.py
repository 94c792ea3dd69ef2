"""Checks of the scores that a teacher gave."""

import numpy as np

from trans_encoder.data import Scores
from trans_encoder.data.screening import ROUNDING
from trans_encoder.errors import RunError
from trans_encoder.teachers.frozen import Teacher

_CONSTANT = 1e-6  # scores that differ by no more than this are all alike
_RANGES: dict[str, tuple[float, float]] = {"bi": (-1.0, 1.0), "cross": (0.0, 1.0)}
_REMEDIES: dict[str, str] = {
    "bi": "The encoder has collapsed, or the pairs are all alike: start from another bi-encoder, check its pooling, "
    "lower bi.learning_rate, or give more varied pairs",
    "cross": "The encoder has collapsed: lower cross.learning_rate, train for more epochs, or give more varied pairs",
}


def check_scores(scores: Scores, *, teacher: Teacher, place: str) -> None:
    """Refuse scores that are not numbers, outside a teacher's range, or all alike."""
    if teacher.kind not in _RANGES:
        _check_plain(scores, teacher=teacher, place=place)
        return
    low, high = _RANGES[teacher.kind]
    who = f"{place}{teacher.kind}-encoder of {teacher.name}"
    bad = ~np.isfinite(scores)
    if bad.any():
        raise RunError(
            f"{who} gave {int(bad.sum()):,} of {len(scores):,} pairs a score that is not a number, the first at pair "
            f"{int(bad.argmax()) + 1}. Its weights have overflowed: lower {teacher.kind}.learning_rate or train in fp32"
        )
    wild = (scores < low - ROUNDING) | (scores > high + ROUNDING)
    if wild.any():
        raise RunError(
            f"{who} gave {int(wild.sum()):,} of {len(scores):,} pairs a score outside [{low:g}, {high:g}], "
            f"such as {float(scores[wild.argmax()]):g} at pair {int(wild.argmax()) + 1}. "
            f"Give a {teacher.kind}-encoder whose scores are {'cosines' if teacher.kind == 'bi' else 'probabilities'}"
        )
    if len(scores) > 1 and np.ptp(scores) <= _CONSTANT:
        raise RunError(f"{who} gave all {len(scores):,} pairs the score {scores[0]:g}. {_REMEDIES[teacher.kind]}")


def _check_plain(scores: Scores, *, teacher: Teacher, place: str) -> None:
    """Check the scores of a teacher that may use any scale; a file of scores may lack some (NaN)."""
    bad = np.isinf(scores) if teacher.kind == "scores" else ~np.isfinite(scores)
    if bad.any():
        raise RunError(
            f"{place}teacher {teacher.name} gave {int(bad.sum()):,} of {len(scores):,} pairs a score that is not a "
            f"finite number, the first at pair {int(bad.argmax()) + 1}"
        )
    known = scores[~np.isnan(scores)]
    if len(known) > 1 and np.ptp(known) <= _CONSTANT:
        raise RunError(
            f"{place}teacher {teacher.name} gave all {len(known):,} pairs the score {known[0]:g}, so nothing can be "
            f"learnt from it; leave it out, or give pairs that differ"
        )
