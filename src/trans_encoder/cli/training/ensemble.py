"""`trans-encoder ensemble`: the team of a run as one model."""

from pathlib import Path
from typing import Annotated

import typer

from trans_encoder.cli.options import Json
from trans_encoder.cli.output import print_result
from trans_encoder.progress import show_progress


def ensemble(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the ensemble is saved.")],
    json: Json = False,
) -> None:
    """Save the team of a finished run, and the encoders among its teachers, as one ensemble.

    It scores better and takes as long as all of them together: use it for work in batches. `score`, `evaluate` and
    `label` take the folder like a model.

    Example: `trans-encoder ensemble runs/tickets --out runs/tickets-ensemble`
    """
    from trans_encoder.pipelines.ensemble import ensemble_run

    with show_progress():
        saved = ensemble_run(run, out=out)
    models = {part.folder.name: part.weight for part in saved.parts}
    shown = f"{out}: {len(models)} models, {', '.join(models)}"
    print_result({"out": str(out), "models": models}, as_json=json, shown=shown)
