"""The long campaign: `python -m fuzz --cases 20000`."""

from typing import Annotated

import typer

from fuzz.campaign import run


def main(
    cases: Annotated[int, typer.Option(help="How many malformed inputs to try.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides every input.")] = 0,
    only: Annotated[int | None, typer.Option(help="Do this one case again.")] = None,
) -> None:
    """Try malformed inputs on every reader and on the configuration."""
    outcome = run(range(cases) if only is None else [only], seed=seed)
    for target, count in sorted(outcome.cases.items()):
        typer.echo(f"{count:>8,}  {target}")
    # One of each kind is enough to begin with.
    kinds = {surprise.strip().splitlines()[-1].partition(": ")[2][:60]: surprise for surprise in outcome.surprises}
    for surprise in list(kinds.values())[:20]:
        typer.echo(f"\n{surprise}")
    typer.echo(
        f"\n{outcome.cases.total():,} malformed inputs, seed {seed}: {len(outcome.surprises)} surprises; "
        f"the slowest took {outcome.slowest:.1f} s"
    )
    raise typer.Exit(bool(outcome.surprises))


typer.run(main)
