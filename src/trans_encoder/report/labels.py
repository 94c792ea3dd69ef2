"""Statistics of a run's label files: distributions, agreement, and the pairs on which teacher and student differ.

Label files may hold millions of pairs. Scores are read one column at a time (four bytes a pair); texts only for the few
pairs that are shown.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import rankdata, spearmanr

from trans_encoder.data import Scores
from trans_encoder.evaluation.ensembles import mean_scores

Rows = npt.NDArray[np.int64]
_TEXTS = ["sentence1", "sentence2"]
_SAMPLE = 100_000  # pairs behind each rank correlation
_MOST_BINS = 64


@dataclass(frozen=True)
class LabelFile:
    """The labels made at one point of a run."""

    path: Path
    cycle: int
    kind: str

    @property
    def name(self) -> str:
        """Say which labels these are."""
        return f"cycle {self.cycle}, {self.kind}"

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What the file says about itself: its teachers, and its pairs by their hash."""
        metadata = pq.read_schema(self.path).metadata or {}
        return dict(json.loads(metadata.get(b"trans_encoder", b"{}")))

    @property
    def rows(self) -> int:
        """Return the number of pairs."""
        return int(pq.read_metadata(self.path).num_rows)

    @property
    def teachers(self) -> list[str]:
        """Return the names of all labellers: members and frozen teachers."""
        return list(self.provenance["teachers"])

    @property
    def members(self) -> list[str]:
        """Return the names of the members that made these labels."""
        frozen = self.provenance.get("frozen", ())
        return [name for name in self.teachers if name not in frozen]

    def opinion(self) -> Scores:
        """Return the mean of the members' own scores, without any weighting that went into the labels."""
        return mean_scores([self.column(member) for member in self.members])

    def same_pairs(self, other: "LabelFile") -> bool:
        """Return whether another file labels the same pairs in the same order."""
        return bool(self.provenance["pairs"] == other.provenance["pairs"])

    def column(self, name: str) -> Scores:
        """Read one column of scores."""
        return np.asarray(pq.read_table(self.path, columns=[name])[name].to_numpy(), dtype=np.float32)

    def texts(self, rows: Rows) -> list[tuple[str, str]]:
        """Return the sentences of the given rows, reading the file in pieces."""
        wanted = np.sort(rows)
        found: dict[int, tuple[str, str]] = {}
        first = 0
        for batch in pq.ParquetFile(self.path).iter_batches(batch_size=16_384, columns=_TEXTS):
            inside = wanted[(wanted >= first) & (wanted < first + len(batch))]
            taken = batch.take(pa.array(inside - first)).to_pydict()
            found |= zip(inside.tolist(), zip(*(taken[name] for name in _TEXTS), strict=True), strict=True)
            first += len(batch)
        return [found[row] for row in rows.tolist()]


@dataclass(frozen=True)
class Lesson:
    """Labels, and those of the same pairs that the students who learnt from them gave next."""

    teacher: LabelFile
    student: LabelFile

    def __str__(self) -> str:
        return f"cycle {self.teacher.cycle}: {self.teacher.kind} → {self.student.kind}"


def lessons(files: Sequence[LabelFile]) -> list[Lesson]:
    """Return who taught whom, in order of time, leaving out labels of other pairs than those before."""
    return [Lesson(teacher, student) for teacher, student in pairwise(files) if teacher.same_pairs(student)]


@dataclass(frozen=True)
class Distribution:
    """How one teacher's scores are spread at one point of a run."""

    labels: LabelFile
    teacher: str
    mean: float
    deviation: float
    density: list[float]


@dataclass(frozen=True)
class Agreement:
    """Spearman's rho between two sets of scores of the same pairs."""

    cycle: int
    between: str
    rho: float


@dataclass(frozen=True)
class Disagreement:
    """A pair that a student places otherwise among all pairs than the label it learnt from.

    Places are compared, not scores: cosines and probabilities have scales of their own, the method is about order.
    """

    stage: str
    """Who taught whom, and when."""
    member: str
    sentence1: str
    sentence2: str
    teacher: float
    student: float
    teacher_place: float
    """Share of all pairs below this one by the teacher's labels, in percent."""
    student_place: float

    @property
    def gap(self) -> float:
        """Return by how much the student places the pair higher, in percent of all pairs."""
        return self.student_place - self.teacher_place


def score_range(files: Sequence[LabelFile]) -> tuple[float, float]:
    """Return the lowest and the highest of all scores."""
    low, high = 1.0, 0.0
    for labels in files:
        for _, scores in _on_known_scales(labels):
            low, high = min(low, float(scores.min())), max(high, float(scores.max()))
    return low, high


def distributions(files: Sequence[LabelFile], *, low: float, high: float) -> list[Distribution]:
    """Return each teacher's distribution at each point, as densities over equal bins from `low` to `high`."""
    found = []
    for labels in files:
        for teacher, scores in _on_known_scales(labels):
            bins = int(np.clip(len(scores) ** 0.5, 12, _MOST_BINS))
            density, _ = np.histogram(scores, bins=bins, range=(low, high), density=True)
            found.append(Distribution(labels, teacher, float(scores.mean()), float(scores.std()), density.tolist()))
    return found


def _on_known_scales(labels: LabelFile) -> Iterator[tuple[str, Scores]]:
    """Yield the scores that are cosines or probabilities; other teachers may use any scale, and miss some pairs."""
    for teacher in labels.teachers:
        scores = labels.column(teacher)
        scores = scores[~np.isnan(scores)]
        if teacher in labels.members or (len(scores) > 0 and scores.min() >= -1 and scores.max() <= 1):
            yield teacher, scores


def kind_agreements(files: Sequence[LabelFile]) -> list[Agreement]:
    """Return how far bi and cross agree in each cycle, member by member."""
    return [
        Agreement(one.cycle, member, correlation(one.column(member), other.column(member)))
        for one, other in ((each.teacher, each.student) for each in lessons(files))
        if one.cycle == other.cycle
        for member in one.members
        if member in other.members
    ]


def member_agreements(files: Sequence[LabelFile]) -> list[Agreement]:
    """Return how far every two members agree in each cycle, kind by kind."""
    return [
        Agreement(
            labels.cycle, f"{one} and {other} ({labels.kind})", correlation(labels.column(one), labels.column(other))
        )
        for labels in files
        for one, other in combinations(labels.teachers, 2)
    ]


def stage_correlations(files: Sequence[LabelFile]) -> list[list[float | None]]:
    """Return Spearman's rho between the labels of every two points of a run; None where the pairs differ."""
    return [
        [correlation(one.column("score"), other.column("score")) if one.same_pairs(other) else None for other in files]
        for one in files
    ]


def correlation(first: Scores, second: Scores) -> float:
    """Return Spearman's rho of two columns, over a fixed sample where they are long."""
    scored = np.flatnonzero(~np.isnan(first) & ~np.isnan(second))
    rows = scored[sample_rows(len(scored), size=_SAMPLE)]
    return float(spearmanr(first[rows], second[rows]).statistic)


def sample_rows(rows: int, *, size: int) -> Rows:
    """Return at most `size` row numbers, the same ones for the same number of rows."""
    if rows <= size:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, size, replace=False))


def disagreements(files: Sequence[LabelFile], *, limit: int) -> list[Disagreement]:
    """Return the pairs on which students differ most from their labels: at most `limit`, shared by all trainings."""
    trainings = [(lesson, member) for lesson in lessons(files) for member in lesson.student.members]
    return [
        disagreement
        for lesson, member in trainings
        for disagreement in _widest(lesson, member=member, limit=max(1, limit // len(trainings)))
    ]


def _widest(lesson: Lesson, *, member: str, limit: int) -> list[Disagreement]:
    label, score = lesson.teacher.column("score"), lesson.student.column(member)
    label_place, score_place = _places(label), _places(score)
    distance = np.abs(score_place - label_place)
    top = np.argpartition(-distance, min(limit, len(distance) - 1))[:limit]
    rows = top[np.argsort(-distance[top], kind="stable")]
    return [
        Disagreement(
            stage=str(lesson),
            member=member,
            sentence1=sentence1,
            sentence2=sentence2,
            teacher=float(label[row]),
            student=float(score[row]),
            teacher_place=float(label_place[row]),
            student_place=float(score_place[row]),
        )
        for row, (sentence1, sentence2) in zip(rows, lesson.teacher.texts(rows), strict=True)
    ]


def _places(scores: Scores) -> npt.NDArray[np.float64]:
    """Return the share of pairs below each one, in percent; ties share their place."""
    return np.asarray((rankdata(scores) - 1) / max(1, len(scores) - 1) * 100)
