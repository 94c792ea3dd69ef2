"""Model cards: how a chosen model was made, as Markdown with escaped values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from trans_encoder.config import MemberConfig, OptimisationPlan, RunConfig
from trans_encoder.data import PairSet
from trans_encoder.distill.selection import Candidate, verdict_of
from trans_encoder.encoders import Cuts, Kind
from trans_encoder.teachers import UNSUPERVISED, card_facts, is_hub_name

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$^=-])")


@dataclass(frozen=True)
class Facts:
    """What all cards of a run share."""

    config: RunConfig
    pairs_count: int
    pairs_hash: str
    measure: str | None
    """What models were chosen by, as in "spearman x100 on dev"; None if nothing was judged."""
    remined: bool = False
    """Whether every cycle after the first had new pairs of the same text."""
    knows_labels: bool = False
    """Whether a member's start or a teacher may have been trained on labels."""


def write_card(chosen: Candidate, start: Candidate, *, facts: Facts, lengths: str | None = None) -> str:
    """Write the card of a chosen model; `lengths` says what it learnt from and what it cuts."""
    kind, config = chosen.model.kind, facts.config
    member, plan = config.member(chosen.model.name), config.plan(kind, chosen.model.name)
    return _card(
        kind,
        title=f"{_KINDS[kind]} {escaped(chosen.model.name)}",
        origin=_origin(chosen, facts=facts),
        facts=[
            *_facts(chosen, start, facts=facts),
            *([f"Lengths: {lengths}"] if lengths else []),
            *([f"Training of {kind}-encoders: {_plan(plan)}"] if chosen.cycle else []),
        ],
        supervised=facts.knows_labels if chosen.cycle else bool(member.supervised),
        base=member.bi if kind == "bi" else member.plm or member.bi,
        evaluation=_evaluation(chosen, facts.measure),
    )


def write_tuned_card(
    model: str, *, sentences: int, plan: OptimisationPlan, supervised: bool, teachers: Sequence[str] = ()
) -> str:
    """Write the card of a bi-encoder tuned on plain text; it or its teachers may know labels (`supervised`)."""
    name = escaped(shown(model))
    by = f", taught by {' and '.join(escaped(shown(each)) for each in teachers)}" if teachers else ""
    return _card(
        "bi",
        title=f"{name}, {'taught' if teachers else 'tuned contrastively'} on plain text",
        origin=f"Made by trans-encoder {version('trans-encoder')} from {name} and plain text{by}.",
        facts=[f"Sentences of the text: {sentences:,}", f"Training: {_plan(plan)}"],
        supervised=supervised,
        base=model,
    )


def write_learnt_card(
    model: str, *, kind: Kind, pairs: PairSet, plan: OptimisationPlan, cuts: Cuts | None, score: float | None
) -> str:
    """Write the card of a model trained on given labels, which people may have made: it does not claim otherwise."""
    name = escaped(shown(model))
    return _card(
        kind,
        title=f"{_KINDS[kind]} from {name}",
        origin=f"Made by trans-encoder {version('trans-encoder')} from {name} and labelled pairs.",
        facts=[
            f"Labelled pairs: {len(pairs):,}, SHA-256 {pairs.hash}",
            f"Lengths: {cuts or 'not recorded'}",
            f"Training: {_plan(plan)}",
            f"Score on the dev set (x100): {_number(score)}",
        ],
        supervised=True,
        base=model,
    )


def _card(
    kind: Kind,
    *,
    title: str,
    origin: str,
    facts: Sequence[str],
    supervised: bool,
    base: str,
    evaluation: EvalResult | None = None,
) -> str:
    return "\n".join(
        [
            *_head(bi=kind == "bi", supervised=supervised, base=base, evaluation=evaluation),
            *(f"# {title}", "", origin, ""),
            *("## Use", "", *_usage(kind)),
            *("## How it was made", "", *(f"- {fact}" for fact in facts), ""),
            *("## Licence", "", _LICENCE, ""),
        ]
    )


def _head(*, bi: bool, supervised: bool, base: str, evaluation: EvalResult | None = None) -> list[str]:
    """Return a card's metadata; the last tag tells a later run that no labels had a part in the model.

    Licence and language are those of the model that this one was made from.
    """
    card = card_facts(base)
    data = ModelCardData(
        base_model=[base] if is_hub_name(base) else None,
        license=card.get("license"),
        language=card.get("language"),
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity" if bi else "text-ranking",
        tags=["sentence-transformers", "trans-encoder", *([] if supervised else [UNSUPERVISED])],
        model_name="trans-encoder" if evaluation else None,
        eval_results=[evaluation] if evaluation else None,
    )
    return ["---", data.to_yaml(), "---"]


def _evaluation(chosen: Candidate, measure: str | None) -> EvalResult | None:
    """Return the score on a labelled dev set; one without labels is nothing that others could compare with."""
    metric = (measure or "").partition(" ")[0]
    if metric not in ("spearman", "auc") or chosen.score is None:
        return None
    kind = "sentence-similarity" if chosen.model.kind == "bi" else "text-ranking"
    return EvalResult(
        task_type=kind, dataset_type="dev", dataset_name="dev", metric_type=metric, metric_value=round(chosen.score, 2)
    )


_KINDS = {"bi": "Bi-encoder", "cross": "Cross-encoder"}
_LICENCE = "The licences of the models named above and of the texts that it was trained on apply."
_CLASSES = {"bi": "SentenceTransformer", "cross": "CrossEncoder"}
_CALLS = {
    "bi": [
        'embeddings = model.encode(["a sentence", "another one"])',
        "similarities = model.similarity(embeddings, embeddings)",
    ],
    "cross": ['scores = model.predict([("a sentence", "another one")])'],
}


def _usage(kind: Kind) -> list[str]:
    name = _CLASSES[kind]
    imported = f"from sentence_transformers import {name}"
    return ["```python", imported, "", f'model = {name}("path/to/this/folder")', *_CALLS[kind], "```", ""]


def _origin(chosen: Candidate, *, facts: Facts) -> str:
    if chosen.cycle == 0:
        return "This is the bi-encoder that the run started from, unchanged: none of any cycle is known to be better."
    team = "a team of one" if len(facts.config.members) == 1 else f"a team of {len(facts.config.members)}"
    return (
        f"Made without labels by trans-encoder {version('trans-encoder')} "
        f"(bi- and cross-encoders that teach each other, {team}), in cycle {chosen.cycle}, step {chosen.step}."
    )


def _facts(chosen: Candidate, start: Candidate, *, facts: Facts) -> list[str]:
    config = facts.config
    members = "; ".join(
        escaped(_start(member)) + (f", cross-encoder from {escaped(shown(member.plm))}" if member.plm else "")
        for member in config.members
    )
    teachers = "; ".join(
        f"{escaped(shown(teacher.spec))}{'' if teacher.weight == 1 else f', weight {teacher.weight:g}'}"
        for teacher in config.teachers
    )
    lines = [
        f"Members of the team: {members}",
        *([f"Teachers beside it: {teachers}"] if teachers else []),
        *(
            [f"Weights: {chosen.merged:g} of the student, {1 - chosen.merged:g} of what it started from"]
            if chosen.merged
            else []
        ),
        f"Pairs: {facts.pairs_count:,}, SHA-256 {facts.pairs_hash}"
        + ("; mined again from the same text in every later cycle" if facts.remined else ""),
        f"Preset {config.preset}, seed {config.seed}, cycles {config.cycles}, strategy {config.strategy}, "
        f"formulation {config.formulation}, both orders {config.both_orders}, anchor {config.anchor}",
    ]
    if facts.measure is None:
        return [*lines, "No checkpoint was judged: this is the last one, and whether it is better is not known"]
    lines.append(
        f"Score ({facts.measure}): {_number(start.score)} of the first bi-encoder, "
        f"{_number(chosen.score)} of this model"
    )
    if (evidence := chosen.evidence) is not None:
        lines.append(
            f"{verdict_of(evidence).capitalize()} than its start, judged without labels: estimated gain "
            f"{evidence.gain:+.2f} ({evidence.low:+.2f} to {evidence.high:+.2f}) in rank correlation x100, by "
            f"{escaped(', '.join(evidence.views))} on {evidence.pairs:,} held-out pairs"
        )
    return lines


def _start(member: MemberConfig) -> str:
    """Name a member's first bi-encoder; a folder called bi, as in runs, does not tell."""
    name = shown(member.bi)
    return str(member.name) if name == "bi" else name


def _plan(plan: OptimisationPlan) -> str:
    return ", ".join(f"{escaped(name)} {value}" for name, value in plan.model_dump().items())


def _number(score: float | None) -> str:
    return "not measured" if score is None else f"{score:.2f}"


def shown(model: str) -> str:
    """Return how a model is named in public: a hub name as it is, a local folder without the way to it."""
    path = Path(model).expanduser()
    return path.name if path.exists() else model


def escaped(text: str) -> str:
    """Return text that Markdown and HTML show as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
