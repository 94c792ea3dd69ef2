"""`trans-encoder train`: from unlabelled pairs to two models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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

    with show_progress():
        if job.text is not None:
            config, pairs = prepare(job.config, job.text, out=job.out, pairs=len(job.pairs))
            job = replace(job, config=config, pairs=pairs)
        result = run(job.config, job.pairs, out=job.out, judge=DevJudge(job.dev) if job.dev else None)
        tests = evaluate_models(result, job) if job.tests else {}
    print_result(_as_dict(result, tests), as_json=json, shown=_shown(result, tests))


def evaluate_models(result: "Result", job: "Job") -> dict[str, "Evaluation"]:
    """Evaluate each member's start and chosen models and, for a team, the ensembles of each."""
    from trans_encoder.distill.team import assemble, resolve_members
    from trans_encoder.evaluation.evaluate import evaluate

    starts = {member.name: member.start for member in assemble(resolve_members(job.config)[0])}
    groups: dict[str, Mapping[str, Any]] = {"start": starts, "bi": result.bis, "cross": result.crosses}
    found = {}
    for kind, encoders in groups.items():
        for name, encoder in encoders.items():
            found[kind if len(starts) == 1 else f"{name} {kind}"] = evaluate(encoder, job.tests)
        if len(encoders) > 1:
            found[f"ensemble {kind}"] = evaluate(list(encoders.values()), job.tests)
    return found


def _as_dict(result: "Result", tests: Mapping[str, "Evaluation"]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "out": str(result.folder),
        "metric": result.metric,
        "members": {name: asdict(member) for name, member in result.members.items()},
        "ensemble": dict(result.ensemble),
        "helped": dict(result.helped),
        "summary": result.summary,
        "notes": list(result.notes),
        "tests": {name: evaluation.to_dict() for name, evaluation in tests.items()},
    }


def _shown(result: "Result", tests: Mapping[str, "Evaluation"]) -> RenderableType:
    chosen = [model.folder for member in result.members.values() for model in (member.bi, member.cross) if model]
    parts: list[RenderableType] = [result.summary, *(f"Models: {result.folder / folder}" for folder in chosen)]
    if tests:
        columns = {name: {**each.scores, "average": each.average} for name, each in tests.items()}
        parts.append(score_table(columns, title=f"Test: {next(iter(tests.values())).task}, score x100"))
    return Group(*parts)
