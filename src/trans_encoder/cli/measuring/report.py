"""`trans-encoder report`: one page about one run, or several side by side."""

from pathlib import Path
from typing import Annotated

import typer

from trans_encoder.cli.options import Json
from trans_encoder.cli.output import print_result


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are shown side by side.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; report.html in the first run if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page about runs: did it help, how the labels moved, where models disagree.

    Example: `trans-encoder report runs/sts runs/sts-large --out compared.html`
    """
    from trans_encoder.report import write_report

    page = write_report(runs, out)
    print_result({"report": str(page)}, as_json=json, shown=str(page))
