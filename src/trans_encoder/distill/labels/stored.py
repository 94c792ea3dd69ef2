"""Stored scores: shards of a labelling, and the columns of label files that are read instead of asking a teacher again.

A shard is a block of pairs that any free process labels; shards are concatenated afterwards. They are cut by the
number of pairs alone, so that labels are the same whoever made them. Each is written as soon as it is done; a stopped
run makes those that are missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.config import VIEWS
from trans_encoder.data import PairSet, Scores
from trans_encoder.distill.labels.pseudo_labels import PseudoLabels, Teacher, fingerprint_of
from trans_encoder.distill.team import ModelRef
from trans_encoder.errors import DataError, RunError
from trans_encoder.files import atomic_file
from trans_encoder.runs import Stage, scratch

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
class _Stored:
    """A teacher whose scores are read where that is possible, under its own name."""

    teacher: Teacher

    @property
    def name(self) -> str:
        """The teacher's name."""
        return self.teacher.name

    @property
    def kind(self) -> str:
        """The teacher's kind."""
        return self.teacher.kind

    def fingerprint(self) -> Mapping[str, str]:
        """Tell the teacher apart from others."""
        return fingerprint_of(self.teacher)


@dataclass(frozen=True)
class Sharded(_Stored):
    """A teacher whose scores of all pairs are in shards."""

    shards: tuple[LabelShard, ...]
    folder: Path

    def score(self, _: PairSet) -> Scores:
        """Concatenate the shards."""
        return np.concatenate([shard.read(self.folder / shard.name) for shard in self.shards])


@dataclass(frozen=True)
class Cosines(_Stored):
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
class Known(_Stored):
    """A frozen teacher whose scores of the very pairs are in a label file: it is not asked again."""

    labels: Path
    kind = "scores"
    needs_all_pairs = True

    def score(self, pairs: PairSet) -> Scores:
        """Read the teacher's column."""
        return PseudoLabels.open(self.labels, pairs=pairs).by_teacher[self.name]


@dataclass(frozen=True)
class Cached(_Stored):
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
