"""What a worker does with a stage that it is given."""

import os
from pathlib import Path

from trans_encoder.runs.claims import check_shared
from trans_encoder.runs.stages import Spent, Work
from trans_encoder.runs.workers.here import perform

RESUME = "what is finished is kept, and the same command continues"


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
