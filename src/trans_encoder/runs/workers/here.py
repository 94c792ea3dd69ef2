"""Stages in this process: one after the other, or one that a worker is given."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trans_encoder.runs.claims import check_shared
from trans_encoder.runs.stages import Spent, Stage, Work, attempted, peak_memory_bytes

RESUME = "what is finished is kept, and the same command continues"


def one_by_one(folder: Path, stages: Sequence[Stage]) -> Iterator[tuple[Stage, Spent]]:
    """Do one stage after the other."""
    for stage in stages:
        yield stage, perform(stage.work, folder / stage.name)


def perform(work: Work, path: Path) -> Spent:
    """Do the work of a stage in this process; the seconds include those of earlier attempts."""
    with attempted(path) as seconds:
        work(path)
    return Spent(seconds(), peak_memory_bytes())


def asked_threads() -> int | None:
    """Return the number of threads that the user asked for, which then holds in every worker."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() else None


def do(work: Work, path: Path, *, run: Path, threads: int | None) -> Spent:
    """Do the work of a stage in this process, which must see the run folder."""
    import torch

    check_shared(run)
    if threads is not None:
        torch.set_num_threads(threads)
    return perform(work, path)
