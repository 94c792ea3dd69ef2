"""Pseudo-labels: the scores that teachers give to unlabelled pairs, saved with their provenance (sections 2.2 to 2.4).

Labels are kept as the teachers gave them: raw cosines of bi-encoders, which may be negative, and probabilities of
cross-encoders. Weighting, filtering and anchoring are all `PseudoLabels -> PseudoLabels`. For BCE
a negative target has no finite optimum: `negatives` says whether it is clamped to 0 or taken raw, as in the paper's
presets, and the run reports how many there were.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.config import Scale
from trans_encoder.data import PairSet, Scores
from trans_encoder.data.screening import ROUNDING
from trans_encoder.distill.labels.scales import laid_on, mean_scores, pairs_to_ask
from trans_encoder.encoders import Scorer
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.flips import KINDS, make_flips
from trans_encoder.files import atomic_file

Teacher = Scorer
"""Anything that scores pairs: an encoder, or a checkpoint that is loaded when it is used."""

RESERVED = ("sentence1", "sentence2", "score")
"""Columns of a label file that no teacher may be called."""

_METADATA = b"trans_encoder"
_ROWS_IN_GROUP = 1 << 16
_CONSTANT = 1e-6  # scores that differ by no more than this are all alike
_RANGES: dict[str, tuple[float, float]] = {"bi": (-1.0, 1.0), "cross": (0.0, 1.0)}


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Pairs with the mean score of their teachers, each teacher's own scores, and where they came from."""

    pairs: PairSet
    scores: Scores
    by_teacher: Mapping[str, Scores]
    provenance: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def labelled(self) -> PairSet:
        """The pairs with their labels: what a student learns from."""
        return self.pairs.with_scores(self.scores)

    @property
    def outside_unit(self) -> int:
        """How many labels are outside [0, 1], such as negative cosines."""
        return int(np.count_nonzero((self.scores < 0) | (self.scores > 1)))

    def save(self, path: Path) -> None:
        """Write texts, mean score and one column for each teacher as Parquet, with the provenance in its metadata."""
        columns = {"sentence1": self.pairs.sentence1, "sentence2": self.pairs.sentence2, "score": self.scores}
        table = pa.table(columns | dict(self.by_teacher))
        metadata = {_METADATA: json.dumps(self.provenance, ensure_ascii=False, sort_keys=True).encode()}
        with atomic_file(path) as temporary:
            pq.write_table(
                table.replace_schema_metadata(metadata), temporary, row_group_size=_ROWS_IN_GROUP, compression="zstd"
            )

    @classmethod
    def open(cls, path: Path, *, pairs: PairSet | None = None) -> Self:
        """Open saved labels; with the `pairs` they were made from, the texts in the file are not read."""
        try:
            schema = pq.read_schema(path)
            provenance = json.loads((schema.metadata or {})[_METADATA])
            numbers = [name for name in schema.names if name not in RESERVED[:2]]
            known = pairs is not None and pairs.hash == provenance["pairs"]
            table = pq.read_table(path, columns=numbers if known else None, memory_map=True)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path} is not a label file of trans-encoder ({error}); make the labels again") from error
        scores = {name: table[name].to_numpy().astype(np.float32, copy=False) for name in numbers}
        texts = pairs if pairs is not None and known else PairSet.from_table(table.select(RESERVED[:2]))
        return cls(texts, scores.pop("score"), scores, provenance)


@dataclass(frozen=True)
class Vote:
    """A teacher's part in the labels: how much it counts, and which share of the pairs it is asked about."""

    teacher: Teacher
    weight: float = 1.0
    ask: float = 1.0


def label(
    pairs: PairSet, teachers: Sequence[Teacher | Vote], *, cycle: int | None = None, scale: Scale = "none"
) -> PseudoLabels:
    """Label pairs with the mean of their teachers' scores (section 2.4), asking one teacher after the other.

    The mean is the paper's plain one unless teachers have weights or a scale is given. A teacher that is asked about a
    share of the pairs comes last, and is asked about those that the others disagree on most.
    """
    votes = [each if isinstance(each, Vote) else Vote(each) for each in teachers]
    _check_teachers([vote.teacher for vote in votes])
    check_varied(pairs)
    pairs = pairs if pairs.scores is None else pairs.without_scores()
    place = "" if cycle is None else f"cycle {cycle}, "
    by_teacher: dict[str, Scores] = {}
    for vote in sorted(votes, key=lambda vote: vote.ask < 1):
        by_teacher[vote.teacher.name] = _scored(vote, pairs, beside=by_teacher, place=place)
    by_teacher = {vote.teacher.name: by_teacher[vote.teacher.name] for vote in votes}
    weights = {vote.teacher.name: vote.weight for vote in votes}
    labels = mean_scores(by_teacher, scale=scale, weights=weights)
    provenance = _provenance(pairs, teachers=[vote.teacher for vote in votes], cycle=cycle)
    if scale != "none" or set(weights.values()) != {1.0}:
        provenance |= {"scale": scale, "weights": weights}
    return PseudoLabels(pairs, labels, by_teacher, provenance)


def _scored(vote: Vote, pairs: PairSet, *, beside: Mapping[str, Scores], place: str) -> Scores:
    """Ask a teacher about its share of the pairs; the others have no score (NaN)."""
    teacher = vote.teacher
    if vote.ask == 1 or not beside:
        scores = teacher.score(pairs)
        check_scores(scores, teacher=teacher, place=place)
        return scores
    rows = pairs_to_ask(beside, share=vote.ask)
    asked = teacher.score(pairs.take(rows))
    check_scores(asked, teacher=teacher, place=place)
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    scores[rows] = asked
    return scores


def on_scale_of(labels: PseudoLabels, own: Scores) -> PseudoLabels:
    """Map labels to a student's own scale: the scores that its start gave to the same pairs."""
    return replace(labels, scores=laid_on(labels.scores, own, scale=labels.provenance.get("scale", "none")))


def agreed(labels: PseudoLabels, *, share: float) -> PseudoLabels:
    """Keep the share of the pairs on which the teachers agree most; with one teacher all of them."""
    if share == 1 or len(labels.by_teacher) == 1:
        return labels
    rows = pairs_to_ask(labels.by_teacher, share=1 - share)
    kept = np.setdiff1d(np.arange(len(labels)), rows)
    by_teacher = {name: scores[kept] for name, scores in labels.by_teacher.items()}
    provenance = {**labels.provenance, "kept": len(kept)}
    return PseudoLabels(labels.pairs.take(kept), labels.scores[kept], by_teacher, provenance)


def anchored(labels: PseudoLabels, start: PseudoLabels, *, weight: float) -> PseudoLabels:
    """Mix the start's own scores into the labels: `weight` of the start, the rest of the teachers."""
    if labels.pairs.hash != start.pairs.hash:
        raise RunError("labels can only be anchored to the start's labels of the same pairs, but the pairs differ")
    if weight == 0:
        return labels
    scores = ((1 - weight) * labels.scores.astype(np.float64) + weight * start.scores).astype(np.float32)
    return replace(labels, scores=scores, provenance={**labels.provenance, "anchor": weight})


_REMEDIES: dict[str, str] = {
    "bi": "The encoder has collapsed, or the pairs are all alike: start from another bi-encoder, check its pooling, "
    "lower bi.learning_rate, or give more varied pairs",
    "cross": "The encoder has collapsed: lower cross.learning_rate, train for more epochs, or give more varied pairs",
}


@runtime_checkable
class _Identified(Protocol):
    """A teacher that can be told apart from another of the same name."""

    def fingerprint(self) -> Mapping[str, str]: ...


def fingerprint_of(teacher: Teacher) -> Mapping[str, str]:
    """Return what identifies a teacher beyond its name, if it can be identified."""
    return teacher.fingerprint() if isinstance(teacher, _Identified) else {}


def _digest(fingerprint: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()


def _provenance(pairs: PairSet, *, teachers: Sequence[Teacher], cycle: int | None) -> dict[str, Any]:
    kinds = sorted({teacher.kind for teacher in teachers})
    return {
        "kind": kinds[0] if len(kinds) == 1 else "mixed",
        "teachers": [teacher.name for teacher in teachers],
        "fingerprints": {each.name: _digest(each.fingerprint()) for each in teachers if isinstance(each, _Identified)},
        "cycle": cycle,
        "pairs": pairs.hash,
        "package": version("trans-encoder"),
    }


def _check_teachers(teachers: Sequence[Teacher]) -> None:
    names = [teacher.name for teacher in teachers]
    if not names:
        raise DataError("no teacher given; labels need at least one encoder")
    if len(set(names)) < len(names) or set(names) & set(RESERVED):
        raise DataError(
            f"teachers are called {', '.join(names)}; names must differ and none may be {', '.join(RESERVED)}"
        )


def check_varied(pairs: PairSet) -> None:
    """Refuse pairs that are all the same: their labels are, too, and nothing can be learnt from equal labels."""
    if pairs.all_alike:
        raise DataError(f"all {len(pairs):,} pairs have the same two texts; give pairs that differ")


def check_scores(scores: Scores, *, teacher: Teacher, place: str) -> None:
    """Refuse scores that are not numbers, outside a teacher's range, or all alike."""
    if teacher.kind not in _RANGES:
        _check_plain(scores, teacher=teacher, place=place)
        return
    low, high = _RANGES[teacher.kind]
    who = f"{place}{teacher.kind}-encoder of {teacher.name}"
    bad = ~np.isfinite(scores)
    if bad.any():
        raise RunError(
            f"{who} gave {int(bad.sum()):,} of {len(scores):,} pairs a score that is not a number, the first at pair "
            f"{int(bad.argmax()) + 1}. Its weights have overflowed: lower {teacher.kind}.learning_rate or train in fp32"
        )
    wild = (scores < low - ROUNDING) | (scores > high + ROUNDING)
    if wild.any():
        raise RunError(
            f"{who} gave {int(wild.sum()):,} of {len(scores):,} pairs a score outside [{low:g}, {high:g}], "
            f"such as {float(scores[wild.argmax()]):g} at pair {int(wild.argmax()) + 1}. "
            f"Give a {teacher.kind}-encoder whose scores are {'cosines' if teacher.kind == 'bi' else 'probabilities'}"
        )
    if len(scores) > 1 and np.ptp(scores) <= _CONSTANT:
        raise RunError(f"{who} gave all {len(scores):,} pairs the score {scores[0]:g}. {_REMEDIES[teacher.kind]}")


def _check_plain(scores: Scores, *, teacher: Teacher, place: str) -> None:
    """Check the scores of a teacher that may use any scale; a file of scores may lack some (NaN)."""
    bad = np.isinf(scores) if teacher.kind == "scores" else ~np.isfinite(scores)
    if bad.any():
        raise RunError(
            f"{place}teacher {teacher.name} gave {int(bad.sum()):,} of {len(scores):,} pairs a score that is not a "
            f"finite number, the first at pair {int(bad.argmax()) + 1}"
        )
    known = scores[~np.isnan(scores)]
    if len(known) > 1 and np.ptp(known) <= _CONSTANT:
        raise RunError(
            f"{place}teacher {teacher.name} gave all {len(known):,} pairs the score {known[0]:g}, so nothing can be "
            f"learnt from it; leave it out, or give pairs that differ"
        )


_FLIP, _PARAPHRASE = 0.4, 0.95
"""Where on the teachers' labels the two kinds of pairs stand: quantiles."""


def with_hard_pairs(labelled: PairSet, *, share: float, seed: int) -> PairSet:
    """Return labelled pairs with flips and paraphrases of their sentences added: up to `share` of the pairs each."""
    count = round(share * len(labelled))
    if not count or labelled.scores is None:
        return labelled
    texts = [*labelled.sentence1.to_pylist(), *labelled.sentence2.to_pylist()]
    flips = make_flips(texts, limit=-(-count // len(KINDS)), seed=seed)
    if not flips:
        return labelled
    low, high = np.quantile(labelled.scores, (_FLIP, _PARAPHRASE))
    first = [case.text for case in flips] * 2
    second = [case.flip for case in flips] + [case.paraphrase for case in flips]
    scores = np.concatenate([labelled.scores, np.repeat([low, high], len(flips))])
    return labelled.without_scores().concat(PairSet.from_lists(first, second)).with_scores(scores)
