"""The options of commands that read raw text."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trans_encoder.cli.options import as_text

if TYPE_CHECKING:
    from trans_encoder.data import Text

logger = logging.getLogger(__name__)

TextPath = Annotated[
    Path,
    typer.Option(
        "--text", metavar="PATH", help="Raw text: a file or folder of .txt, .md, JSONL, TSV, CSV or Parquet, .gz too."
    ),
]
Line = Literal["sentence", "document", "wrapped"]
LineOption = Annotated[
    Line | None,
    typer.Option("--line", help="What a line of the text is, if its kind of file does not tell."),
]
ColumnOption = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", callback=as_text, help="The column of the text, if it is not found."),
]
Language = Annotated[
    str | None,
    typer.Option("--language", metavar="CODE", help="Helps to split sentences; en if not given."),
]
MixOption = Annotated[
    str | None,
    typer.Option(
        "--mix", metavar="NEAR,MIDDLE,FAR,RANDOM,PARTS", help="Shares of the bands of mined pairs, such as 4,2,2,2,0."
    ),
]


def read_text(path: Path, *, line: Line | None, column: str | None, language: str | None, skip_bad: bool) -> "Text":
    """Read raw text and say what became of it."""
    from trans_encoder.data import Text

    text = Text.read(path, line=line, column=column, language=language or "en", skip_bad=skip_bad)
    logger.info("%s", text.report)
    return text
