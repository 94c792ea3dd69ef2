"""Measuring a finished run on test sets: its starts and its chosen models, pair by pair."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from trans_encoder.data import TestSet
from trans_encoder.distill.run import Result
from trans_encoder.distill.team import assemble, config_of
from trans_encoder.encoders import Cuts, count_cuts
from trans_encoder.evaluation.ensembles import all_pairs, by_test_set, ensemble_scores
from trans_encoder.ranks import from_first_rank
from trans_encoder.report.outcomes import ModelKey, Outcome, save_evaluation
from trans_encoder.teachers import ModelRef


def evaluate_run(run: Path, tests: Mapping[str, TestSet]) -> list[Outcome]:
    """Score the test sets with the run's models, one model in memory at a time; save the scores for the report."""
    pairs, models = all_pairs(tests), dict(_models(run))
    scored = {model: by_test_set(ensemble_scores([model], pairs), tests) for model in dict.fromkeys(models.values())}
    return from_first_rank(
        lambda: [
            save_evaluation(
                run,
                name,
                metric=test.metric,
                gold=test.gold,
                scores={key: scored[model][name] for key, model in models.items()},
            )
            for name, test in tests.items()
        ]
    )


def count_test_cuts(run: Path, tests: Mapping[str, TestSet]) -> dict[ModelKey, Cuts]:
    """Count what each model of a run cuts of the test sets' texts, at its own length."""
    pairs, models = all_pairs(tests), dict(_models(run))
    counted = {model: count_cuts(model.load(), pairs) for model in dict.fromkeys(models.values())}
    return {key: counted[model] for key, model in models.items()}


def _models(run: Path) -> Iterator[tuple[ModelKey, ModelRef]]:
    members = Result.open(run).members
    for member in assemble(config_of(run)):
        chosen = members[member.name]
        kept = member.given.at(run / chosen.bi.folder, pooling=None)
        yield ModelKey("start", member.name, "bi"), member.given
        yield ModelKey("best", member.name, "bi"), member.given if chosen.bi.cycle == 0 else kept
        if chosen.cross:
            yield (
                ModelKey("best", member.name, "cross"),
                member.plm.at(run / chosen.cross.folder, max_tokens=None, both_orders=False),
            )
