"""`trans-encoder experiment`: the paper's tables and figures on your models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table as Sheet

from trans_encoder.cli.options import Assignments, DataDir, Json, read_settings
from trans_encoder.cli.output import print_result
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.paper.table import Table

_OPTIONS = ("models", "out", "data_dir", "scale", "preset", "seeds")
_OTHERS = {"name": "the experiment's NAME", "members": "--models", "seed": "--seeds (how many, from 42 on)"}


def experiment(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of those that --list names.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Explain the experiments and run none.")] = False,
    models: Annotated[
        list[str] | None,
        typer.Option(metavar="BI[=PLM]", help="A model; repeat for a team. Without it, the paper's own from the hub."),
    ] = None,
    data_dir: DataDir = None,
    scale: Annotated[
        str, typer.Option(metavar="full|smoke|FRACTION", help="Share of pairs and epochs; smoke only shows it runs.")
    ] = "full",
    preset: Annotated[
        Literal["paper", "paper-large", "small"], typer.Option(help="The paper's settings for each task, or small's.")
    ] = "paper",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds, if not the experiment's own number.")
    ] = None,
    assignments: Assignments = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Runs and tables; runs there are shared and reused.")] = Path(
        "experiments"
    ),
    json: Json = False,
) -> None:
    """Run one of the paper's tables or figures on your models and show the paper's figures beside yours.

    Stopped at any point, the same command continues; runs that another experiment made in the same folder are reused.

    Example: `trans-encoder experiment sts --models bi-a --models bi-b --data-dir data --scale 0.2 --preset small`
    """
    from trans_encoder.paper.experiment import experiment as run

    if list_all:
        _print_list(as_json=json)
        return
    if name is None:
        raise typer.BadParameter("give the NAME of an experiment; --list explains them")
    settings = read_settings(assignments, options=_OPTIONS, others=_OTHERS)
    with show_progress():
        table = run(name, models or [], out=out, data_dir=data_dir, scale=scale, preset=preset, seeds=seeds, **settings)
    print_result({**table.to_dict(), "out": str(out / name)}, as_json=json, shown=_sheet(table))


def _print_list(*, as_json: bool) -> None:
    from trans_encoder.paper.catalogue import STUDIES

    sheet = Sheet("name", "in the paper", "what it shows")
    for study in STUDIES.values():
        sheet.add_row(study.name, ", ".join(study.paper), study.shows)
    listed = [{"name": study.name, "paper": list(study.paper), "shows": study.shows} for study in STUDIES.values()]
    print_result({"experiments": listed}, as_json=as_json, shown=sheet)


def _sheet(table: "Table") -> Sheet:
    """Lay the table out without lines, each model above its rows, so that it fits a narrow terminal."""
    title = f"{table.study.name} ({', '.join(table.study.paper)})"
    sheet = Sheet(title=title, caption=table.caption, title_justify="left", caption_justify="left", box=None)
    sheet.padding = (0, 1, 0, 0)
    sheet.add_column("", overflow="fold")
    for heading in table.header[2:]:
        sheet.add_column(heading, justify="right", overflow="fold")
    above = None
    for model, label, *cells in table.body:
        if model != above:
            sheet.add_row()
            sheet.add_row(model, style="bold")
        above = model
        sheet.add_row(label, *cells)
    return sheet
