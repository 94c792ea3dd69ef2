"""The options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Models = Annotated[list[str], typer.Argument(metavar="MODEL...", help="Folders or hub names; several are an ensemble.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder or hub name.")]
KindOption = Annotated[
    Literal["bi", "cross"] | None, typer.Option("--kind", help="What the model is, if its files do not tell.")
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Let models that ask for it run their own code.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of local task data; without it, tasks come from the hub.")
]
Pairs = Annotated[Path, typer.Option("--pairs", metavar="FILE", help="Pairs: JSONL, TSV, CSV, Parquet, .gz too.")]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B[,SCORE]", help="The columns of the pairs, if they are not found."),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that cannot be read, and say how many.")]
