"""What commands print: results on standard output, everything else on standard error."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from trans_encoder.ranks import is_first_rank

if TYPE_CHECKING:
    from trans_encoder.encoders import Cuts

logger = logging.getLogger(__name__)

Shown = str | Table | Sequence[str | Table]
"""What people read: lines as they are, tables laid out."""


def print_result(result: Mapping[str, Any], *, as_json: bool, shown: Shown) -> None:
    """Print one JSON object, or what people read; of several ranks the first does."""
    if not is_first_rank():
        return
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    for part in [shown] if isinstance(shown, str | Table) else shown:
        # Scripts read this text as well: no wrapping, and no markup, since a path may contain brackets.
        typer.echo(part) if isinstance(part, str) else Console(markup=False, highlight=False).print(part)


def say_cuts(model: str, cuts: "Cuts") -> None:
    """Say on standard error how many texts a model cut, if any."""
    if cuts.cut and is_first_rank():
        logger.warning("%s: %s", model, cuts)


def score_table(columns: Mapping[str, Mapping[str, float]], *, title: str, caption: str | None = None) -> Table:
    """Lay out scores: a row for each test set and the average, a column for each model."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("test set")
    for name in columns:
        table.add_column(name, justify="right")
    rows = list(next(iter(columns.values())))
    for row in rows:
        if row == "average":
            table.add_section()
        table.add_row(row, *(f"{scores[row]:.2f}" for scores in columns.values()))
    return table
