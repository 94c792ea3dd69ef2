"""Saved ensembles: what they give to scores unlike those that they were saved with."""

import numpy as np
import pytest

from trans_encoder.data.pairs import PairSet
from trans_encoder.encoders import BiEncoder, CrossEncoder
from trans_encoder.evaluation.ensembles import Voter, save_ensemble


@pytest.mark.parametrize("kind", [BiEncoder, CrossEncoder])
def test_scores_beyond_the_sample_keep_their_order(bert, pairs, tmp_path, kind):
    encoder = kind.load(bert)
    given = [(first, second) for first, second, _ in pairs.rows()]
    scores = encoder.score(pairs)
    order = np.argsort(scores, kind="stable")
    middle = order[len(order) // 3 : -len(order) // 3]
    sample = PairSet.of([given[place] for place in middle])
    voters = [Voter("a", encoder), Voter("b", encoder)]
    found = save_ensemble(voters, sample, out=tmp_path / "ensemble").score(pairs)
    steps, rises = np.diff(found[order]), np.diff(scores[order])
    assert (steps[rises > 1e-5] > 0).all(), "no ties where the model sees a difference"
    assert (steps[rises > 0] >= 0).all()
    assert 0 < found.min() < found.max() < 1
