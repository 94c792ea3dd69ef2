"""Choosing among what the cycles made: the best model of all cycles is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from trans_encoder.distill.judges import LEARNT
from trans_encoder.distill.team import ModelRef


@dataclass(frozen=True)
class Candidate:
    """A model that may be chosen: the start (cycle 0) or what a cycle made."""

    model: ModelRef
    cycle: int
    step: int
    score: float | None
    agreement: float | None = None
    """With its teachers on held-out pairs, if it was judged without labels."""

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


def idle_cycles(candidates: Sequence[Candidate]) -> int:
    """Count the cycles since the last that gained anything: 0 if the last of them did."""
    return candidates[-1].cycle - choose(candidates).cycle
