"""How commands read the user's own files: given columns, and bad lines an error, or skipped and counted."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trans_encoder.cli.options import Columns, SkipBad, as_text
from trans_encoder.errors import ConfigurationError

if TYPE_CHECKING:
    from trans_encoder.data import Corpus, PairSet, TestSet, Text

logger = logging.getLogger(__name__)

TextPath = Annotated[
    Path,
    typer.Option(metavar="PATH", help="Raw text: a file or folder of .txt, .md, JSONL, TSV, CSV or Parquet, .gz too."),
]
MixOption = Annotated[
    str | None,
    typer.Option(metavar="NEAR,MIDDLE,FAR,RANDOM,PARTS", help="Shares of the bands of mined pairs, such as 4,2,2,2,0."),
]


@dataclass(frozen=True)
class Reading:
    """Options of commands that read pairs."""

    columns: Columns = None
    skip_bad: SkipBad = False

    def pairs(self, path: str | Path, *, others: bool = False) -> "PairSet":
        """Read pairs, with `others` all other columns; scores, if any, are not looked at."""
        from trans_encoder.data import PairSet

        names = self._names()
        pairs = PairSet.read(path, columns=names and names[:2], scores=False, skip_bad=self.skip_bad, others=others)
        _say_what_was_skipped(pairs)
        return pairs.without_scores()

    def labels(self, path: str | Path, *, score_range: tuple[float, float] | None) -> "PairSet":
        """Read pairs with the scores that a student is to learn."""
        from trans_encoder.pipelines.learn import read_labels

        pairs = read_labels(path, score_range=score_range, columns=self._names(), skip_bad=self.skip_bad)
        _say_what_was_skipped(pairs)
        return pairs

    def test_set(self, path: str | Path) -> "TestSet":
        """Read labelled pairs."""
        from trans_encoder.data import TestSet

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


@dataclass(frozen=True)
class TextReading:
    """Options of commands that read raw text."""

    line: Annotated[
        Literal["sentence", "document", "wrapped"] | None,
        typer.Option(help="What a line of the text is, if its kind of file does not tell."),
    ] = None
    column: Annotated[
        str | None, typer.Option(metavar="NAME", callback=as_text, help="The column of the text, if it is not found.")
    ] = None
    language: Annotated[str | None, typer.Option(metavar="CODE", help="Helps to split sentences; en if not given.")] = (
        None
    )

    def read(self, path: Path, *, skip_bad: bool) -> "Text":
        """Read raw text and say what became of it."""
        from trans_encoder.data import Text

        language = self.language or "en"
        text = Text.read(path, line=self.line, column=self.column, language=language, skip_bad=skip_bad)
        logger.info("%s", text.report)
        return text


def read_corpus(path: Path, *, id_column: str | None, column: str | None, skip_bad: bool) -> "Corpus":
    """Read the rows of a file."""
    from trans_encoder.data import Corpus

    corpus = Corpus.read(path, id=id_column, column=column, skip_bad=skip_bad)
    _say_what_was_skipped(corpus)
    return corpus


def _say_what_was_skipped(read: "PairSet | Corpus") -> None:
    if read.report and read.report.bad:
        logger.warning("%s", read.report)
