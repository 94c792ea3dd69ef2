"""Stages in the ranks of a data-parallel run: parts of stages one per rank, whole stages by all of them."""

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory

from trans_encoder.files import atomic_file
from trans_encoder.ranks import from_all_ranks, is_first_rank, rank, world_size
from trans_encoder.runs.stages import Engine, Spent, Stage
from trans_encoder.runs.workers.here import one_by_one, perform


def local_engine() -> Engine:
    """Return the engine of this process, or of all ranks under torchrun or accelerate launch."""
    return by_ranks if world_size() > 1 else one_by_one


def by_ranks(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
    """Do stages with all ranks; every rank must call this with the same stages."""
    alone = [stage for stage in stages if stage.by == "any"]
    for start in range(0, len(alone), world_size()):
        yield from _one_each(folder, alone[start : start + world_size()])
    for stage in stages:
        if stage.by != "any":
            took = perform(stage.work, folder / stage.name) if stage.by == "all" or is_first_rank() else None
            spent = [each for each in from_all_ranks(took) if each]
            yield stage, reduce(Spent.and_then, spent)._replace(seconds=max(each.seconds for each in spent))


def _one_each(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
    """Let each rank make one file; only rank 0 writes into the run folder, including what the others made."""
    # The run folder has one writer, so the other ranks' files travel as messages.
    mine = stages[rank()] if rank() < len(stages) else None
    made: tuple[Spent, bytes | None] | None = None
    if is_first_rank():
        made = perform(stages[0].work, folder / stages[0].name), None
    elif mine is not None:
        with TemporaryDirectory(prefix="trans-encoder-") as temporary:
            place = Path(temporary) / Path(mine.name).name
            made = perform(mine.work, place), place.read_bytes()
    for stage, (spent, content) in zip(stages, filter(None, from_all_ranks(made)), strict=True):
        if is_first_rank() and content is not None:
            with atomic_file(folder / stage.name) as file:
                file.write_bytes(content)
        yield stage, spent
