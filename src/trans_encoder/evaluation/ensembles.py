"""Ensembles: the plain mean of several scorers (section 2.4), and scores of several test sets at once."""

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.tasks import TestSet
from trans_encoder.encoders.sharing import Scorer, Together


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Return the mean of several scorers' scores of the same pairs, added up in double precision."""
    total = np.zeros(len(scores[0]), dtype=np.float64)
    for each in scores:
        total += each
    return (total / len(scores)).astype(np.float32)


def ensemble_scores(encoders: Sequence[Scorer], pairs: PairSet) -> Scores:
    """Return the mean score of each pair; with data-parallel ranks each scores a share, so all of them must call."""
    return mean_scores([Together(encoder).score(pairs) for encoder in encoders])


def all_pairs(tests: Mapping[str, TestSet]) -> PairSet:
    """Return the pairs of all test sets in turn, so that a model scores them in one go."""
    return reduce(PairSet.concat, (test.pairs for test in tests.values()))


def by_test_set(scores: Scores, tests: Mapping[str, TestSet]) -> dict[str, Scores]:
    """Split the scores of `all_pairs` by test set."""
    ends = np.cumsum([len(test.pairs) for test in tests.values()])
    return dict(zip(tests, np.split(scores, ends[:-1]), strict=True))
