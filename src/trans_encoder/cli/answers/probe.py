"""`trans-encoder probe`: whether a model sees that a small change made a text mean something else."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from trans_encoder.cli.options import Json, Loading, Model, SkipBad
from trans_encoder.cli.output import print_result
from trans_encoder.cli.reading import TextReading
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.evaluation.probe import ProbeResult


def probe(
    model: Model,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", metavar="PATH", help="Make cases of this text too: .txt, .md, JSONL, TSV, CSV, Parquet."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Cases of each kind to make of the text.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which texts are chosen and how they are changed.")] = 0,
    *,
    layout: TextReading,
    skip_bad: SkipBad = False,
    loading: Loading,
    json: Json = False,
) -> None:
    """Test whether a model tells opposites from paraphrases: negations, swapped roles, other numbers, names and units.

    Each case is a text with a paraphrase and a flip, which looks much the same but means something else. "right" is how
    often the paraphrase scores higher (chance is 50), "AUC" whether one threshold tells both apart.

    Example: `trans-encoder probe runs/sts/best/cross --text tickets.txt`
    """
    from trans_encoder.evaluation.probe import probe as run

    with show_progress():
        (encoder,) = loading.load([model])
        texts: list[str] = []
        if text is not None:
            texts = layout.read(text, skip_bad=skip_bad).sentences.to_pylist()
        result = run(encoder, texts=texts, limit=limit, seed=seed)
    print_result({**result.to_dict(), "model": model}, as_json=json, shown=_table(result))


def _table(result: "ProbeResult") -> Table:
    title = f"{result.model} ({result.kind}): paraphrases above flips"
    table = Table("flip", title=title, title_justify="left")
    for heading in ("cases", "right", "AUC", "paraphrases", "flips"):
        table.add_column(heading, justify="right")
    for source, figures in (("hand-written", result.written), ("your text", result.own)):
        if figures:
            table.add_section()
        for kind, figure in figures.items():
            means = (f"{value:.2f}" for value in (figure.paraphrase, figure.flip))
            name = f"{source}, {kind}" if kind != "all" else source
            table.add_row(name, str(figure.cases), f"{figure.right:.1f}", f"{figure.auc:.1f}", *means)
    return table
