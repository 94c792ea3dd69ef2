"""What commands print: results on standard output, everything else on standard error."""

import codecs
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table

from trans_encoder.ranks import is_first_rank

if TYPE_CHECKING:
    from trans_encoder.encoders import Cuts

logger = logging.getLogger(__name__)

Shown = str | Table | Sequence[str | Table]
"""What people read: lines as they are, tables laid out."""


def print_result(result: Mapping[str, Any], *, as_json: bool, shown: Shown) -> None:
    """Print one JSON object, made of whatever pydantic knows, or what people read; of several ranks the first does."""
    if not is_first_rank():
        return
    if as_json:
        typer.echo(json.dumps(to_jsonable_python(result), ensure_ascii=not is_unicode(sys.stdout)))
        return
    for part in [shown] if isinstance(shown, str | Table) else shown:
        # Scripts read this text as well: no wrapping, and no markup, since a path may contain brackets.
        if isinstance(part, str):
            typer.echo(part)
            continue
        if part.title:
            typer.echo(part.title)  # by rich it would be wrapped to the width of the table
            part.title = None
        Console(markup=False, highlight=False).print(part)


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream can take any character; on Windows a pipe or file has an older encoding."""
    return codecs.lookup(stream.encoding or "ascii").name.startswith("utf")


def accept_all_characters() -> None:
    """Let standard output and error put a question mark in the place of what their encodings lack."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not is_unicode(stream):
            stream.reconfigure(errors="replace")


def say_all_cuts(cuts: Mapping[str, "Cuts"]) -> None:
    """Say on standard error how many texts each of several models cut."""
    for model, cut in cuts.items():
        say_cuts(model, cut)


def say_cuts(model: str, cuts: "Cuts") -> None:
    """Say on standard error how many texts a model cut, if any."""
    if cuts.cut and is_first_rank():
        logger.warning("%s: %s", model, cuts)


def score_table(columns: Mapping[str, Mapping[str, float]], *, title: str, caption: str | None = None) -> Table:
    """Lay out the scores of models on test sets and on average, the longer list down the page."""
    tests = list(next(iter(columns.values())))
    models_down = len(columns) > len(tests)
    rows = columns if models_down else {test: {name: columns[name][test] for name in columns} for test in tests}
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("model" if models_down else "test set", overflow="fold")
    for heading in tests if models_down else columns:
        table.add_column(heading, justify="right", overflow="fold", min_width=len("12.34"))
    for label, scores in rows.items():
        if label == "average" and not models_down:
            table.add_section()
        table.add_row(label, *(f"{score:.2f}" for score in scores.values()))
    return table
