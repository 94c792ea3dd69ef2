"""What was read from a source, and what was wrong with the rest: nothing is dropped without being counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from trans_encoder.errors import DataError

SHOWN_PROBLEMS = 20
"""How many bad lines an error or a report names."""

_SAME = 3
"""From one more line than this on, a reason that they have in common is given once."""
_NO_SCORE = "no score, though other lines have one"

_Problem = tuple[int, int, str]


@dataclass(frozen=True)
class ReadReport:
    """How many lines of a source were read, how many were bad and what was wrong with the first of them."""

    source: str
    read: int
    bad: int
    blank: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.source}: {self.read:,} read"
        if self.bad:
            text += f", {self.bad:,} bad left out (first: {self.problems[0]})"
        if self.blank:
            text += f", {self.blank:,} blank lines ignored"
        return text


class Tally:
    """Counts lines while a source is read and keeps the first problems, in the order of the source."""

    def __init__(self, source: str) -> None:
        """Start counting for `source`, the path as the user gave it."""
        self.source = source
        self.read = self.bad = self.blank = self.unscored = 0
        self._file, self._file_index = source, 0
        self._problems: list[_Problem] = []
        self._unscored: list[_Problem] = []
        self._reasons: set[str] = set()
        """What was wrong with bad lines: at most two of the reasons, enough to know whether there is only one."""

    def start_file(self, name: str) -> None:
        """Name the file that the following lines belong to."""
        self._file, self._file_index = name, self._file_index + 1

    def reject(self, lines: Sequence[int], why: str) -> None:
        """Count bad lines that have one fault in common."""
        self.bad += len(lines)
        self._problems = self._first(self._problems, lines, why)
        self._add_reason(why)

    def note_unscored(self, lines: Sequence[int]) -> None:
        """Remember good lines without a score: they are bad if others have one."""
        self.unscored += len(lines)
        self._unscored = self._first(self._unscored, lines, _NO_SCORE)

    def reject_unscored(self) -> None:
        """Count the lines without a score as bad after all."""
        self.bad, self.read = self.bad + self.unscored, self.read - self.unscored
        self._problems = sorted(self._problems + self._unscored)[:SHOWN_PROBLEMS]
        if self._unscored:
            self._add_reason(_NO_SCORE)
        self.unscored, self._unscored = 0, []

    def _add_reason(self, why: str) -> None:
        if len(self._reasons) < 2:
            self._reasons.add(why)

    def _first(self, problems: list[_Problem], lines: Sequence[int], why: str) -> list[_Problem]:
        if len(problems) == SHOWN_PROBLEMS and (self._file_index, min(lines)) > problems[-1][:2]:
            return problems
        added = [(self._file_index, line, f"{self._file}:{line}: {why}") for line in sorted(lines)[:SHOWN_PROBLEMS]]
        return sorted(problems + added)[:SHOWN_PROBLEMS]

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong with the first bad lines."""
        return tuple(text for _, _, text in self._problems)

    def report(self, *, skip_bad: bool, remedy: str = "") -> ReadReport:
        """Return the counts; raise DataError for bad lines that were not to be skipped, or if nothing is left."""
        problems, listing = self.problems, self._listing()
        if self.bad and not skip_bad:
            leave = ", or leave them out with --skip-bad (skip_bad=True)" if self.read else ""
            raise DataError(
                f"{self.source}: {self.bad:,} of {self.read + self.bad:,} lines cannot be used:{listing}\n"
                f"Mend them{leave}.{remedy}"
            )
        if not self.read:
            found = f"all {self.bad:,} lines are bad:{listing}" if self.bad else "it has no lines of data"
            raise DataError(f"{self.source}: nothing could be read, {found}")
        return ReadReport(source=self.source, read=self.read, bad=self.bad, blank=self.blank, problems=problems)

    def _listing(self) -> str:
        """Name the first bad lines; where all have one reason, such as a column that is not there, the first alone."""
        problems = self.problems
        if len(self._reasons) == 1 and self.bad > _SAME:
            return f"\n  {problems[0]}\n  ... and the same in {self.bad - 1:,} more lines"
        listing = "".join(f"\n  {text}" for text in problems)
        return listing + (f"\n  ... and {self.bad - len(problems):,} more" if self.bad > len(problems) else "")
