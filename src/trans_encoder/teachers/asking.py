"""Asking a teacher that costs money or time: a few pairs at a time, and every answer is kept at once."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trans_encoder.data import PairSet, Scores
from trans_encoder.progress import progress
from trans_encoder.teachers.frozen import Teacher, fingerprint_of

ASKED_AT_ONCE = 256
"""Pairs in a question: what a failure in the middle costs."""


@dataclass(frozen=True)
class Stored:
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
class Asked(Stored):
    """A teacher whose answers are written to a file as they come, so that it is not asked about a pair again."""

    answers: Path

    def score(self, pairs: PairSet) -> Scores:
        """Look answers up, and ask for those that are missing."""
        known = self._known()
        scores = np.array([known.get((first, second), np.nan) for first, second, _ in pairs.rows()], dtype=np.float32)
        missing = np.flatnonzero(np.isnan(scores))
        self.answers.parent.mkdir(parents=True, exist_ok=True)
        with progress(f"asking {self.name}", total=len(missing)) as advance:
            for start in range(0, len(missing), ASKED_AT_ONCE):
                rows = missing[start : start + ASKED_AT_ONCE]
                asked = pairs.take(rows)
                scores[rows] = self.teacher.score(asked)
                self._keep(asked, scores[rows])
                advance(len(rows))
        return scores

    def _known(self) -> dict[tuple[str, str], float]:
        """Read the answers; a line that was being written when the process was killed is left out."""
        found: dict[tuple[str, str], float] = {}
        try:
            lines = self.answers.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return found
        for line in lines:
            try:
                first, second, score = json.loads(line)
            except ValueError:
                continue
            found[first, second] = score
        return found

    def _keep(self, pairs: PairSet, scores: Scores) -> None:
        rows = ((first, second, score) for (first, second, _), score in zip(pairs.rows(), scores.tolist(), strict=True))
        # Each line begins with its line break: half a line of a killed process then stays on its own.
        lines = "".join("\n" + json.dumps(row) for row in rows if np.isfinite(row[2]))
        with self.answers.open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def kept_in(folder: Path, teacher: Teacher) -> Teacher:
    """Return a function that may be asked in parts with its answers kept in a folder; any other teacher as it is."""
    if teacher.kind != "function" or getattr(teacher, "needs_all_pairs", False):
        return teacher
    return Asked(teacher, folder / f"{teacher.name}.jsonl")
