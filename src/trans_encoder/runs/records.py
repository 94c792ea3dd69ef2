"""Typed records of what a run writes and reads back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, FiniteFloat, RootModel, ValidationError

from trans_encoder.config import Kind
from trans_encoder.errors import RunError
from trans_encoder.files import atomic_folder, write_json
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs.layout import training_record

M = TypeVar("M", bound=BaseModel)


class Saved(Protocol):
    """A model that can be saved."""

    def save(self, folder: Path) -> None:
        """Save to a folder."""


def read_record(record: type[M], path: Path) -> M:
    """Read a record; a damaged one is an error that names the file."""
    try:
        return record.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise RunError(
            f"{path} cannot be read ({reason}); run the command that made the folder again: it restores what is damaged"
        ) from error


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record, atomically."""
    write_json(path, record.model_dump(mode="json"))


def save_trained(path: Path, model: Saved, record: BaseModel, *, card: str | None = None) -> None:
    """Write a trained model with the record of its training and, if there is one, a card, atomically; rank 0 does."""
    if is_first_rank():
        with atomic_folder(path) as temporary:
            model.save(temporary)
            write_record(training_record(temporary), record)
            if card is not None:
                (temporary / "README.md").write_text(card, encoding="utf-8")


class Record(BaseModel):
    """Plain values that are written as JSON and validated when they are read back."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class FileEntry(Record):
    """A file as a stage made it."""

    bytes: int
    sha256: str


class StageEntry(Record):
    """A finished stage in the manifest."""

    inputs: Mapping[str, Any]
    files: Mapping[str, FileEntry]
    """By their names in the run folder."""
    seconds: FiniteFloat
    """Over all attempts."""
    peak_memory_bytes: int | None = None


class Checkpoint(Record):
    """One validated checkpoint of a training."""

    step: int
    epoch: float
    loss: float | None
    score: float | None


class _Place(Record):
    """Which training of a run; cycle 0 is the start."""

    cycle: int
    member: str
    kind: Kind


class HistoryLine(Checkpoint, _Place):
    """A validated checkpoint and the training it belongs to."""


class ValidatedLine(HistoryLine):
    """A checkpoint that has a score."""

    score: float


class _Trained(Record):
    """What every training records."""

    seed: int
    best_step: int
    best_score: float | None
    history: tuple[Checkpoint, ...]


class TuningRecord(_Trained):
    """How stage 0 went."""

    start_score: float | None


@dataclass(frozen=True)
class Cuts:
    """How many inputs are longer than a length, in tokens with the special ones."""

    kind: Kind
    max_tokens: int
    counted: int
    """Distinct texts for a bi-encoder, pairs for a cross-encoder."""
    cut: int
    longest: int

    @property
    def unit(self) -> str:
        """What was counted."""
        return "texts" if self.kind == "bi" else "pairs"

    def __str__(self) -> str:
        if not self.cut:
            return f"none of {self.counted:,} {self.unit} is longer than {self.max_tokens:,} tokens"
        verb = "is" if self.cut == 1 else "are"
        return (
            f"{self.cut:,} of {self.counted:,} {self.unit} ({self.cut / self.counted:.1%}) {verb} longer than "
            f"{self.max_tokens:,} tokens and {verb} cut; the longest has {self.longest:,}"
        )


class LearningRecord(_Trained):
    """How the training on saved labels went."""

    kind: Kind
    labels: int
    """Labelled pairs that it learnt from."""
    cuts: Cuts | None = None
    """What was cut of them in the training."""


class Evidence(Record):
    """An estimate, by views that do not come from a start, of its student's gain on held-out pairs without labels."""

    gain: float
    """Estimated gain of the student over the start in rank correlation x100 with what all views measure."""
    low: float
    high: float
    """Ends of its 95 % bootstrap interval."""
    pairs: int
    views: tuple[str, ...]


class TrainingRecord(LearningRecord):
    """How the training of a student went."""

    cycle: int
    member: str
    hard: int = 0
    """Rule-made pairs that it learnt from as well."""
    own_cuts: Cuts | None
    """What the encoder cuts at its own length."""
    outside: int
    """Labels outside [0, 1] that the BCE loss took."""
    negatives: str
    """Whether it took them raw or clamped."""
    merged: float
    """Share of the student in the saved weights; the rest is the start's."""
    agreement: float | None
    """Rank agreement x100 with its teachers on held-out pairs, if it was validated without labels."""
    evidence: Evidence | None = None
    """Whether a bi-encoder is better than its start, if it was validated without labels and there are views to ask."""
    flips: float | None = None
    """Hand-written flips that it tells from paraphrases, in percent."""

    def lines(self) -> list[HistoryLine]:
        """Return its part of the run's history."""
        place = {"cycle": self.cycle, "member": self.member, "kind": self.kind}
        return [HistoryLine.model_validate({**place, **moment.model_dump()}) for moment in self.history]


class StartEntry(Record):
    """A member's first bi-encoder."""

    source: str
    score: float | None
    flips: float | None = None
    """Hand-written flips that it tells from paraphrases, in percent."""


class StartRecord(RootModel[Mapping[str, StartEntry]]):
    """The members' first bi-encoders, by the members' names."""


class Chosen(Record):
    """One chosen model."""

    folder: str
    """Its place in the run folder."""
    cycle: int
    """The cycle that made it; 0 is the start itself."""
    step: int
    score: float | None
    """Validation score x100: on the dev set or, without one, label-free; None without validation."""
    helped: bool | None
    """Whether it is better than the member's start; None if that is not known."""
    agreement: float | None = None
    """Rank agreement x100 with its teachers on held-out pairs, if it was validated without labels."""
    evidence: Evidence | None = None
    """The evidence for `helped`, if views decided it; where the start was kept, the evidence for the last student."""
    merged: float | None = None
    """Share of the student in its weights, if the rest is its start's."""
    flips: float | None = None
    """Hand-written flips that it tells from paraphrases, in percent."""


class MemberResult(Record):
    """What a member started from and what it ended with."""

    source: str
    start_score: float | None
    bi: Chosen
    cross: Chosen | None
    start_flips: float | None = None
    """Hand-written flips that the start tells from paraphrases, in percent."""

    def chosen(self, kind: Kind) -> Chosen | None:
        """Return the chosen model of a kind."""
        return self.bi if kind == "bi" else self.cross


class ResultRecord(Record):
    """The result of a finished run."""

    metric: str | None
    """What the scores are: the dev set's metric, or the label-free score; None without validation."""
    cycles: int
    """How many cycles were run: fewer than asked for if they stopped gaining anything."""
    members: Mapping[str, MemberResult]
    ensemble: Mapping[str, float]
    """Scores of the team's mean predictions: start, bi and cross; empty for a team of one or without validation."""
    helped: Mapping[str, bool | None]
    """For each kind, whether the members are better on average than their starts; None if that is not known."""
    summary: str
    notes: tuple[str, ...] = ()
