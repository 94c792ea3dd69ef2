"""Choice among the cycles' models, and when one counts as better than the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trans_encoder.runs import Evidence
from trans_encoder.teachers import ModelRef

LEARNT = 81.0
"""Agreement with its teachers on held-out pairs that a student must reach to count as better than the start."""
MARGIN = 0.0
"""The estimated gain must be beyond this, with its whole interval, for an answer; set in docs/selection.md."""


class Verdict(StrEnum):
    """Whether a model is better than the start."""

    BETTER = "better"
    NOT_BETTER = "not better"
    NOT_KNOWN = "not known"

    @property
    def helped(self) -> bool | None:
        """The verdict as results keep it: None if it is not known."""
        return None if self is Verdict.NOT_KNOWN else self is Verdict.BETTER


def verdict_of(evidence: Evidence | None, *, margin: float | None = None) -> Verdict:
    """Answer only where the whole interval is on one side, by more than a margin (MARGIN if not given)."""
    margin = MARGIN if margin is None else margin
    if evidence is not None and evidence.low > margin:
        return Verdict.BETTER
    if evidence is not None and evidence.high < -margin:
        return Verdict.NOT_BETTER
    return Verdict.NOT_KNOWN


@dataclass(frozen=True)
class Candidate:
    """A model that may be chosen: the start (cycle 0) or what a cycle made."""

    model: ModelRef
    cycle: int
    step: int
    score: float | None
    agreement: float | None = None
    """With its teachers on held-out pairs, if it was judged without labels."""
    evidence: Evidence | None = None
    """Of other views, if it was judged without labels and there are any."""
    flips: float | None = None
    """Hand-written flips that it tells from paraphrases, in percent."""
    merged: float | None = None
    """Share of the student in its weights, if the rest is its start's."""

    @property
    def has_learnt(self) -> bool:
        """Whether it may be better than the start at all."""
        return self.agreement is None or self.agreement >= LEARNT


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the best of those that have learnt, the first of equals; without scores the last."""
    best = candidates[0]
    for candidate in candidates[1:]:
        if candidate.has_learnt and (
            not best.has_learnt or candidate.score is None or best.score is None or candidate.score > best.score
        ):
            best = candidate
    return best


def choose_by_views(start: Candidate, trained: Sequence[Candidate], *, else_start: bool) -> Candidate:
    """Return the student that views show most clearly to be better; if there is none, `choose` one, or the start.

    Students that views show to be worse are never chosen.
    """
    verdicts = [(verdict_of(each.evidence), each) for each in trained]
    better = [each for verdict, each in verdicts if verdict is Verdict.BETTER]
    if better:
        return max(better, key=lambda each: each.evidence.low if each.evidence else 0.0)
    if else_start:
        return start
    return choose([start, *(each for verdict, each in verdicts if verdict is not Verdict.NOT_BETTER)])


def idle_cycles(candidates: Sequence[Candidate]) -> int:
    """Count the cycles since the last that gained anything: 0 if the last of them did."""
    return candidates[-1].cycle - choose(candidates).cycle
