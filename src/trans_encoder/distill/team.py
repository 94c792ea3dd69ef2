"""The team of a run: what is found out about its members, the defaults that follow, and the frozen teachers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from trans_encoder.config import FUNCTION, LEXICAL, VIEWS, MemberConfig, RunConfig, TeacherConfig, free_name
from trans_encoder.data import PairSet
from trans_encoder.encoders import KNOWN, Kind, check_precision, checked_name, known_pooling
from trans_encoder.encoders.loading import find_kind, parameter_count
from trans_encoder.errors import ConfigurationError, RunError
from trans_encoder.runs import Layout, Run
from trans_encoder.teachers import (
    UNSUPERVISED,
    ModelRef,
    ScoreFunction,
    Teacher,
    Vote,
    card_facts,
    find_plm,
    is_bi_encoder,
    make_teacher,
    may_know_labels,
)
from trans_encoder.teachers.frozen import ScoreFile, TokenTeacher


@dataclass(frozen=True)
class Member:
    """One member of the team: where its students start from, and its latest bi- and cross-encoder."""

    name: str
    given: ModelRef
    """The first bi-encoder as the user has it: what results are compared with, and what is kept if none is better."""
    start: ModelRef
    """The first bi-encoder as it labels and as students start from it: cut to the length of the training, if given."""
    plm: ModelRef
    """What its cross-encoders start from under the strategy "refresh"."""
    bi: ModelRef
    cross: ModelRef | None = None
    supervised: bool = False
    """Whether the start may have been trained on labels."""
    directions: int = 0
    """Common directions that are removed from the start's embeddings."""

    def with_start(self, start: ModelRef) -> Self:
        """Return the member with another first bi-encoder to label with and to start students from."""
        return replace(self, start=start, bi=start)

    def student(self, kind: Kind, place: Path) -> ModelRef:
        """Return a reference to the encoder that a student became; it is saved with its own pooling and length."""
        return (self.start if kind == "bi" else self.plm).at(place, pooling=None, max_tokens=None)

    def with_student(self, kind: Kind, place: Path) -> Self:
        """Return the member with the encoder that its latest student became."""
        student = self.student(kind, place)
        return replace(self, bi=student) if kind == "bi" else replace(self, cross=student)

    def teacher(self, kind: Kind) -> ModelRef:
        """Return the latest encoder of a kind."""
        model = self.bi if kind == "bi" else self.cross
        if model is None:
            raise RunError(f"member {self.name} has no cross-encoder yet; its bi-encoder must teach one first")
        return model


Team = tuple[Member, ...]


def assemble(config: RunConfig) -> Team:
    """Make the team of a configuration whose members are resolved; refuse what could not be loaded or trained."""
    check_precision(config.precision, config.device)
    team = tuple(_member(member, config) for member in config.members)
    for member in team:
        for model in (member.start, member.plm):
            checked_name(model.source, trust_remote_code=model.trust_remote_code)
    return team


def _member(member: MemberConfig, config: RunConfig) -> Member:
    start = ModelRef(
        name=str(member.name),
        kind="bi",
        source=member.bi,
        max_tokens=config.bi.given_tokens,
        pooling=member.pooling,
        prompts=member.prompts,
        device=config.given_device,
        trust_remote_code=config.trust_remote_code,
        precision=config.precision,
        fast=config.fast_option,
    )
    source = member.plm or member.bi
    plm = replace(
        start,
        kind="cross",
        source=source,
        max_tokens=config.cross.given_tokens,
        pooling=None,
        prompts=None,
        both_orders=config.both_orders and config.both_orders_labels,
    )
    given = replace(start, max_tokens=None)
    supervised, directions = bool(member.supervised), member.directions or 0
    return Member(start.name, given, start, plm, bi=start, supervised=supervised, directions=directions)


_COSTLY = ("cross", "function")


def assemble_teachers(
    config: RunConfig, team: Team, functions: Mapping[str, ScoreFunction] | None = None
) -> tuple[Vote, ...]:
    """Make the teachers of a configuration; refuse what could not be loaded."""
    votes = []
    for settings in config.teachers:
        teacher = make_teacher(settings, like=team[0].start, functions=functions)
        share = config.ask if teacher.kind in _COSTLY else 1.0
        votes.append(Vote(teacher, settings.weight, settings.ask or share))
    return tuple(votes)


def check_coverage(teachers: Sequence[Vote], pairs: PairSet) -> None:
    """Refuse files of scores that know none of a run's pairs."""
    for vote in teachers:
        if isinstance(vote.teacher, ScoreFile):
            vote.teacher.check(pairs)


def check_models(config: RunConfig, team: Team) -> None:
    """Load every model of the members and teachers once.

    What is wrong with a tokenizer, prompt, length or head is then told before any work is done.
    """
    models = [model for member in team for model in (member.start, member.plm)]
    for settings in config.teachers:
        if not settings.spec.startswith(FUNCTION):
            teacher = make_teacher(settings, like=team[0].start)
            models += [each for each in (teacher, getattr(teacher, "model", None)) if isinstance(each, ModelRef)]
    for model in dict.fromkeys(model.at(model.source, device="cpu") for model in models):
        model.load()


def views_of(member: Member, team: Team, teachers: Sequence[Vote]) -> tuple[Teacher, ...]:
    """Return who may judge a member's students without labels: other members' starts and frozen teachers.

    Wording and tokens do not count, nor teachers that are not asked about every pair. A start that may have been
    trained on labels is judged by such as may have been, too: weak encoders share errors that it does not have.
    """
    members = [(other.given, other.supervised) for other in team if other.name != member.name]
    frozen = [
        (vote.teacher, _may_be_strong(vote.teacher))
        for vote in teachers
        if vote.ask == 1 and vote.teacher.kind not in VIEWS
    ]
    return tuple(view for view, strong in (*members, *frozen) if strong or not member.supervised)


def embedders_of(member: Member, team: Team, teachers: Sequence[Vote]) -> list[ModelRef]:
    """Return the bi-encoders whose embeddings a member's students learn from: its start, and those that may judge them.

    A start alone has nothing to teach them.
    """
    views = {view.name for view in views_of(member, team, teachers)}
    starts = [other.start for other in team if other.name in views]
    frozen = [vote.teacher for vote in teachers if isinstance(vote.teacher, ModelRef) and vote.teacher.name in views]
    others = [*starts, *(teacher for teacher in frozen if teacher.kind == "bi")]
    return [member.start, *others] if others else []


def _may_be_strong(teacher: Teacher) -> bool:
    """Whether a teacher may be stronger than an encoder made without labels: all but such bi-encoders may."""
    return not (isinstance(teacher, ModelRef) and teacher.kind == "bi") or may_know_labels(teacher.source)


def knows_labels(team: Team, teachers: Sequence[Vote]) -> bool:
    """Whether a member's start, the re-ranker that its cross-encoder begins as, or a teacher may know labels."""
    rerankers = [member.plm.source for member in team if find_kind(member.plm.source) == "cross"]
    return (
        any(member.supervised for member in team)
        or any(UNSUPERVISED not in (card_facts(model).get("tags") or ()) for model in rerankers)
        or any(_brings_labels(vote.teacher) for vote in teachers)
    )


def _brings_labels(teacher: Teacher) -> bool:
    if isinstance(teacher, TokenTeacher):
        return may_know_labels(teacher.model.source)
    return teacher.kind not in VIEWS and _may_be_strong(teacher)


_SMALL_PARAMETERS = 60_000_000  # twice what the preset small was tuned on: beyond MiniLM, below the smallest base model
ANCHOR = 0.7
"""Weight of the first labels in later ones, if not given, where a start may know labels: see docs/selection.md."""
SMALL_STEPS = 2e-5
"""Highest learning rate of a bi-encoder whose start may know labels and has no other teacher, if not given."""
TEAM_STEPS = 5e-5
"""The same where other models teach it: see docs/results.md."""
DIRECTIONS = 3
"""Common directions that are removed from a start's embeddings, if not given, where it was made without labels."""
MERGE = 0.75
"""Share of the student in a new encoder's weights, if not given, where the start may know labels and nothing else holds
it."""
IN_BATCH = 10.0
"""Weight of in-batch distillation, if not given, where other bi-encoders teach a start that may know labels."""


def resolve_members(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Fill in what can be found out about each member, and the anchor that follows; note what had to be guessed."""
    if config.strategy == "sequential-ensemble" and (config.anchor or config.formulation == "bi"):
        raise ConfigurationError("the strategy sequential-ensemble is for anchor 0 and the formulation alternate")
    if config.strategy == "sequential-ensemble" and (config.teachers or config.scale not in (None, "none")):
        raise ConfigurationError("the strategy sequential-ensemble is for members alone, without teachers or a scale")
    members, notes = [], []
    for member in config.members:
        origin = find_plm(member) if "cross" in config.kinds else None
        if origin and origin.note:
            notes.append(f"{member.name}: {origin.note}")
        if config.preset == "small" and (size := parameter_count(member.bi) or 0) > _SMALL_PARAMETERS:
            notes.append(
                f"{member.name} has {size / 1e6:.0f}M parameters, and the preset small is made for up to about 30M; "
                f"its learning rates may be too high: --preset paper-sts (or another of the paper's) has lower ones"
            )
        pooling = member.pooling or known_pooling(member.bi)
        said = config.supervised if member.supervised is None else member.supervised
        supervised = may_know_labels(member.bi) if said is None else said
        directions = config.directions if member.directions is None else member.directions
        if directions is None:
            directions = 0 if supervised or member.bi in KNOWN else DIRECTIONS
            if directions:
                notes.append(
                    f"{member.name}: {directions} common directions are removed from its embeddings, by a Dense module "
                    f"that its bi-encoders keep; set directions=0 to leave them"
                )
        plm = origin.plm if origin else None  # not even looked at where no cross-encoder begins as it
        found = {"plm": plm, "pooling": pooling, "supervised": supervised, "directions": directions}
        members.append(member.model_copy(update=found))
    teachers = _with_wording(config, members, notes)
    several = len(members) + len(teachers) > 1 and config.strategy != "sequential-ensemble"
    defaults: dict[str, Any] = {
        "members": tuple(members),
        "teachers": teachers,
        "lexical": any(teacher.spec == LEXICAL for teacher in teachers),
        "scale": config.scale or ("rank" if several else "none"),
        "in_batch": _in_batch(config, members) if config.in_batch is None else config.in_batch,
    }
    resolved = config.model_copy(update=defaults)
    return _with_care(resolved, notes) if config.anchor is None else (resolved, notes)


def _in_batch(config: RunConfig, members: Sequence[MemberConfig]) -> float:
    """Return the weight of in-batch distillation: it takes two bi-encoders that may know labels, one of them a start.

    A sentence is embedded once, so there is none where the two sides of a pair have prompts of their own.
    """
    models = [teacher.spec for teacher in config.teachers if teacher.names_model]
    others = sum(is_bi_encoder(model) and may_know_labels(model) for model in models)
    by_side = any(each.prompt1 or each.prompt2 for each in (*config.members, *config.teachers))
    strong = sum(bool(member.supervised) for member in members) + others
    return IN_BATCH if any(member.supervised for member in members) and strong > 1 and not by_side else 0.0


def merge_of(config: RunConfig, kind: Kind) -> float:
    """Return the share of the student in the weights of a new encoder; in-batch distillation holds a bi-encoder."""
    if config.merge is not None:
        return config.merge
    held = kind == "bi" and config.in_batch
    return MERGE if any(member.supervised for member in config.members) and not held else 1.0


def _with_wording(config: RunConfig, members: Sequence[MemberConfig], notes: list[str]) -> tuple[TeacherConfig, ...]:
    """Return the teachers, with wording among them if it was asked for, or if all starts may be weaker than it."""
    weak = not any(member.supervised or member.bi in KNOWN for member in members)
    by_default = weak and not config.teachers and config.strategy != "sequential-ensemble"
    wanted = by_default if config.lexical is None else config.lexical
    if not wanted or any(teacher.spec == LEXICAL for teacher in config.teachers):
        return config.teachers
    if config.lexical is None:
        notes.append(
            "shared wording teaches beside the members, whose starts were made without labels; "
            "set lexical=false to leave it out"
        )
    taken = {str(member.name).lower() for member in members}
    taken |= {str(teacher.name).lower() for teacher in config.teachers}
    return (*config.teachers, TeacherConfig(spec=LEXICAL, name=free_name(LEXICAL, taken)))


def _with_care(config: RunConfig, notes: list[str]) -> tuple[RunConfig, list[str]]:
    """Choose the anchor: for starts that may know labels one that holds them, and small steps for themselves."""
    strong = [str(member.name) for member in config.members if member.supervised]
    if not strong or config.strategy == "sequential-ensemble":
        return config.model_copy(update={"anchor": 0.0}), notes
    taught = len(config.members) + len(config.teachers) > 1
    held = config.in_batch  # keeps what a start knows better than small steps do
    rate = config.bi.learning_rate if held else min(config.bi.learning_rate, TEAM_STEPS if taught else SMALL_STEPS)
    members = tuple(
        member.model_copy(update={"learning_rate": member.learning_rate or rate}) if member.supervised else member
        for member in config.members
    )
    note = (
        f"{' and '.join(strong)} may have been trained on labels: {ANCHOR:g} of the first labels is mixed into every "
        f"later label, and such bi-encoders learn at a rate of {rate:g} unless they have their own. "
        f"Set anchor=0 to learn from what the cycles make alone, at the preset's rate"
    )
    return config.model_copy(update={"members": members, "anchor": ANCHOR}), [*notes, note]


def settings_of(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Return a configuration as a run folder keeps it: models in the folder itself are named from there."""
    settings = config.model_dump(mode="json")
    for member in settings["members"]:
        place = Path(member["bi"])
        if place.is_relative_to(folder):
            member["bi"] = place.relative_to(folder).as_posix()
    return settings


def config_of(folder: Path) -> RunConfig:
    """Read the configuration that a run folder keeps."""
    config = RunConfig.model_validate(Run.open(folder).config)
    layout = Layout(folder)
    members = (
        member.model_copy(update={"bi": str(folder / member.bi)}) if layout.is_from_text(member.bi) else member
        for member in config.members
    )
    return config.model_copy(update={"members": tuple(members)})
