"""Judges rate encoders, with labels or without, and decide whether a model is better than its start.

Without labels, probes are scored: held-out pairs, the same lightly edited, and the wording that each pair shares. Words
are what white space separates, so that no language is assumed; a text of few words is edited letter by letter.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trans_encoder.config import RunConfig
from trans_encoder.data import PairSet, Scores, TestSet, joined, shared_wording, words_of
from trans_encoder.distill.labels import label
from trans_encoder.distill.selection import LEARNT, Verdict
from trans_encoder.distill.team import Member, Team, views_of
from trans_encoder.encoders import Kind, RankSharded
from trans_encoder.errors import DataError
from trans_encoder.evaluation.evaluate import measure
from trans_encoder.evaluation.metrics import spearman
from trans_encoder.runs import Chosen, Evidence
from trans_encoder.teachers import FEWEST_VIEWS, Teacher, Vote, weigh_views


class Comparison(NamedTuple):
    """What is known of a start and of the model that was kept in its place; of a team the means."""

    kind: Kind
    start: float | None
    """The judge's score of the start."""
    kept: float | None
    """The judge's score of the kept model."""
    agreement: float | None
    """Agreement of the kept model with its teachers, if there are no labels."""
    supervised: bool
    """Whether the start may have been trained on labels."""


def has_learnt(model: Chosen) -> bool:
    """Return whether a chosen model agrees with its teachers, as far as that was measured."""
    return model.agreement is None or model.agreement >= LEARNT


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
        """The pairs that the judge has scored."""

    def rate(self, scores: Scores) -> float:
        """Return the score of whatever gave these scores to the judge's pairs."""

    def compare(self, known: Comparison) -> Verdict:
        """Decide whether a model is better than the start, worse, or that it is not known."""

    def __call__(self, encoder: Teacher) -> float:
        """Return the encoder's score."""
        return self.rate(RankSharded(encoder).score(self.pairs))

    def together(self, encoders: Sequence[Teacher]) -> float:
        """Return the score of several encoders' mean prediction."""
        return self.rate(_mean_scores(encoders, self.pairs))

    def agreement(
        self, student: Teacher, teachers: Sequence[Teacher], *, starts: Sequence[Teacher] = (), anchor: float = 0.0
    ) -> float | None:
        """Return how far a student has learnt the order of pairs that it was taught, x100.

        That is the order of its teachers, with `anchor` of the starts' mixed in. None if its score tells enough.
        """

    def weigh(self, student: Teacher, start: Teacher, views: Sequence[Teacher]) -> Evidence | None:
        """Estimate a student's gain by views that do not come from its start; None if its score tells enough."""

    def floor(self) -> float | None:
        """Return the score of shared wording alone, if only a start below it can be compared with its student."""


@dataclass(frozen=True)
class DevJudge(Judge):
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

    def agreement(self, *_: Any, **__: Any) -> None:
        """Return None: labels tell more than agreement with the teachers."""

    def weigh(self, *_: Any, **__: Any) -> None:
        """Return None: labels tell more than other views."""

    def floor(self) -> None:
        """Return None: labels compare a model with any start."""

    def compare(self, known: Comparison) -> Verdict:
        """Compare the dev scores."""
        if known.kept is None or known.start is None:
            return Verdict.NOT_KNOWN
        return Verdict.BETTER if known.kept > known.start else Verdict.NOT_BETTER


def agreement(scores: Scores, reference: Scores) -> float:
    """Return Spearman's rho x100; 0 if either scores all pairs alike."""
    return spearman(scores, reference) if np.ptp(scores) > 0 and np.ptp(reference) > 0 else 0.0


def light_edit(text: str, *, random: np.random.Generator) -> str:
    """Drop one word or swap two neighbours; a text of one word stays."""
    words = words_of(text)
    if len(words) < 2:
        return text
    place = int(random.integers(len(words) - 1))
    if random.random() < 0.5:
        del words[place]
    else:
        words[place], words[place + 1] = words[place + 1], words[place]
    return joined(words, like=text)


WEIGHTS = {
    # Follows the dev score in trainings, across encoders, and from bi- to cross-encoders.
    "overlap": 0.5,
    # Tells good encoders from better ones; alone it would also praise one that has learnt nothing.
    "edit": 0.5,
}
"""The signals that make the label-free score: only such as the start has too and both kinds have alike."""


@dataclass(frozen=True, eq=False)
class LabelFreeJudge(Judge):
    """Judges by signals that need no labels, on pairs that were held out of the training.

    They tell a start from what a cycle made of it, but not one checkpoint of a training from the next: there, the last
    one is a better choice than the best by any of them (docs/selection.md).
    """

    probes: PairSet
    """The held-out pairs, then the same pairs with a lightly edited first sentence."""
    overlap: Scores
    """The wording that each of these shares."""
    name = "label-free score"
    basis = "on held-out pairs"
    has_labels = False

    @classmethod
    def of(cls, held_out: PairSet, *, seed: int) -> "LabelFreeJudge":
        """Make the judge of held-out pairs; the same seed gives the same edits."""
        random = np.random.default_rng(seed)
        first, second = held_out.sentence1.to_pylist(), held_out.sentence2.to_pylist()
        if len(held_out) < 2:
            raise DataError(
                f"{len(held_out)} held-out pairs are too few to validate by: too few of the pairs differ; "
                "give more pairs, a dev set, or selection=last"
            )
        left, right = first + [light_edit(text, random=random) for text in first], second * 2
        return cls(PairSet.from_lists(left, right), shared_wording(left, right, known=[*first, *second]))

    @property
    def fingerprint(self) -> str:
        """Hash of the probes and of the weights."""
        return f"label-free {hashlib.sha256((self.pairs.hash + json.dumps(WEIGHTS)).encode()).hexdigest()}"

    @property
    def pairs(self) -> PairSet:
        """The probes: held-out pairs, and the same lightly edited."""
        return self.probes

    @property
    def held_out(self) -> PairSet:
        """The held-out pairs alone."""
        return self.probes.between(0, len(self.probes) // 2)

    def rate(self, scores: Scores) -> float:
        """Return the weighted mean of the signals.

        They are the rank agreements with shared wording, a poor judge whose errors no training shares, and with itself
        under a light edit: a score that one upsets rests on noise.
        """
        count = len(scores) // 2
        overlap, edit = (agreement(scores[:count], other) for other in (self.overlap[:count], scores[count:]))
        return WEIGHTS["overlap"] * overlap + WEIGHTS["edit"] * edit

    def agreement(
        self, student: Teacher, teachers: Sequence[Teacher], *, starts: Sequence[Teacher] = (), anchor: float = 0.0
    ) -> float | None:
        """Return the rank agreement of the student with what it would be taught of the held-out pairs."""
        held_out = self.held_out
        own, labels = RankSharded(student).score(held_out), _mean_scores(teachers, held_out)
        if anchor:
            labels = (1 - anchor) * labels + anchor * _mean_scores(starts, held_out)
        return agreement(own, labels)

    def weigh(self, student: Teacher, start: Teacher, views: Sequence[Teacher]) -> Evidence | None:
        """Compare a student with its start by views of the held-out pairs; None with too few of them."""
        if len(views) < FEWEST_VIEWS:
            return None
        before, after, *others = (RankSharded(each).score(self.held_out) for each in (start, student, *views))
        return weigh_views(before, after, dict(zip((view.name for view in views), others, strict=True)))

    def floor(self) -> float:
        """Return the label-free score of TF-IDF weights of letter groups."""
        return self.rate(self.overlap)

    def compare(self, known: Comparison) -> Verdict:
        """Compare with a start that is below the lexical floor; of any other nothing is known (docs/selection.md).

        Only a cross-encoder that has not learnt is worse than any start.
        """
        if known.kept is None or known.start is None:
            return Verdict.NOT_KNOWN
        learnt = known.agreement is not None and known.agreement >= LEARNT
        if known.kind == "cross" and known.agreement is not None and not learnt:
            return Verdict.NOT_BETTER
        if known.supervised or known.start >= self.floor():
            return Verdict.NOT_KNOWN
        if known.kind == "cross":
            return Verdict.BETTER if learnt else Verdict.NOT_BETTER
        return Verdict.BETTER if known.kept > known.start else Verdict.NOT_BETTER


def _mean_scores(encoders: Sequence[Teacher], pairs: PairSet) -> Scores:
    return label(pairs, list(map(RankSharded, encoders))).scores


class Judged(NamedTuple):
    """The judge of a run, if there is one, and the pairs that are left to train on."""

    training: PairSet
    held_out: PairSet | None
    judge: Judge | None


def choose_judge(config: RunConfig, pairs: PairSet, given: Judge | None) -> Judged:
    """Take the judge that was given, else hold out pairs for one without labels, if the configuration wants one."""
    if given is not None or config.selection != "label-free":
        return Judged(pairs, None, given)
    training, held_out = hold_out(pairs, seed=config.seed, views=bool(config.teachers))
    return Judged(training, held_out, LabelFreeJudge.of(held_out, seed=config.seed))


_MOST_HELD_OUT, _FEWEST_HELD_OUT, _LARGEST_SHARE = 256, 32, 4
_MOST_WITH_VIEWS = 512  # other views judge by an interval, which more pairs make narrower
_FEWEST_TRAINED = 2


class Split(NamedTuple):
    """Pairs to train on and pairs to validate with."""

    training: PairSet
    held_out: PairSet


def hold_out(pairs: PairSet, *, seed: int, views: bool = False) -> Split:
    """Take pairs out of the training: one in twenty, from 32 to 256 of them, but never more than a quarter.

    Where there are other views to judge by, one in ten, up to 512.
    """
    share, most = (10, _MOST_WITH_VIEWS) if views else (20, _MOST_HELD_OUT)
    wanted = min(most, max(_FEWEST_HELD_OUT, len(pairs) // share))
    number = min(wanted, len(pairs) // _LARGEST_SHARE)
    held_out = pairs.sample(number, seed=seed)
    training = pairs.without(held_out)
    if len(training) < _FEWEST_TRAINED:
        raise DataError(
            f"of {len(pairs):,} pairs {len(training):,} are left to train on once {number:,} and their duplicates are "
            "held out to judge by, so most of them are the same pair; give more different pairs, a dev set, or "
            "selection=last"
        )
    return Split(training, held_out)


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
