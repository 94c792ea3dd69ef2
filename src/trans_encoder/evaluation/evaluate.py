"""Evaluation of bi-encoders, cross-encoders and ensembles of either, as in the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy.typing as npt
from pydantic_core import to_jsonable_python

from trans_encoder.data import PairSet, Task, TestSet
from trans_encoder.encoders import BiEncoder, CrossEncoder, Cuts, Scorer, count_cuts, load_encoder
from trans_encoder.errors import ConfigurationError, DataError
from trans_encoder.evaluation.ensembles import Ensemble, all_pairs, by_test_set, ensemble_scores, is_ensemble
from trans_encoder.evaluation.metrics import auc, spearman

Model = Scorer | str | Path


@dataclass(frozen=True)
class Evaluation:
    """How well one model, or an ensemble, ranks the pairs of each test set."""

    task: str
    """Name of the task, or of its only test set."""
    models: tuple[str, ...]
    """Each model as `name (kind)`; more than one is an ensemble."""
    scores: dict[str, float]
    """Spearman's rho or AUC of each test set, x100."""
    counts: dict[str, int]
    """Pairs in each test set."""
    cuts: dict[str, Cuts] = field(default_factory=dict)
    """What each model cut of the test sets' texts, at its own length."""

    @property
    def average(self) -> float:
        """The plain mean over the test sets."""
        return sum(self.scores.values()) / len(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain values, ready for JSON."""
        return {**to_jsonable_python(self), "average": self.average}


def evaluate(models: Model | Sequence[Model], task: Task | TestSet | PairSet | Mapping[str, TestSet]) -> Evaluation:
    """Evaluate a model, or the ensemble of several (the mean of their scores), on a task's test sets or labelled pairs.

    A bi-encoder scores a pair by the cosine of its embeddings, a cross-encoder by the sigmoid of its logit. Kinds may
    be mixed in an ensemble; `Evaluation.models` states each one's kind.
    """
    name, tests = _test_sets(task)
    several = isinstance(models, Sequence) and not isinstance(models, str)
    encoders = [_loaded(model) for model in (cast(Sequence[Model], models) if several else [cast(Model, models)])]
    if not encoders:
        raise ConfigurationError("no model to evaluate; give at least one encoder, folder or hub name")
    pairs = all_pairs(tests)
    parts = by_test_set(ensemble_scores(encoders, pairs), tests)
    return Evaluation(
        task=name,
        models=tuple(f"{encoder.name} ({encoder.kind})" for encoder in encoders),
        scores={key: measure(parts[key], test) for key, test in tests.items()},
        counts={key: len(test.pairs) for key, test in tests.items()},
        cuts={
            f"{encoder.name} ({encoder.kind})": count_cuts(encoder, pairs)
            for encoder in encoders
            if isinstance(encoder, BiEncoder | CrossEncoder)
        },
    )


def measure(scores: npt.ArrayLike, test: TestSet) -> float:
    """Return the test set's own metric of these scores, x100."""
    metric = {"spearman": spearman, "auc": auc}[test.metric]
    try:
        return metric(scores, test.gold)
    except DataError as error:
        raise DataError(f"test set {test.name}: {error}") from error


def _test_sets(task: Task | TestSet | PairSet | Mapping[str, TestSet]) -> tuple[str, Mapping[str, TestSet]]:
    if isinstance(task, PairSet):
        task = TestSet("pairs", task)
    if isinstance(task, TestSet):
        return task.name, {task.name: task}
    name, tests = (task.name, task.tests) if isinstance(task, Task) else (", ".join(task), task)
    if not tests:
        raise ConfigurationError(f"task {name or 'given'} has no test sets; give a labelled file or a task with tests")
    return name, tests


def _loaded(model: Model) -> Scorer:
    if not isinstance(model, str | Path):
        return model
    return Ensemble.open(model) if is_ensemble(model) else load_encoder(model)
