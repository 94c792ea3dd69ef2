"""The cache of scores on test sets: what decides a model's scores decides which are read back."""

import numpy as np
import pytest

from trans_encoder.data.tasks import TestSet
from trans_encoder.paper.predictions import Predictions
from trans_encoder.teachers import ModelRef


@pytest.mark.parametrize(
    ("kind", "other"),
    [("bi", {"prompts": "the old farmer "}), ("bi", {"pooling": "cls"}), ("cross", {"both_orders": True})],
)
def test_the_same_weights_used_in_another_way_are_scored_again(kind, other, bert, dev, tmp_path):
    tests = {"dev": TestSet("dev", dev)}
    plain = ModelRef("a", kind, str(bert), max_tokens=None)
    changed = plain.at(bert, **other)
    kept = [Predictions(tmp_path).evaluate([model], tests)["dev"] for model in (plain, changed)]
    fresh = [
        Predictions(tmp_path / name).evaluate([model], tests)["dev"]
        for name, model in zip("ab", (plain, changed), strict=True)
    ]
    assert kept == fresh
    assert not np.array_equal(plain.score(dev), changed.score(dev))
