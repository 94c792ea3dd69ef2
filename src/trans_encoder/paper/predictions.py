"""A cache of model scores on test sets: studies that share a model and a test set score it once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trans_encoder.data import Scores, TestSet
from trans_encoder.evaluation.ensembles import all_pairs, by_test_set, mean_scores
from trans_encoder.evaluation.evaluate import measure
from trans_encoder.files import atomic_file
from trans_encoder.runs import short_identity
from trans_encoder.teachers import ModelRef


@dataclass(frozen=True)
class Predictions:
    """The scores of models on test sets, in a folder."""

    folder: Path
    _known: dict[tuple[ModelRef, str], Scores] = field(default_factory=dict)

    def evaluate(self, models: Sequence[ModelRef], tests: Mapping[str, TestSet]) -> dict[str, float]:
        """Return the metric of each test set, x100; several models are an ensemble: the mean of their scores."""
        parts = by_test_set(mean_scores([self._scores(model, tests) for model in models]), tests)
        return {name: measure(parts[name], test) for name, test in tests.items()}

    def _scores(self, model: ModelRef, tests: Mapping[str, TestSet]) -> Scores:
        """Return the model's scores of the pairs of all test sets, concatenated."""
        asked = short_identity([test.pairs.hash for test in tests.values()])
        if (model, asked) not in self._known:
            names = ("kind", "max_tokens", "pooling", "prompts", "both_orders", "precision")
            settings = [*(getattr(model, name) for name in names), model.fingerprint()]
            path = self.folder / f"{short_identity([asked, settings])}.npy"
            if not path.exists():
                scores = model.score(all_pairs(tests))
                with atomic_file(path) as temporary, temporary.open("wb") as file:
                    np.save(file, scores, allow_pickle=False)
            self._known[model, asked] = np.load(path, allow_pickle=False)
        return self._known[model, asked]
