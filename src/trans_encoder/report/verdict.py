"""Whether it helped: before and after on every test set, and a sentence about it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trans_encoder.report.charts import Dot, DotChart, dot_chart
from trans_encoder.report.intervals import Interval, interval
from trans_encoder.report.outcomes import TEAM, ModelKey, Outcome
from trans_encoder.report.wording import LEVEL, change, number

KINDS = {"bi": "bi-encoder", "cross": "cross-encoder"}
METRICS = {"spearman": "Spearman's rho x100", "auc": "AUC x100"}


ANSWERS = {1: "yes", 0: "not clearly", -1: "no"}


@dataclass(frozen=True)
class Headline:
    """The answer to the question of whether it helped: 1 yes, 0 not clearly, -1 no."""

    verdict: int
    answer: str
    text: str


@dataclass(frozen=True)
class After:
    """The score of a chosen model and its gain over the start."""

    score: Interval
    gain: Interval


@dataclass(frozen=True)
class Row:
    """One test set: the start, and the chosen model of each kind."""

    name: str
    pairs: int
    start: Interval
    after: dict[str, After]


@dataclass(frozen=True)
class Comparison:
    """Before and after for one member, or for all members together."""

    member: str
    metric: str
    rows: list[Row]
    average: Row | None

    @property
    def summary(self) -> Row:
        """Return the row that sums it up: the average, or the only test set."""
        return self.average or self.rows[0]

    @property
    def where(self) -> str:
        """Say what the summary is about."""
        return f"On average over {len(self.rows)} test sets" if self.average else f"On {self.rows[0].name}"

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of models that were chosen."""
        return list(self.rows[0].after)

    @property
    def chart(self) -> DotChart:
        """Return the picture of all rows."""
        return dot_chart([(row.name, _dots(row)) for row in [*self.rows, *([self.average] if self.average else [])]])

    @property
    def together(self) -> bool:
        """Return whether this is about the mean score of all members."""
        return self.member == TEAM

    @property
    def headline(self) -> Headline:
        """Answer in plain words."""
        gains = {kind: after.gain for kind, after in self.summary.after.items()}
        answers = {kind: "no" if gain.is_none else ANSWERS[gain.verdict] for kind, gain in gains.items()}
        return Headline(gains[self.kinds[0]].verdict, f"{overall(answers)}.", " ".join(self._sentences()))

    def _sentences(self) -> Iterator[str]:
        plural = "s together" if self.together else ""
        for place, (kind, after) in enumerate(self.summary.after.items()):
            if after.gain.is_none:
                stay = f"stayed at {number(self.summary.start.value)}: the start itself was chosen"
                yield f"{self.where}, the {KINDS[kind]}{plural} {stay}."
                continue
            chance = "" if after.gain.verdict else "; that could be chance"
            gain = f"({change(after.gain)}{chance})"
            if place == 0:
                way = f"from {number(self.summary.start.value)} to {number(after.score.value)}"
                yield f"{self.where}, the {KINDS[kind]}{plural} went {way} {gain}."
            else:
                yield f"The {KINDS[kind]}{plural} reached {number(after.score.value)} {gain}."


def overall(answers: Mapping[str, str]) -> str:
    """Put the answers for each kind into one: the same for all, or one after the other."""
    if len(set(answers.values())) == 1:
        return next(iter(answers.values())).capitalize()
    return ", ".join(f"{answer} for the {KINDS[kind]}" for kind, answer in answers.items()).capitalize()


def compare(outcomes: Sequence[Outcome]) -> list[Comparison]:
    """Compare start and chosen models: all members together first, where there are several."""
    comparisons = []
    keys = [key for outcome in outcomes for key in outcome.scores if key.moment == "best"]
    members = sorted(dict.fromkeys(key.member for key in keys), key=lambda member: member != TEAM)
    for metric in dict.fromkeys(outcome.metric for outcome in outcomes):
        measured = [outcome for outcome in outcomes if outcome.metric == metric]
        for member in members:
            kinds = [kind for kind in KINDS if all(ModelKey("best", member, kind) in one.scores for one in measured)]
            if kinds and all(ModelKey("start", member, "bi") in one.scores for one in measured):
                rows = [_row([one], name=one.name, member=member, kinds=kinds) for one in measured]
                average = _row(measured, name="average", member=member, kinds=kinds) if len(rows) > 1 else None
                comparisons.append(Comparison(member, METRICS[metric], rows, average))
    return comparisons


def _row(outcomes: Sequence[Outcome], *, name: str, member: str, kinds: Sequence[str]) -> Row:
    """Average over test sets; their resamples are independent, so the replicates are averaged as they come."""
    start = ModelKey("start", member, "bi")

    def mean(key: ModelKey, *, over: ModelKey | None = None) -> Interval:
        values = [one.values[key] - (one.values[over] if over else 0.0) for one in outcomes]
        replicates = [one.replicates[key] - (one.replicates[over] if over else 0.0) for one in outcomes]
        return interval(float(np.mean(values)), np.mean(replicates, axis=0))

    chosen = {kind: ModelKey("best", member, kind) for kind in kinds}
    after = {kind: After(mean(key), mean(key, over=start)) for kind, key in chosen.items()}
    return Row(name, sum(len(one.gold) for one in outcomes), mean(start), after)


def _dots(row: Row) -> list[Dot]:
    dots = [_dot("start", row.start, f"{row.name}, start")]
    return dots + [_dot(kind, after.score, f"{row.name}, {KINDS[kind]} after") for kind, after in row.after.items()]


def _dot(role: str, score: Interval, text: str) -> Dot:
    note = f"{text}: {number(score.value)} ({LEVEL} interval {number(score.low)} to {number(score.high)})"
    return Dot(role, score.value, score.low, score.high, note)
