"""`trans-encoder train`: from unlabelled pairs to two models."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Group, RenderableType

from trans_encoder.cli.output import print_result, score_table
from trans_encoder.cli.takes_job import takes_job
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.cli.jobs import Job
    from trans_encoder.distill.result import Result
    from trans_encoder.evaluation.evaluate import Evaluation


@takes_job
def train(job: "Job", json: bool) -> None:
    """Let a bi-encoder and a cross-encoder teach each other on unlabelled pairs, or on raw text.

    From raw text (`--text`), a model that does not embed sentences yet is tuned first, and the pairs are mined. One
    `--model` is self-distillation, several are a team that learns from its mean. The run folder gets everything:
    labels, history, the chosen models under `best/`. Killed at any point, the same command continues.

    Example: `trans-encoder train --text corpus.txt --model bert-base-uncased --out runs/mine`
    """
    from trans_encoder.distill.run import run
    from trans_encoder.distill.selection import DevJudge
    from trans_encoder.from_text import prepare
    from trans_encoder.report import write_report

    with show_progress():
        if job.text is not None:
            config, pairs = prepare(job.config, job.text, out=job.out, pairs=len(job.pairs))
            job = replace(job, config=config, pairs=pairs)
        result = run(job.config, job.pairs, out=job.out, judge=DevJudge(job.dev) if job.dev else None)
        tests = evaluate_models(result, job) if job.tests else {}
        page = write_report([result.folder])
    print_result(_as_dict(result, tests, page), as_json=json, shown=_shown(result, tests, page))


def evaluate_models(result: "Result", job: "Job") -> dict[str, "Evaluation"]:
    """Evaluate each member's start and chosen models and, for a team, the ensembles; leave their scores in the run."""
    from trans_encoder.distill.team import assemble, resolve_members
    from trans_encoder.evaluation.evaluate import ensemble, evaluate
    from trans_encoder.report import ModelKey, save_evaluation

    starts = {member.name: member.start for member in assemble(resolve_members(job.config)[0])}
    groups: dict[Literal["start", "bi", "cross"], Mapping[str, Any]] = {
        "start": starts,
        "bi": result.bis,
        "cross": result.crosses,
    }
    found: dict[str, Evaluation] = {}
    said: dict[ModelKey, Evaluation] = {}
    for kind, encoders in groups.items():
        each = {name: evaluate(encoder, job.tests) for name, encoder in encoders.items()}
        found |= {kind if len(starts) == 1 else f"{name} {kind}": evaluation for name, evaluation in each.items()}
        if len(each) > 1:
            found[f"ensemble {kind}"] = ensemble(list(each.values()), job.tests)
        for name, evaluation in each.items():
            key = ModelKey("start", name, "bi") if kind == "start" else ModelKey("best", name, kind)
            said[key] = evaluation
    for name, test in job.tests.items():
        scores = {key: evaluation.predictions[name] for key, evaluation in said.items()}
        save_evaluation(result.folder, name, metric=test.metric, gold=test.gold, scores=scores)
    return found


def _as_dict(result: "Result", tests: Mapping[str, "Evaluation"], page: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "out": str(result.folder),
        "metric": result.metric,
        "members": {name: asdict(member) for name, member in result.members.items()},
        "ensemble": dict(result.ensemble),
        "helped": dict(result.helped),
        "summary": result.summary,
        "notes": list(result.notes),
        "report": str(page),
        "tests": {name: evaluation.to_dict() for name, evaluation in tests.items()},
    }


def _shown(result: "Result", tests: Mapping[str, "Evaluation"], page: Path) -> RenderableType:
    chosen = [model.folder for member in result.members.values() for model in (member.bi, member.cross) if model]
    parts: list[RenderableType] = [result.summary, *(f"Models: {result.folder / folder}" for folder in chosen)]
    parts.append(f"Report: {page}")
    if tests:
        columns = {name: {**each.scores, "average": each.average} for name, each in tests.items()}
        parts.append(score_table(columns, title=f"Test: {next(iter(tests.values())).task}, score x100"))
    return Group(*parts)
