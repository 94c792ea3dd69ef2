"""Notes of a result: what the user should know beyond the scores, from the records of the trainings."""

from collections.abc import Iterator, Sequence

from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import Vote, views_of
from trans_encoder.distill.selection import FEWEST_VIEWS, LEARNT
from trans_encoder.distill.team import Member, Team
from trans_encoder.runs import TrainingRecord


def training_notes(trainings: Sequence[TrainingRecord], *, remined: bool, later: int | None = None) -> list[str]:
    """Note what was sampled, mined again, cut, added, out of range or not learnt; trainings are in order of members.

    `later` is the number of pairs of later cycles, if the first learnt from some of them only.
    """
    # All members of a cycle learn from the same pairs and labels.
    shared = [one for one in trainings if one.member == trainings[0].member]
    first = next(one for one in shared if one.kind == "bi" and one.cycle == 1)
    again = [one for one in shared if remined and one.kind == "bi" and one.cycle > 1]
    clamped = {"clamp": "clamped them", "raw": "took them raw"}
    return [
        *([f"cycle 1 learnt from {first.labels:,} of {later:,} pairs (first_share)"] if later else []),
        *(f"cycle {one.cycle}: {one.labels:,} pairs were mined again" for one in again),
        # Once for all cycles that agree.
        *dict.fromkeys(f"{one.member}: {note}" for one in trainings for note in _cuts(one)),
        *(
            f"cycle {one.cycle}: the cross-encoders learnt {one.hard:,} rule-made pairs in addition to {one.labels:,}"
            for one in shared
            if one.hard
        ),
        *(
            f"cycle {one.cycle}: {one.outside:,} of {one.labels:,} labels for the {one.kind}-encoders were outside "
            f"[0, 1]; the BCE loss {clamped[one.negatives]}"
            for one in shared
            if one.outside
        ),
        *(
            f"cycle {one.cycle}: the {one.kind}-encoder of {one.member} has not learnt its teachers' order of pairs "
            f"(agreement {one.agreement:.2f} on held-out pairs, {LEARNT:g} wanted)"
            for one in trainings
            if one.agreement is not None and one.agreement < LEARNT
        ),
    ]


def _cuts(one: TrainingRecord) -> Iterator[str]:
    learnt, own = one.cuts, one.own_cuts
    if learnt is not None and learnt.cut:
        yield f"in the training of {learnt.kind}-encoders, {learnt}"
    if own is not None and own.cut and (learnt is None or own.max_tokens != learnt.max_tokens):
        yield f"wherever a {own.kind}-encoder scores, {own}"


def learnt_lengths(training: TrainingRecord) -> str:
    """Describe for a card what a trained model learnt from and what it cuts by itself."""
    learnt, own = training.cuts, training.own_cuts
    if learnt is None or own is None:
        return "not recorded"
    whole = f"{learnt.counted - learnt.cut:,} of {learnt.counted:,} {learnt.unit}"
    learnt_from = f"learnt from {learnt.unit} of up to {learnt.max_tokens:,} tokens ({whole} whole)"
    return f"{learnt_from}, cuts longer ones at {own.max_tokens:,}"


def can_judge(member: Member, judge: Judge | None) -> bool:
    """Return whether a judge may replace a member's start: with labels always, without them if the start knew none."""
    return judge is None or judge.has_labels or not member.supervised


def harm_notes(team: Team, judge: Judge | None, frozen: Sequence[Vote] = ()) -> list[str]:
    """Note for each start that may have been trained on labels who judges its students, if there is anyone."""
    unseen = (member for member in team if not can_judge(member, judge))
    return [_harm_note(member, [view.name for view in views_of(member, team, frozen)]) for member in unseen]


def _harm_note(member: Member, views: Sequence[str]) -> str:
    if len(views) >= FEWEST_VIEWS:
        return (
            f"{member.name} may have been trained on labels: its student is put in best/ if {' and '.join(views)} show "
            f"on held-out pairs that it is better, else the start is. Give a dev set to let that decide"
        )
    return (
        f"{member.name} may have been trained on labels, and harm to such a start cannot be seen without labels: its "
        f"bi-encoder is kept in best/ as it is. Add --teacher MODEL twice, for two encoders of other families that "
        f"teach and judge it, give a dev set to let that decide, or set supervised=false if there were no labels"
    )
