"""Choosing checkpoints: a judge scores an encoder, and the best of all cycles is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trans_encoder.data.tasks import TestSet
from trans_encoder.distill.labels import Teacher, label
from trans_encoder.distill.team import ModelRef
from trans_encoder.evaluation.evaluate import measure


class Judge(Protocol):
    """Scores an encoder, higher is better; the same encoder always gets the same score."""

    @property
    def name(self) -> str:
        """What the score is called in results."""

    @property
    def fingerprint(self) -> str:
        """Tell apart judges that give different scores."""

    def __call__(self, encoder: Teacher) -> float:
        """Return the encoder's score."""

    def together(self, encoders: Sequence[Teacher]) -> float:
        """Return the score of several encoders' mean prediction."""


@dataclass(frozen=True)
class DevJudge:
    """Judges by a labelled dev set, as the paper does."""

    dev: TestSet

    @property
    def name(self) -> str:
        """The dev set's metric."""
        return self.dev.metric

    @property
    def fingerprint(self) -> str:
        """Metric and hash of the dev set."""
        return f"{self.dev.metric} {self.dev.pairs.hash}"

    def __call__(self, encoder: Teacher) -> float:
        """Return the encoder's score on the dev set."""
        return measure(encoder.score(self.dev.pairs), self.dev)

    def together(self, encoders: Sequence[Teacher]) -> float:
        """Return the score of the encoders' mean prediction."""
        return measure(label(self.dev.pairs, encoders).scores, self.dev)


@dataclass(frozen=True)
class Candidate:
    """A model that may be chosen: the start (cycle 0) or what a cycle made."""

    model: ModelRef
    cycle: int
    step: int
    score: float | None


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the best, the first of equals; without scores the last."""
    best = candidates[0]
    for candidate in candidates[1:]:
        if candidate.score is None or best.score is None or candidate.score > best.score:
            best = candidate
    return best
