"""Stages one after the other in this process."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from trans_encoder.runs.stages import Spent, Stage, Work, attempted, peak_memory_bytes


def one_by_one(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
    """Do one stage after the other."""
    for stage in stages:
        yield stage, perform(stage.work, folder / stage.name)


def perform(work: Work, path: Path) -> Spent:
    """Do the work of a stage in this process; the seconds include those of earlier attempts."""
    with attempted(path) as seconds:
        work(path)
    return Spent(seconds(), peak_memory_bytes())
