"""Labelling in shards: blocks of pairs that any free process labels, concatenated afterwards.

Shards are cut by the number of pairs alone, so that labels are the same whoever made them. Each is written as soon as
it is done; a stopped run makes those that are missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trans_encoder.data import PairSet, Scores
from trans_encoder.distill.team import ModelRef
from trans_encoder.encoders import Kind
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
class Sharded:
    """A teacher whose scores of all pairs are in shards."""

    teacher: ModelRef
    shards: tuple[LabelShard, ...]
    folder: Path

    @property
    def name(self) -> str:
        """The teacher's name."""
        return self.teacher.name

    @property
    def kind(self) -> Kind:
        """The teacher's kind."""
        return self.teacher.kind

    def fingerprint(self) -> dict[str, str]:
        """Tell the teacher apart from others."""
        return self.teacher.fingerprint()

    def score(self, _: PairSet) -> Scores:
        """Put the shards together."""
        return np.concatenate([shard.read(self.folder / shard.name) for shard in self.shards])
