"""How commands read the user's own files: given columns, and bad lines an error, or skipped and counted."""

import logging
from dataclasses import dataclass
from pathlib import Path

from trans_encoder.data import Corpus, PairSet, TestSet
from trans_encoder.errors import ConfigurationError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """The options --columns and --skip-bad."""

    columns: str | None = None
    skip_bad: bool = False

    def pairs(self, path: str | Path, *, others: bool = False) -> PairSet:
        """Read pairs, with `others` all other columns; scores, if any, are not looked at."""
        names = self._names()
        pairs = PairSet.read(path, columns=names and names[:2], scores=False, skip_bad=self.skip_bad, others=others)
        _say_what_was_skipped(pairs)
        return pairs.without_scores()

    def labels(self, path: str | Path, *, score_range: tuple[float, float] | None) -> PairSet:
        """Read pairs with the scores that a student is to learn."""
        from trans_encoder.pipelines.learn import read_labels

        pairs = read_labels(path, score_range=score_range, columns=self._names(), skip_bad=self.skip_bad)
        _say_what_was_skipped(pairs)
        return pairs

    def test_set(self, path: str | Path) -> TestSet:
        """Read labelled pairs."""
        test = TestSet.read(path, columns=self._names(), skip_bad=self.skip_bad)
        _say_what_was_skipped(test.pairs)
        return test

    def _names(self) -> tuple[str, ...] | None:
        if self.columns is None:
            return None
        names = tuple(name.strip() for name in self.columns.split(","))
        if len(names) not in (2, 3) or not all(names):
            raise ConfigurationError(f"--columns {self.columns}: expected two or three names, a,b or a,b,score")
        return names


def read_corpus(path: Path, *, id_column: str | None, column: str | None, skip_bad: bool) -> Corpus:
    """Read the rows of a file."""
    corpus = Corpus.read(path, id=id_column, column=column, skip_bad=skip_bad)
    _say_what_was_skipped(corpus)
    return corpus


def _say_what_was_skipped(read: PairSet | Corpus) -> None:
    if read.report and read.report.bad:
        logger.warning("%s", read.report)
