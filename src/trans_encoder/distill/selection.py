"""Choosing checkpoints: a judge scores an encoder, with labels or without, and the best of all cycles is kept."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from trans_encoder.data.pairs import PairSet, Scores
from trans_encoder.data.tasks import TestSet
from trans_encoder.distill.exam import Answers, Exam, make_exam
from trans_encoder.distill.labels import Teacher, label
from trans_encoder.distill.signals import SIGNALS, parts_for, teacher_agreement
from trans_encoder.distill.team import ModelRef
from trans_encoder.encoders.sharing import Together
from trans_encoder.evaluation.evaluate import measure


class Judge(Protocol):
    """Scores an encoder, higher is better; the same encoder always gets the same score."""

    @property
    def name(self) -> str:
        """What the score is called in results."""

    @property
    def basis(self) -> str:
        """What the score was measured on."""

    @property
    def fingerprint(self) -> str:
        """Tell apart judges that give different scores."""

    @property
    def has_labels(self) -> bool:
        """Whether it knows labels: only then is the best checkpoint of a training kept, not the last."""

    @property
    def pairs(self) -> PairSet:
        """The pairs whose scores the judge wants to see."""

    def rate(self, scores: Scores) -> float:
        """Return the score of whatever gave these scores to the judge's pairs."""

    def __call__(self, encoder: Teacher) -> float:
        """Return the encoder's score."""

    def together(self, encoders: Sequence[Teacher]) -> float:
        """Return the score of several encoders' mean prediction."""

    def agreement(
        self, student: Teacher, teachers: Sequence[Teacher], *, starts: Sequence[Teacher], anchor: float
    ) -> float | None:
        """Return how far a student has learnt the order of pairs that it was taught, x100.

        That is the order of its teachers, with `anchor` of the starts' mixed in. None if its score tells enough.
        """


@dataclass(frozen=True)
class DevJudge:
    """Judges by a labelled dev set, as the paper does."""

    dev: TestSet
    basis = "on dev"
    has_labels = True

    @property
    def name(self) -> str:
        """The dev set's metric."""
        return self.dev.metric

    @property
    def fingerprint(self) -> str:
        """Metric and hash of the dev set."""
        return f"{self.dev.metric} {self.dev.pairs.hash}"

    @property
    def pairs(self) -> PairSet:
        """The pairs of the dev set."""
        return self.dev.pairs

    def rate(self, scores: Scores) -> float:
        """Return the dev set's metric of these scores."""
        return measure(scores, self.dev)

    def __call__(self, encoder: Teacher) -> float:
        """Return the encoder's score on the dev set."""
        return self.rate(Together(encoder).score(self.pairs))

    def together(self, encoders: Sequence[Teacher]) -> float:
        """Return the score of the encoders' mean prediction."""
        return self.rate(label(self.pairs, list(map(Together, encoders))).scores)

    def agreement(self, *_: Any, **__: Any) -> None:
        """Say nothing: who has labels need not guess from what was learnt."""


class Weight(NamedTuple):
    """How much a signal counts, and why."""

    weight: float
    reason: str


WEIGHTS: Mapping[str, Weight] = {
    "overlap": Weight(0.5, "follows the dev score in trainings, across encoders, and from bi- to cross-encoders"),
    "edit": Weight(0.5, "tells good encoders from better ones; alone it would also praise one that has learnt nothing"),
}
"""The signals that make the label-free score: only such as the start has too and both kinds have alike."""


@dataclass(frozen=True, eq=False)
class LabelFreeJudge:
    """Judges by signals that need no labels, on pairs that were held out of the training.

    They tell a start from what a cycle made of it, but not one checkpoint of a training from the next: there, the last
    one is a better choice than the best by any of them (docs/selection.md).
    """

    exam: Exam
    name = "label-free score"
    basis = "on held-out pairs"
    has_labels = False

    @classmethod
    def of(cls, held_out: PairSet, *, seed: int) -> "LabelFreeJudge":
        """Make the judge of held-out pairs."""
        return cls(make_exam(held_out, seed=seed, parts=parts_for(WEIGHTS)))

    @property
    def fingerprint(self) -> str:
        """Hash of the questions and of the weights."""
        weights = json.dumps({name: each.weight for name, each in WEIGHTS.items()})
        return f"label-free {hashlib.sha256((self.pairs.hash + weights).encode()).hexdigest()}"

    @property
    def pairs(self) -> PairSet:
        """The questions of the exam."""
        return self.exam.pairs

    def rate(self, scores: Scores) -> float:
        """Return the weighted mean of the signals."""
        answers = self.exam.answers(scores)
        return sum(each.weight * (SIGNALS[name].measure(answers) or 0.0) for name, each in WEIGHTS.items())

    def __call__(self, encoder: Teacher) -> float:
        """Return the encoder's label-free score."""
        return self.rate(Together(encoder).score(self.pairs))

    def together(self, encoders: Sequence[Teacher]) -> float:
        """Return the score of the encoders' mean prediction."""
        return self.rate(label(self.pairs, list(map(Together, encoders))).scores)

    def agreement(
        self, student: Teacher, teachers: Sequence[Teacher], *, starts: Sequence[Teacher] = (), anchor: float = 0.0
    ) -> float | None:
        """Return the rank agreement of the student with what it would be taught of the held-out pairs."""
        held_out = self.pairs.between(0, self.exam.parts["plain"])
        own, labels = Together(student).score(held_out), label(held_out, list(map(Together, teachers))).scores
        if anchor:
            labels = (1 - anchor) * labels + anchor * label(held_out, list(map(Together, starts))).scores
        return teacher_agreement(Answers(own, self.exam.overlap, teacher=labels))


LEARNT = 81.0
"""Agreement with its teachers on held-out pairs that a student must reach to count as better than the start."""

_MOST_HELD_OUT, _FEWEST_HELD_OUT, _LARGEST_SHARE = 256, 32, 4


class Split(NamedTuple):
    """Pairs to train on and pairs to judge by."""

    training: PairSet
    held_out: PairSet


def hold_out(pairs: PairSet, *, seed: int, number: int | None = None) -> Split:
    """Take pairs out of the training: one in twenty, from 32 to 256 of them, but never more than a quarter."""
    if number is None:
        wanted = min(_MOST_HELD_OUT, max(_FEWEST_HELD_OUT, len(pairs) // 20))
        number = min(wanted, len(pairs) // _LARGEST_SHARE)
    held_out = pairs.sample(number, seed=seed)
    return Split(pairs.without(held_out), held_out)


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
