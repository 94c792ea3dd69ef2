"""The long campaign: `python -m faults`."""

import logging
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from faults.campaign import all_faults, outcomes, summary
from faults.laboratory import Laboratory


def main(
    seed: Annotated[int, typer.Option(help="Decides the times, places and kinds.")] = 0,
    others: Annotated[int, typer.Option(help="Kills at changes other than writes.")] = 30,
    times: Annotated[int, typer.Option(help="Kills at random times.")] = 30,
    each: Annotated[int, typer.Option(help="Faults of each kind of storage fault.")] = 10,
    jobs: Annotated[int, typer.Option(help="Runs at a time.")] = os.cpu_count() or 1,
    only: Annotated[str, typer.Option(help="Only the kinds of fault whose name holds this.")] = "",
) -> None:
    """Put faults into real runs; every one must end as if nothing had happened, or say what to do."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        root = Path(folder)
        lab = Laboratory.build(root)
        faults = all_faults(lab, root, seed=seed, others=others, times=times, each=each)
        faults = [fault for fault in faults if only in fault.kind]
        typer.echo(f"{len(faults)} faults for a run of {lab.seconds:.1f} seconds")
        results = []
        for result in outcomes(lab, root, faults, jobs=jobs):
            results.append(result)
            if result.problem:
                typer.echo(f"{result.kind}, {result.detail}: {result.problem}")
    for line in summary(results):
        typer.echo(line)
    raise typer.Exit(any(result.problem for result in results))


typer.run(main)
