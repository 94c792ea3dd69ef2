"""What comes before the first labels of a run, and of a later cycle: the pairs, and the members' starts.

As in `distill.work`, each is a small immutable object that is called with the path of its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from trans_encoder.data import PairSet
from trans_encoder.distill.judges import Judge
from trans_encoder.distill.labels import PseudoLabels
from trans_encoder.encoders import BiEncoder, RankSharded, unit_vectors
from trans_encoder.encoders.directions import without_common_directions
from trans_encoder.errors import DataError, RunError
from trans_encoder.evaluation.probe import flip_accuracy
from trans_encoder.files import atomic_file, atomic_folder
from trans_encoder.ranks import is_first_rank, world_size
from trans_encoder.runs import StartEntry, StartRecord, scratch, write_record
from trans_encoder.teachers import ModelRef, Teacher, kept_in
from trans_encoder.teachers.checks import check_scores


class Miner(Protocol):
    """Finds pairs with the help of bi-encoders; the same ones find the same pairs. Small enough to be sent around."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Tell apart miners that find different pairs: their text and settings."""

    def __call__(self, encoders: Sequence[ModelRef], *, cycle: int) -> PairSet:
        """Return the pairs of a cycle."""


@dataclass(frozen=True)
class MineAgain:
    """Mine pairs for a later cycle into the run folder, without those held out for validation."""

    miner: Miner
    encoders: tuple[ModelRef, ...]
    cycle: int
    held_out: PairSet | None

    def __call__(self, path: Path) -> None:
        """Write the pairs."""
        pairs = self.miner(self.encoders, cycle=self.cycle)
        if self.held_out is not None:
            pairs = pairs.without(self.held_out)
        if len(pairs) < 2:
            raise RunError(
                f"cycle {self.cycle}: mining again gave {len(pairs)} pairs that are not held out, a cycle needs at "
                f"least 2; give more text, or train without remine"
            )
        pairs.save(path)


@dataclass(frozen=True)
class ScoreStarts:
    """Score the members' first bi-encoders."""

    starts: tuple[ModelRef, ...]
    judge: Judge | None

    def __call__(self, path: Path) -> None:
        """Write each start's score, or null without a judge."""
        starts = {start.name: self._entry(start) for start in self.starts}
        if is_first_rank():
            write_record(path, StartRecord(starts))

    def _entry(self, start: ModelRef) -> StartEntry:
        if self.judge is None:
            return StartEntry(source=start.source, score=None)
        try:
            score = self.judge(start)  # by reference: texts that are unknown to the model are refused
            return StartEntry(source=start.source, score=score, flips=flip_accuracy(start.load()))
        except DataError as error:
            raise RunError(f"start of {start.name}: {error}") from error


@dataclass(frozen=True)
class ScoreHeldOut:
    """Score the held-out pairs with the frozen teachers: once in a run, however many students they judge."""

    held_out: PairSet
    teachers: tuple[Teacher, ...]

    def __call__(self, path: Path) -> None:
        """Write one column for each teacher; there is no mean, because the members' part is not known yet."""
        # Ranks would write to one file.
        asked = [kept_in(scratch(path), each) if world_size() == 1 else each for each in self.teachers]
        columns = {teacher.name: RankSharded(teacher).score(self.held_out) for teacher in asked}
        for teacher in self.teachers:
            check_scores(columns[teacher.name], teacher=teacher, place="held-out pairs, ")
        if is_first_rank():
            no_mean = np.full(len(self.held_out), np.nan, dtype=np.float32)
            provenance = {"pairs": self.held_out.hash, "teachers": list(columns)}
            PseudoLabels(self.held_out, no_mean, columns, provenance).save(path)


@dataclass(frozen=True)
class Embed:
    """Embed each distinct sentence of the pairs, for in-batch distillation and for the model's own labels."""

    model: ModelRef
    pairs: Path

    def __call__(self, path: Path) -> None:
        """Write unit vectors."""
        pairs = PairSet.open(self.pairs)
        try:
            encoder = cast(BiEncoder, self.model.load_for(pairs))
        except DataError as error:
            raise RunError(f"embeddings of {self.model.name}: {error}") from error
        vectors = unit_vectors(encoder.encode(pairs.distinct().sentences))
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, vectors)


@dataclass(frozen=True)
class RemoveDirections:
    """Remove common directions from a start's embeddings, found on the texts of the pairs."""

    start: ModelRef
    pairs: Path
    count: int

    def __call__(self, path: Path) -> None:
        """Write the start with a module that removes them."""
        texts = PairSet.open(self.pairs).distinct().sentences
        cleared = without_common_directions(cast(BiEncoder, self.start.load()), texts, count=self.count)
        if is_first_rank():
            with atomic_folder(path) as temporary:
                cleared.save(temporary)
