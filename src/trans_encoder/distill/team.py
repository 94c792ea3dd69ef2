"""The team: members that hold models by reference, so that one at a time is in memory."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from trans_encoder.config import LEXICAL, MemberConfig, PoolingMode, RunConfig, TeacherConfig, free_name
from trans_encoder.data import PairSet, Scores
from trans_encoder.encoders import KNOWN, BiEncoder, CrossEncoder, Encoder, Kind, Prompts, known_pooling
from trans_encoder.encoders.loading import (
    Precision,
    check_precision,
    checked_name,
    find_kind,
    fingerprint,
    is_sentence_encoder,
    parameter_count,
)
from trans_encoder.errors import ConfigurationError, DataError, RunError
from trans_encoder.runs import Layout, Run

_MOST_UNKNOWN = 0.5  # with a larger share of unknown tokens, texts cannot be told apart
_SMALL_PARAMETERS = 60_000_000  # twice what the preset small was tuned on: beyond MiniLM, below the smallest base model
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class ModelRef:
    """A model in a folder or on the hub, loaded whenever it is asked to do something; a `Teacher`."""

    name: str
    """The member it belongs to."""
    kind: Kind
    source: str
    """A folder or a hub name."""
    max_tokens: int | None
    """What longer texts are cut to; the model's own length if None."""
    pooling: PoolingMode | None = None
    prompts: Prompts = None
    """What is put before the texts of each side; the model's own if None."""
    device: str | None = None
    trust_remote_code: bool = False
    precision: Precision = "fp32"
    """Number format of scoring."""
    fast: bool | None = None
    """Whether the CPU speed-ups are used; see `trans_encoder.encoders.runners`."""
    both_orders: bool = False
    """Whether a cross-encoder scores every pair in both orders and gives the mean."""

    def load(self) -> Encoder:
        """Load the model."""
        if self.kind == "cross":
            return self.load_cross(seed=0)
        encoder = BiEncoder.load(
            self.source,
            pooling=self.pooling,
            prompts=self.prompts,
            max_tokens=self.max_tokens,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
            fast=self.fast,
        )
        encoder.precision = self.precision
        return encoder

    def load_cross(self, *, seed: int) -> CrossEncoder:
        """Load the model as a cross-encoder; a head that it does not have yet is drawn from `seed`."""
        encoder = CrossEncoder.load(
            self.source,
            max_tokens=self.max_tokens,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
            seed=seed,
            fast=self.fast,
        )
        encoder.precision = self.precision
        return encoder

    def load_for(self, pairs: PairSet) -> Encoder:
        """Load the model; refuse texts that are mostly unknown to it."""
        encoder = self.load()
        unknown = encoder.tokeniser.unknown_share(pairs, max_tokens=encoder.max_tokens)
        if unknown > _MOST_UNKNOWN:
            raise DataError(
                f"{unknown:.0%} of the texts' tokens are unknown to {self.name} ({self.source}), so its scores mean "
                f"nothing; give a model that knows the language and script, such as a multilingual one"
            )
        return encoder

    def score(self, pairs: PairSet) -> Scores:
        """Load the model, score pairs, let it go."""
        encoder = self.load_for(pairs)
        scores = encoder.score(pairs)
        if self.kind == "cross" and self.both_orders:
            return np.asarray((scores + encoder.score(pairs.swapped())) / 2, dtype=np.float32)
        return scores

    def at(self, source: str | Path, **changes: Any) -> Self:
        """Return a reference to another model that is loaded in the same way, except for the changes."""
        return replace(self, source=str(source), **changes)

    def fingerprint(self) -> dict[str, str]:
        """Tell the model apart from others: see `encoders.loading.fingerprint`."""
        return fingerprint(self.source)


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

    def with_bi(self, bi: ModelRef) -> Self:
        """Return the member with a new bi-encoder."""
        return replace(self, bi=bi)

    def with_cross(self, cross: ModelRef) -> Self:
        """Return the member with a new cross-encoder."""
        return replace(self, cross=cross)

    def teacher(self, kind: Kind) -> ModelRef:
        """Return the latest encoder of a kind."""
        model = self.bi if kind == "bi" else self.cross
        if model is None:
            raise RunError(f"member {self.name} has no cross-encoder yet; its bi-encoder must teach one first")
        return model


Team = tuple[Member, ...]


class Origin(NamedTuple):
    """What a cross-encoder starts from and, where that was a default, a note for the user."""

    plm: str
    note: str | None = None


UNSUPERVISED = "unsupervised"
"""The tag of cards whose models were made without labels."""
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
        origin = find_plm(member)
        if origin.note:
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
        found = {"plm": origin.plm, "pooling": pooling, "supervised": supervised, "directions": directions}
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
    others = sum(find_kind(model) == "bi" and may_know_labels(model) for model in models)
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


def may_know_labels(model: str) -> bool:
    """Return whether a model was trained to embed sentences, and on labels for all that is known of it."""
    if model in KNOWN:
        return KNOWN[model].supervised
    return is_sentence_encoder(model) and UNSUPERVISED not in (card_facts(model).get("tags") or ())


def find_plm(member: MemberConfig) -> Origin:
    """Find the PLM of a member: as given, from the table, from the model's card, else the bi-encoder itself."""
    if member.plm is not None:
        return Origin(member.plm)
    if member.bi in KNOWN:
        return Origin(KNOWN[member.bi].plm)
    base = base_model(member.bi)
    if base is None:
        return Origin(
            member.bi,
            f"the PLM of {member.bi} is not known, so its cross-encoders start from the bi-encoder's own weights; "
            f"give {member.bi}=PLM to change that, or {member.bi}=RERANKER: a public re-ranker is the stronger start",
        )
    if Path(member.bi).expanduser().exists():
        # A card is somebody else's text: it must not make a run on local files reach for the network.
        return Origin(
            member.bi,
            f"the card of {member.bi} names the PLM {base}, which was not fetched because a local folder was given; "
            f"cross-encoders start from the bi-encoder's own weights. Give {member.bi}={base} to use it",
        )
    return Origin(base, f"cross-encoders start from {base}, which the card of {member.bi} names")


def base_model(name: str) -> str | None:
    """Return the base model that a model's card names, if it is a plain hub name."""
    named = card_facts(name).get("base_model")
    if isinstance(named, Sequence) and not isinstance(named, str):
        named = named[0] if len(named) == 1 else None
    return named if isinstance(named, str) and _HUB_NAME.fullmatch(named) and named != name else None


def is_hub_name(model: str) -> bool:
    """Return whether a model is named as on the hub and is not a local folder."""
    return _HUB_NAME.fullmatch(model) is not None and not Path(model).expanduser().exists()


def card_facts(model: str) -> dict[str, Any]:
    """Return the metadata of a model card, in a folder or on the hub; empty if there is none."""
    from huggingface_hub import hf_hub_download, metadata_load
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    card = Path(model).expanduser() / "README.md"
    try:
        if not card.parent.exists():
            card = Path(hf_hub_download(model, "README.md"))
        if not card.is_file():
            return {}
    except (OSError, ValueError, EntryNotFoundError, HfHubHTTPError):
        return {}
    try:
        return metadata_load(card) or {}
    except Exception:  # a card is optional, so a malformed one is ignored
        return {}


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
