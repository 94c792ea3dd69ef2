"""`trans-encoder train`: from unlabelled pairs to two models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trans_encoder.cli.groups import JobOptions
from trans_encoder.cli.output import Shown, print_result, say_all_cuts, score_table
from trans_encoder.progress import show_progress
from trans_encoder.ranks import from_first_rank, is_first_rank, joined_ranks

if TYPE_CHECKING:
    from rich.table import Table

    from trans_encoder.distill.run import Result
    from trans_encoder.report import ModelKey
    from trans_encoder.report.outcomes import Outcome


def train(options: JobOptions) -> None:
    """Let a bi-encoder and a cross-encoder teach each other on unlabelled pairs, or on raw text.

    From raw text (`--text`), a model that does not embed sentences yet is tuned first, and the pairs are mined; with
    `--remine` every later cycle mines its own, with the bi-encoders of the cycle before. One `--model` is
    self-distillation, several are a team that learns from its mean. The run folder gets everything: labels, history,
    the chosen models under `best/`. Killed at any point, the same command continues.

    Example: `trans-encoder train --text corpus.txt --model bert-base-uncased --out runs/mine`
    """
    from trans_encoder.cli.jobs import read_job
    from trans_encoder.distill.judges import DevJudge
    from trans_encoder.distill.run import run
    from trans_encoder.pipelines.from_text import prepare
    from trans_encoder.report import write_report
    from trans_encoder.report.measuring import count_test_cuts, evaluate_run
    from trans_encoder.runs import make_engine

    with show_progress():
        job = read_job(options)
    out = job.run_folder
    with joined_ranks(), show_progress(), make_engine(job.engine, device=job.config.device) as engine:
        ready = prepare(job.config, job.source, out=out, options=job.mining)
        judge = DevJudge(job.dev) if job.dev else None
        result = run(ready.config, ready.pairs, out=out, judge=judge, miner=ready.miner, engine=engine)
        tests = _by_model(evaluate_run(result.folder, job.tests)) if job.tests else {}
        counted = count_test_cuts(result.folder, job.tests) if job.tests and is_first_rank() else {}
        page = from_first_rank(lambda: write_report([result.folder]))
    cuts = {_called(key, alone=len(result.members) == 1): cut for key, cut in counted.items()}
    say_all_cuts({f"test sets, {model}": cut for model, cut in cuts.items()})
    told = {**_as_dict(result, tests, page), "cuts": cuts}
    print_result(told, as_json=options.json, shown=_shown(result, tests, page))


def _by_model(outcomes: Sequence["Outcome"]) -> dict[str, dict[str, float]]:
    """Return each model's score on every test set and their average, the starts first."""
    keys = sorted(outcomes[0].values, key=lambda key: ("start", "best").index(key.moment)) if outcomes else []
    members = {key.member for key in keys}
    scores = {key: {outcome.name: outcome.values[key] for outcome in outcomes} for key in keys}
    return {
        _called(key, alone=len(members) == 1): {**found, "average": sum(found.values()) / len(found)}
        for key, found in scores.items()
    }


def _called(key: "ModelKey", *, alone: bool) -> str:
    from trans_encoder.report.outcomes import TEAM

    model = "start" if key.moment == "start" else key.kind
    return model if alone else f"{'ensemble' if key.member == TEAM else key.member} {model}"


def _as_dict(result: "Result", tests: Mapping[str, Mapping[str, float]], page: Path) -> dict[str, Any]:
    return {
        "out": result.folder,
        "metric": result.metric,
        "members": result.members,
        "ensemble": result.ensemble,
        "helped": result.helped,
        "to_ship": result.to_ship,
        "summary": result.summary,
        "notes": result.notes,
        "report": page,
        "tests": tests,
    }


def _shown(result: "Result", tests: Mapping[str, Mapping[str, float]], page: Path) -> Shown:
    chosen = [model.folder for member in result.members.values() for model in (member.bi, member.cross) if model]
    parts: list[str | Table] = [result.summary, *(f"Models: {result.folder / folder}" for folder in chosen)]
    if len(result.members) > 1 or result.teachers:
        parts.append(_to_ship(result))
    parts.append(f"Report: {page}")
    if tests:
        parts.append(score_table(tests, title="Test, score x100"))
    return parts


def _to_ship(result: "Result") -> str:
    """Say which models to take, and how to have all of them and the teachers as one scorer."""
    uses = {"bi": "to embed texts", "cross": "to score pairs"}
    single = ", ".join(f"{folder} {uses[kind]}" for kind, folder in result.to_ship.items())
    if "cross" not in result.to_ship and any(member.cross for member in result.members.values()):
        single += " and to score pairs, since no cross-encoder has learnt its teachers' order"
    first = result.folder / next(iter(result.members.values())).bi.folder
    place = "first" if result.to_ship["bi"] == first else "last"
    by = f"best {result.metric}" if result.metric else f"the {place} member's, since nothing was judged"
    chosen = f" ({by})" if len(result.members) > 1 else ""
    together = f"trans-encoder ensemble {result.folder} --out TEAM"
    return f"To ship: {single}{chosen}. For work in batches, all of them and the teachers as one scorer: {together}"
