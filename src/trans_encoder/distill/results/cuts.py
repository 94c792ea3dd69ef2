"""How many texts a run truncated, from the records of its trainings."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from trans_encoder.distill.team import Team
from trans_encoder.encoders import Cuts, Kind
from trans_encoder.runs import CutsRecord, Layout, TrainingRecord, read_record, training_record


def cut_notes(layout: Layout, team: Team, *, cycles: int, kinds: Sequence[Kind]) -> list[str]:
    """Say how many inputs were cut in training and by the models themselves, once for all cycles that agree."""
    notes = [
        f"{member.name}: {note}"
        for member in team
        for kind in kinds
        for cycle in range(1, cycles + 1)
        for note in _notes(layout.student(cycle, member.name, kind))
    ]
    return list(dict.fromkeys(notes))


def learnt_lengths(model: Path) -> str:
    """Describe for a card what a trained model learnt from and what it cuts by itself."""
    learnt, own = _cuts(model)
    if learnt is None or own is None:
        return "not recorded"
    whole = f"{learnt.counted - learnt.cut:,} of {learnt.counted:,} {learnt.unit}"
    learnt_from = f"learnt from {learnt.unit} of up to {learnt.max_tokens:,} tokens ({whole} whole)"
    return f"{learnt_from}, cuts longer ones at {own.max_tokens:,}"


def _notes(model: Path) -> Iterator[str]:
    learnt, own = _cuts(model)
    if learnt is not None and learnt.cut:
        yield f"in the training of {learnt.kind}-encoders, {learnt}"
    if own is not None and own.cut and (learnt is None or own.max_tokens != learnt.max_tokens):
        yield f"wherever a {own.kind}-encoder scores, {own}"


def _cuts(model: Path) -> tuple[Cuts | None, Cuts | None]:
    """Return what was cut in the training of a model, and what the model itself cuts."""
    training = read_record(TrainingRecord, training_record(model))
    return _counts(training.cuts), _counts(training.own_cuts)


def _counts(record: CutsRecord | None) -> Cuts | None:
    return Cuts(**record.model_dump()) if record else None
