"""Pseudo-labels: the scores that teachers give to unlabelled pairs, saved with their provenance (sections 2.2 to 2.4).

Labels are kept as the teachers gave them: raw cosines of bi-encoders, which may be negative, and probabilities of
cross-encoders. Weighting, filtering and anchoring are all `PseudoLabels -> PseudoLabels`. For BCE
a negative target has no finite optimum: `negatives` says whether it is clamped to 0 or taken raw, as in the paper's
presets, and the run reports how many there were.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.config import VIEWS, Scale
from trans_encoder.data import PairSet, Scores, check_varied
from trans_encoder.encoders import RankSharded
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.flips import KINDS, make_flips
from trans_encoder.files import atomic_file
from trans_encoder.runs import Stage, identity, scratch
from trans_encoder.teachers import Identified, ModelRef, Stored, Teacher, Vote, check_scores
from trans_encoder.teachers.scales import laid_on, mean_scores, pairs_to_ask

RESERVED = ("sentence1", "sentence2", "score")
"""Columns of a label file that no teacher may be called."""
_METADATA = b"trans_encoder"
_ROWS_IN_GROUP = 1 << 16


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


def _provenance(pairs: PairSet, *, teachers: Sequence[Teacher], cycle: int | None) -> dict[str, Any]:
    kinds = sorted({teacher.kind for teacher in teachers})
    return {
        "kind": kinds[0] if len(kinds) == 1 else "mixed",
        "teachers": [teacher.name for teacher in teachers],
        "fingerprints": {each.name: identity(each.fingerprint()) for each in teachers if isinstance(each, Identified)},
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


@dataclass(frozen=True)
class Consensus:
    """Several teachers as one: scores the mean of what they give, on one scale."""

    votes: tuple[Vote, ...]
    scale: Scale
    name = "consensus"
    kind = "consensus"
    needs_all_pairs = True  # ranks among some of the pairs are not those among all

    def score(self, pairs: PairSet) -> Scores:
        """Return the weighted mean of the teachers."""
        votes = [replace(vote, teacher=RankSharded(vote.teacher)) for vote in self.votes]
        return label(pairs, votes, scale=self.scale).scores


# Scores that are stored: shards of a labelling, and the columns of label files that are read instead of asking again.


SHARD_PAIRS = 1 << 16
"""Enough to keep most of what is gained by encoding a sentence once, and to load a model for."""


@dataclass(frozen=True)
class LabelShard:
    """Score some of the pairs with one teacher."""

    pairs: Path
    teacher: ModelRef
    start: int
    stop: int
    cycle: int

    @property
    def name(self) -> str:
        """Name of the shard's file."""
        return f"{self.teacher.name}-{self.start:012d}.parquet"

    def __call__(self, path: Path) -> None:
        """Write the scores, with checksums."""
        try:
            scores = self.teacher.score(PairSet.open(self.pairs).between(self.start, self.stop))
        except DataError as error:
            raise RunError(f"cycle {self.cycle}, labels of the {self.teacher.kind}-encoders: {error}") from error
        with atomic_file(path) as temporary:
            pq.write_table(pa.table({"score": scores}), temporary, write_page_checksum=True)

    def read(self, path: Path) -> Scores:
        """Return the scores; made again if they are not there or not whole."""
        try:
            scores = pq.read_table(path, page_checksum_verification=True)["score"].to_numpy()
            if len(scores) == self.stop - self.start:
                return np.asarray(scores, dtype=np.float32)
        except (OSError, KeyError, pa.ArrowException):
            pass
        self(path)
        return np.asarray(pq.read_table(path)["score"].to_numpy(), dtype=np.float32)


def cut(pairs: Path, teacher: ModelRef, *, count: int, cycle: int) -> Iterator[LabelShard]:
    """Cut the labelling of all pairs by one teacher into shards."""
    for start in range(0, count, SHARD_PAIRS):
        yield LabelShard(pairs, teacher, start, min(start + SHARD_PAIRS, count), cycle)


def parts(path: Path, shards: Sequence[LabelShard], *, root: Path) -> tuple[Stage, ...]:
    """Return the stages that make the shards of the labels at a path of a run folder."""
    folder = scratch(path).relative_to(root).as_posix()
    return tuple(Stage(f"{folder}/{shard.name}", {}, shard) for shard in shards)


@dataclass(frozen=True)
class Sharded(Stored):
    """A teacher whose scores of all pairs are in shards."""

    shards: tuple[LabelShard, ...]
    folder: Path

    def score(self, _: PairSet) -> Scores:
        """Concatenate the shards."""
        return np.concatenate([shard.read(self.folder / shard.name) for shard in self.shards])


@dataclass(frozen=True)
class Cosines(Stored):
    """A bi-encoder whose embeddings of the sentences of the very pairs are in a file, as unit vectors."""

    embeddings: Path
    needs_all_pairs = True

    def score(self, pairs: PairSet) -> Scores:
        """Return the cosine of each pair."""
        vectors = np.load(self.embeddings, mmap_mode="r")
        index = pairs.distinct().index
        scores = np.empty(len(pairs), dtype=np.float32)
        for start in range(0, len(pairs), SHARD_PAIRS):
            left, right = (vectors[index[start : start + SHARD_PAIRS, side]].astype(np.float32) for side in (0, 1))
            scores[start : start + SHARD_PAIRS] = np.einsum("ij,ij->i", left, right)
        return scores


@dataclass(frozen=True)
class Known(Stored):
    """A frozen teacher whose scores of the very pairs are in a label file: it is not asked again."""

    labels: Path
    kind = "scores"
    needs_all_pairs = True

    def score(self, pairs: PairSet) -> Scores:
        """Read the teacher's column."""
        return PseudoLabels.open(self.labels, pairs=pairs).by_teacher[self.name]


@dataclass(frozen=True)
class Cached(Stored):
    """A frozen teacher that is asked only about pairs for which no earlier label file has its score."""

    earlier: tuple[Path, ...]

    def score(self, pairs: PairSet) -> Scores:
        """Look scores up, and ask for those that are missing."""
        if not self.earlier or self.kind in VIEWS:  # these depend on word frequencies in all pairs, and are cheap
            return self.teacher.score(pairs)
        known = self._known()
        scores = np.array([known.get((first, second), np.nan) for first, second, _ in pairs.rows()], dtype=np.float32)
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            scores[missing] = self.teacher.score(pairs.take(missing))
        return scores

    def _known(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for path in self.earlier:
            labels = PseudoLabels.open(path)
            column = labels.by_teacher[self.name]
            texts = ((first, second) for first, second, _ in labels.pairs.rows())
            found |= {pair: score for pair, score in zip(texts, column.tolist(), strict=True) if not np.isnan(score)}
        return found
