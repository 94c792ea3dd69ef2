"""The options that several commands share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trans_encoder.errors import ConfigurationError

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


def read_settings(assignments: Sequence[str] | None, *, options: Mapping[str, str]) -> dict[str, Any]:
    """Read what was given with `--set`; refuse what has an option of its own, by the setting's name."""
    from trans_encoder.config import parse_overrides

    settings = parse_overrides(assignments or [])
    taken = [f"--set {name}=...: give {option} instead" for name, option in options.items() if name in settings]
    if taken:
        raise ConfigurationError("\n".join(taken))
    return settings
